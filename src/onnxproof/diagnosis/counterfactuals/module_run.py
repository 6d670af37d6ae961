"""The module, or a changed copy of it, on the witness."""

from collections.abc import Mapping
from typing import Any

import torch

from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench
from onnxproof.reference import tree
from onnxproof.reference.torch_session import TorchSession, from_numpy, to_numpy


def module_session(workbench: Workbench) -> TorchSession | None:
    """The session of the module in its own precision; None where the reference is a file."""
    return getattr(workbench.scene.reference, "session", None)


def run_module(session: TorchSession, module: Any, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs of a copy of the module, with nothing put back afterwards."""
    tensors = {name: from_numpy(array) for name, array in inputs.items()}
    args, kwargs = session.arguments(tensors)
    with torch.no_grad():
        returned = module(*args, **kwargs)
    leaves = [leaf for _, leaf in tree.flatten(returned)]
    return [to_numpy(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
