"""What `onnxproof export` costs beyond torch.onnx.export itself, verification apart: a ratio, for several architectures.

Both export the same dims, in turn, several times in one process after a warm-up; the median of the ratios of neighbours counts.
Three exports are compared: torch's with the dims that ours found, torch's with fixed sizes (what people call), and ours.

    python -m bench.export_overhead --only bert,resnet --repeats 5
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.zoo import ENTRIES
from onnxproof.exporter import quiet, write
from onnxproof.subject import load

NAMES = ("bert", "llama", "vit", "resnet", "unet_bilinear", "conv_net", "lstm_tagger", "tabular")
BAR = 1.25


def measure(name: str, repeats: int) -> tuple[float, float, float]:
    """Seconds of torch with our dims, and the ratios of ours to it and to torch with fixed sizes."""
    module, inputs = ENTRIES[name].build()
    found = load(module, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        written = write(found, path)  # also the warm-up: imports, tables of decompositions
        shapes = _shapes(written.record.dims, found)

        def theirs(dynamic: Any) -> Callable[[], object]:
            def run() -> object:
                with quiet(), torch.no_grad():
                    return torch.onnx.export(found.module, found.args, path, kwargs=dict(found.kwargs), dynamic_shapes=dynamic, dynamo=True, verbose=False, external_data=False)
            return run

        ways = (theirs(shapes), theirs(None), lambda: write(found, path))
        rounds = [[_seconds(way) for way in ways] for _ in range(repeats)]
    return (statistics.median(row[0] for row in rounds), statistics.median(row[2] / row[0] for row in rounds), statistics.median(row[2] / row[1] for row in rounds))


def _shapes(dims: Sequence[Any], found: Any) -> Any:
    """The dims that ours found, left to torch: under names of its own, since it refuses some of them by name."""
    from onnxproof.backends.torch import bind

    names = bind(found.module, found.args, found.kwargs)
    given = {name: {dim.axis: torch.export.Dim.AUTO for dim in dims if dim.input == name and dim.name} for name in names}
    return {name: axes or None for name, axes in given.items()}


def _seconds(run: Callable[[], object]) -> float:
    """Processor time: both are one thread of Python, and a busy machine must not decide."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row an architecture; the exit code says whether the median keeps to the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    ratios = []
    print(f"{'architecture':18s} {'torch s':>8s} {'ours/torch':>11s} {'ours/fixed sizes':>17s}")
    for name in options.only.split(","):
        seconds, same, fixed = measure(name, options.repeats)
        ratios.append(same)
        print(f"{name:18s} {seconds:8.2f} {same:11.2f} {fixed:17.2f}", flush=True)
    print(f"median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}; the bar is {BAR}")
    return int(statistics.median(ratios) > BAR)


if __name__ == "__main__":
    sys.exit(main())
