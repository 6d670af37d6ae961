"""What every healthy case does last: export, and hand back the pair. Seeded inputs are made here too."""

from pathlib import Path
from typing import Any

import torch

from bench.corpus import Built, export


def healthy(
    path: Path,
    model: torch.nn.Module,
    inputs: Any,
    dynamic_shapes: Any = None,
    *,
    dynamo: bool,
    **options: Any,
) -> Built:
    """Export `model` to `path` as it stands. `inputs` is a tuple, or a dict of keyword inputs."""
    keyword = isinstance(inputs, dict)
    if keyword:
        options["kwargs"] = inputs
        if not dynamo:
            options.setdefault("input_names", list(inputs))
    axes = (
        tuple(dynamic_shapes.values())
        if keyword and dynamic_shapes and not dynamo
        else dynamic_shapes
    )
    export(model, () if keyword else inputs, path, axes, dynamo=dynamo, **options)
    return Built(model=model, example_inputs=inputs, dynamic_shapes=dynamic_shapes, correct=path)


def normal(*shape: int, seed: int = 1, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale + shift


def integers(high: int, *shape: int, seed: int = 1) -> torch.Tensor:
    """Whole numbers from 0 up to, and without, `high`."""
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def lengths_mask(lengths: list[int], longest: int) -> torch.Tensor:
    """True for the first `lengths[k]` places of row k: right padding."""
    return torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
