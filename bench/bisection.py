"""Does `onnxproof bisect` name the release in which ONNX Runtime changed its answers?

    python -m bench.bisection [--versions 1.20..1.31]

Small models whose answers differ between onnxruntime 1.20 and today, found by running the standard's own node tests and a few hundred graphs with both. For each, every
release is asked by a plain script without onnxproof (in the same environments): where its answers change is the release that should be named.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxproof.bisection import releases
from onnxproof.cli import main as onnxproof
from onnxproof.runtimes import ort_at

_PLAIN = """
import sys
import numpy as np
import onnxruntime
feeds = dict(np.load(sys.argv[2]))
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
try:
    values = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]).run(None, feeds)
except Exception as why:
    values = [np.array(float("nan"))]
np.savez(sys.argv[3], *values)
"""
_ANOTHER = 1e-4
"""A relative difference that no rounding of these small graphs explains."""
Array = np.ndarray
Feeds = dict[str, Array]
_rng = np.random.default_rng(3)


def _floats(*shape: int, scale: float = 1.0, mean: float = 0.0) -> Array:
    return (_rng.standard_normal(shape) * scale + mean).astype(np.float32)


def _save(path: Path, nodes: Sequence[onnx.NodeProto], feeds: Feeds, weights: Feeds) -> Feeds:
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", ports, [result], tensors)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return feeds


def layer_norm(path: Path) -> Feeds:
    """A mean far from 0: the variance in one pass loses its digits."""
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], name="norm")
    feeds = {"x": _floats(2, 16, 64, scale=0.1, mean=100.0)}
    return _save(path, [node], feeds, {"s": _floats(64), "b": _floats(64)})


def decomposed_layer_norm(path: Path) -> Feeds:
    """The same as exporters write it for old opsets: right as long as it is not fused."""
    steps = [
        ("ReduceMean", ["x", "axis"], "mean"),
        ("Sub", ["x", "mean"], "centred"),
        ("Pow", ["centred", "two"], "squares"),
        ("ReduceMean", ["squares", "axis"], "variance"),
        ("Add", ["variance", "epsilon"], "shifted"),
        ("Sqrt", ["shifted"], "deviation"),
        ("Div", ["centred", "deviation"], "normal"),
        ("Mul", ["normal", "s"], "scaled"),
        ("Add", ["scaled", "b"], "y"),
    ]
    nodes = [helper.make_node(op, inputs, [output], name=output) for op, inputs, output in steps]
    weights = {
        "axis": np.array([-1]),
        "two": np.float32(2).reshape(()),
        "epsilon": np.float32(1e-5).reshape(()),
        "s": _floats(64),
        "b": _floats(64),
    }
    weights = {name: np.asarray(value) for name, value in weights.items()}
    return _save(path, nodes, {"x": _floats(2, 16, 64, scale=0.1, mean=100.0)}, weights)


def average_pool(path: Path) -> Feeds:
    """The last window of ceil_mode hangs over the edge: what does it divide by?"""
    node = helper.make_node(
        "AveragePool",
        ["x"],
        ["y"],
        name="pool",
        kernel_shape=[3, 3],
        strides=[2, 2],
        ceil_mode=1,
        count_include_pad=1,
    )
    return _save(path, [node], {"x": _floats(2, 3, 10, 10)}, {})


def erf_of_nan(path: Path) -> Feeds:
    """A NaN that goes in, with numbers beside it."""
    x = _floats(3, 70, scale=2.0)
    x[0, 5] = np.nan
    node = helper.make_node("Erf", ["x"], ["y"], name="erf")
    return _save(path, [node], {"x": x}, {})


def local_attention(path: Path) -> Feeds:
    """Attention that sees the last three tokens only."""
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "", "", "lengths", "total"],
        ["y", "present_k", "present_v"],
        name="attention",
        domain="com.microsoft",
        num_heads=4,
        kv_num_heads=2,
        local_window_size=3,
    )
    feeds = {"q": _floats(2, 6, 64), "k": _floats(2, 6, 32), "v": _floats(2, 6, 32)}
    weights = {"lengths": np.array([5, 5], np.int32), "total": np.array(6, np.int32)}
    return _save(path, [node], feeds, weights)


MODELS: tuple[Callable[[Path], Feeds], ...] = (
    layer_norm,
    decomposed_layer_norm,
    average_pool,
    erf_of_nan,
    local_attention,
)


def changes_by_hand(path: Path, feeds: Feeds, points: Sequence[str]) -> list[str]:
    """The releases whose answers differ from those of the release before, asked one by one."""
    given, taken = path.with_suffix(".npz"), path.with_suffix(".out.npz")
    np.savez(given, **feeds)
    changed, before = [], None
    for point in points:
        python = ort_at.environment(ort_at.requirement(point))
        subprocess.run([python, "-c", _PLAIN, path, given, taken], check=True)
        answers = list(np.load(taken).values())
        if before is not None and not _alike(before, answers):
            changed.append(point)
        before = answers
    return changed


def _alike(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape
        and np.allclose(
            a, b, rtol=0, atol=_ANOTHER * np.nanmax(np.abs(a), initial=1e-9), equal_nan=True
        )
        for a, b in zip(one, other, strict=True)
    )


def bisected(path: Path, feeds: Feeds, points: Sequence[str], more: Sequence[str]) -> dict:
    """What `onnxproof bisect` says, asked with the same input among its own."""
    data, target = path.with_suffix(".data.npz"), path.with_suffix(".json")
    np.savez(data, **feeds)
    words = [str(path), str(path), "--versions", f"onnxruntime={','.join(points)}"]
    words += ["--data", str(data), "--json", str(target), "--quiet", "--threads", "1", *more]
    onnxproof(["bisect", *words])
    return json.loads(target.read_text()) if target.exists() else {"changes": [], "points": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--versions", default="1.20..1.31")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    points = releases.between("onnxruntime", arguments.versions)
    print(f"{len(points)} releases of onnxruntime, {points[0]} to {points[-1]}")
    print("| model | by hand | named | what | tried |")
    print("| --- | --- | --- | --- | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for make in MODELS:
            if arguments.only and make.__name__ not in arguments.only.split(","):
                continue
            path = Path(folder) / f"{make.__name__}.onnx"
            feeds = make(path)
            by_hand = changes_by_hand(path, feeds, points)
            result = bisected(path, feeds, points, ["--budget", "5"])
            named = [change["after"] for change in result["changes"]]
            blames = [change["blame"] for change in result["changes"]]
            what = "; ".join(
                f"{blame['part']} {blame['op_type'] or blame['name']} {'proven' if blame['proven'] else 'likely'}"
                for blame in blames
            )
            print(
                f"| {make.__name__} | {', '.join(by_hand)} | {', '.join(named)} | {what} | {len(result['points'])} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
