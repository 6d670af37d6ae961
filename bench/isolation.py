"""What a process of its own costs: the same model in process and apart, run in turns.

    python -m bench.isolation

Each row is a conv net made to take about so long for one forward pass. `beyond` is the median of what a run apart took more than the run in
process beside it, with all there is to it: copying arrays in and out, the line of JSON, the other process waking up.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxproof.options import Serving
from onnxproof.runtimes import open_session


def network(path: Path, layers: int, size: int = 96, width: int = 24) -> Path:
    """So many convolutions; image in, image out, so that megabytes go both ways."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            (rng.standard_normal((width, width, 3, 3)) / (3 * width**0.5)).astype(np.float32),
            f"w{k}",
        )
        for k in range(layers)
    ]
    names = ["x", *(f"h{k}" for k in range(1, layers)), "y"]
    nodes = [
        helper.make_node("Conv", [names[k], f"w{k}"], [names[k + 1]], pads=[1, 1, 1, 1])
        for k in range(layers)
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width, size, size])
        for name in ("x", "y")
    ]
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "net", ports[:1], ports[1:], weights),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        ),
        path,
    )
    return path


def compare(path: Path, rows: int, rounds: int) -> tuple[float, float, float]:
    """Median seconds in process, apart, and of the difference within a round; the order changes from round to round."""
    own, apart = (
        open_session("ort", path, Serving(threads=1)),
        open_session("ort", path, Serving(threads=1, isolate=True)),
    )
    x = np.random.default_rng(1).standard_normal((rows, 24, 96, 96)).astype(np.float32)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds + 2):
        for isolated in (turn % 2 == 0, turn % 2 == 1):
            start = time.perf_counter()
            (apart if isolated else own).run({"x": x})
            if turn >= 2:
                taken[isolated].append(time.perf_counter() - start)
    own.close()
    apart.close()
    return (
        statistics.median(taken[False]),
        statistics.median(taken[True]),
        statistics.median(a - b for a, b in zip(taken[True], taken[False], strict=True)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    print(
        f"{'layers':>6} {'rows':>5} {'MB':>6} {'in process':>11} {'apart':>9} {'beyond':>9} {'share':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for layers, rows in ((2, 1), (8, 1), (24, 1), (8, 4), (24, 4)):
            inside, outside, beyond = compare(
                network(Path(folder) / f"net{layers}.onnx", layers), rows, rounds
            )
            megabytes = rows * 24 * 96 * 96 * 4 * 2 / 1e6
            print(
                f"{layers:>6} {rows:>5} {megabytes:>6.1f} {inside * 1e3:>8.1f} ms {outside * 1e3:>6.1f} ms {beyond * 1e3:>6.2f} ms {beyond / inside:>7.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
