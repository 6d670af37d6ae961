"""What `onnxproof export` costs beyond torch.onnx.export itself, verification apart: a ratio, for several kinds of models.

The denominator is the plain call, `torch.onnx.export(module, args, path, dynamo=True, dynamic_shapes=...)`, with `Dim.AUTO` for exactly those dims that
ours leaves open. That is its best case: a user who does not know them has to open all dims, or to try. Where the plain call fails, and ours finds a
way, the denominator is the plain call on the module as a user would have mended it by hand; the failing call before that is not counted.

The numerator is all of ours: capture, dims and their names, assumptions, training mode and state, every way that was tried, the file with its
metadata. The proofs of attempts that helped are verification: they are made and timed in the warm-up, shown, and left out of the rounds.

Both are run in one process after a warm-up of both, in turn, the order changing from round to round. A round's ratio is of neighbours; a model's is the
median of its rounds, with the worst one beside it. It is processor time of one thread: a busy machine must not decide.

    python -m bench.export_overhead --only bert,resnet --repeats 5
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.zoo import ENTRIES
from bench.zoo._entry import normal, ready
from onnxproof.exporter import fallbacks, replacements
from onnxproof.exporter.export import Written, quiet, write
from onnxproof.reference.subject import Subject, load
from onnxproof.reference.torch_session import bind

BAR = 1.25


def mlp() -> tuple[nn.Module, Any]:
    """Three linear layers."""
    return ready(
        nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    ), (normal(2, 16),)


class Middle(nn.Module):
    """A median between linear layers: ONNX has none, and the plain call fails on it."""

    def __init__(self, median: Callable[..., Any] = torch.median) -> None:
        super().__init__()
        self.median, self.layers = median, nn.ModuleList(nn.Linear(16, 16) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x - self.median(x, 1, True)[0]))
        return x


def lacks_operator() -> tuple[nn.Module, Any]:
    """As it is written, and (below) with the median taken from a sort."""
    return ready(Middle()), (normal(4, 16),)


def _batched_experts() -> tuple[nn.Module, Any]:
    module, inputs = ENTRIES["mixtral"].build()
    for layer in module.modules():
        if hasattr(getattr(layer, "config", None), "_experts_implementation"):
            layer.config._experts_implementation = "batched_mm"
    return module, inputs


MENDED: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "lacks_operator": lambda: (ready(Middle(replacements.median)), (normal(4, 16),)),
    "mixtral": _batched_experts,
}
"""Those that the plain call fails on, as their users would mend them."""


def deep_conv() -> tuple[nn.Module, Any]:
    """As deep as MobileNet v2, with height and width open all the way: 52 convolutions, every fourth halves them."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for step in range(51):
        layers += [
            nn.Conv2d(
                16,
                16,
                3,
                padding=1,
                groups=16 if step % 2 else 1,
                stride=2 if step in (4, 14, 28) else 1,
            ),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
        ]
    return ready(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))), (
        normal(2, 3, 64, 64),
    )


KINDS: dict[str, tuple[str, Callable[[], tuple[nn.Module, Any]]]] = {
    "mlp": ("small", mlp),
    "tabular": ("embeddings", ENTRIES["tabular"].build),
    "conv_net": ("conv net", ENTRIES["conv_net"].build),
    "resnet": ("conv net", ENTRIES["resnet"].build),
    "unet_bilinear": ("conv net", ENTRIES["unet_bilinear"].build),
    "deep_conv": ("deep conv net", deep_conv),
    "mobilenet_v2": ("deep; two dims stay fixed", ENTRIES["mobilenet_v2"].build),
    "bert": ("transformer", ENTRIES["bert"].build),
    "vit": ("transformer; fixed dims", ENTRIES["vit"].build),
    "llama": ("decoder", ENTRIES["llama"].build),
    "llama_with_cache": ("decoder with a cache", ENTRIES["llama_with_cache"].build),
    "lstm_tagger": ("LSTM", ENTRIES["lstm_tagger"].build),
    "rnn_by_hand": ("another way: a loop is scripted", ENTRIES["rnn_by_hand"].build),
    "lacks_operator": ("another way: an operator", lacks_operator),
    "mixtral": ("another way: experts", ENTRIES["mixtral"].build),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one model: seconds of the plain call, the ratio of each round, seconds of proofs that were left out."""

    torch_s: float
    ratios: tuple[float, ...]
    proofs_s: float

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)


class Proofs:
    """The proofs inside an export: made in the warm-up and timed there, remembered in the rounds."""

    def __init__(self) -> None:
        self._real, self._verdicts, self._asked = fallbacks._verify, [], 0
        self.seconds = 0.0

    def warm(self) -> None:
        """A new model: nothing is known."""
        self._verdicts, self.seconds = [], 0.0

    def again(self) -> None:
        """The same model: its proofs come in the same order."""
        self._asked = 0

    def __call__(self, *given: Any) -> Any:
        self._asked += 1
        if self._asked > len(self._verdicts):
            start = time.process_time()
            self._verdicts.append(self._real(*given))
            self.seconds += time.process_time() - start
        return self._verdicts[self._asked - 1]


def measure(name: str, repeats: int, proofs: Proofs) -> Cost:
    """One model."""
    found = load(*KINDS[name][1]())
    plain = load(*MENDED[name]()) if name in MENDED else found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"

        def ours() -> Written:
            proofs.again()
            return write(found, path)

        proofs.warm()
        shapes = _shapes(ours().record.dims, found)

        def theirs() -> None:
            _plain(plain, path, shapes)

        theirs()
        rounds = [_round(theirs, ours, ours_first=bool(number % 2)) for number in range(repeats)]
    return Cost(
        torch_s=statistics.median(row[0] for row in rounds),
        ratios=tuple(own / other for other, own in rounds),
        proofs_s=proofs.seconds,
    )


def _round(
    theirs: Callable[[], object], ours: Callable[[], object], *, ours_first: bool
) -> tuple[float, float]:
    """Seconds of theirs and of ours."""
    if ours_first:
        own = _seconds(ours)
        return _seconds(theirs), own
    return _seconds(theirs), _seconds(ours)


def _plain(found: Subject, path: Path, shapes: Any) -> None:
    """What everybody calls."""
    with quiet(), torch.no_grad():
        torch.onnx.export(
            found.module,
            found.args,
            path,
            kwargs=dict(found.kwargs),
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
            external_data=False,
        )


def _shapes(dims: Sequence[Any], found: Subject) -> Any:
    """The dims that ours left open, left to torch: under names of its own, since it refuses some of them by name."""
    return {
        name: _axes(name, value, dims)
        for name, value in bind(found.module, found.args, found.kwargs).items()
    }


def _axes(path: str, value: Any, dims: Sequence[Any]) -> Any:
    """The same containers as the input's, with a dict of axes in the place of each tensor."""
    if isinstance(value, torch.Tensor):
        return {
            dim.axis: torch.export.Dim.AUTO for dim in dims if dim.input == path and dim.name
        } or None
    if isinstance(value, dict):
        return {key: _axes(f"{path}.{key}", item, dims) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_axes(f"{path}.{place}", item, dims) for place, item in enumerate(value))
    return None


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()  # each pays for its own garbage
    start = time.process_time()
    run()
    return time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row a model; the exit code says whether every one keeps to the bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    proofs = Proofs()
    fallbacks._verify = proofs
    medians = {}
    print(
        "| model | kind | torch.onnx.export s | ours, times that | worst round | proofs s, left out |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for name in options.only.split(","):
        cost = measure(name, options.repeats, proofs)
        medians[name] = cost.ratio
        print(
            f"| {name} | {KINDS[name][0]} | {cost.torch_s:.2f}{' (mended)' if name in MENDED else ''} | {cost.ratio:.2f} | {max(cost.ratios):.2f} | {cost.proofs_s:.1f} |",
            flush=True,
        )
    print(
        f"\nmedian of {len(medians)} models {statistics.median(medians.values()):.2f}, worst {max(medians.values()):.2f} ({max(medians, key=lambda name: medians[name])}); the bar is {BAR}"
    )
    return int(max(medians.values()) > BAR)


if __name__ == "__main__":
    sys.exit(main())
