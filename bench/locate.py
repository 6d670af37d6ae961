"""What an explanation costs, side by side with the tools that look inside a model, in one run.

    python -m bench.locate                       # all of it: some minutes, most of them torch.onnx.verification's
    python -m bench.locate --only blocks,chain,memory
    python -m bench.locate --only memory --profile

`blocks`: a 12-block transformer with one LayerNorm epsilon changed, against `torch.onnx.verification` with
`compare_intermediates=True`. `chain`: a model of 30 nodes with one weight changed, against `polygraphy debug reduce`, whose
check compares every value with the right one. `memory`: 64 values of 64 MB each. Each runs in a process of its own.
"""

import argparse
import cProfile
import dataclasses
import json
import pstats
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.overhead import Bar, apart, show, transformer

TORCH_BAR, REDUCE_BAR, PASSES_BAR, MEMORY_BAR_MB = 50.0, 10.0, 10.0, 512.0
LIMIT_S = 400.0
SIDE = 1024
"""Width and height of the large case: 16 channels of float32 make 64 MB."""
_CHECK = """
import sys
import numpy as np, onnxruntime
known = np.load(sys.argv[1])
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession("polygraphy_debug.onnx", options, providers=["CPUExecutionProvider"])
names = [o.name for o in session.get_outputs()]
found = session.run(names, {i.name: known[i.name] for i in session.get_inputs()})
sys.exit(int(any(not np.allclose(f, known[n], atol=1e-5, rtol=1e-5) for n, f in zip(names, found, strict=True))))
"""


# The models: each with its example, its dynamic dims, and the change that makes one node guilty.


def blocks() -> tuple[Any, tuple[Any, ...], Any]:
    """Twelve pre-norm blocks of width 256: about 230 values."""
    import torch

    torch.manual_seed(7)
    return (
        transformer(blocks=12, width=256),
        (torch.randn(2, 32, 256),),
        ({0: "batch", 1: "length"},),
    )


def chain() -> tuple[Any, tuple[Any, ...], Any]:
    """Fifteen layers with their activations: 30 nodes."""
    import torch
    from torch import nn

    torch.manual_seed(8)
    layers = [
        part
        for k in range(15)
        for part in (nn.Linear(64, 64), (nn.SiLU, nn.Tanh, nn.ReLU)[k % 3]())
    ]
    return nn.Sequential(*layers).eval(), (torch.randn(4, 64),), ({0: "batch"},)


def memory() -> tuple[Any, tuple[Any, ...], Any]:
    """Thirty-two depthwise convolutions and as many activations with hardly any weights."""
    import torch
    from torch import nn

    torch.manual_seed(9)
    layers = [
        part for _ in range(32) for part in (nn.Conv2d(16, 16, 1, groups=16), nn.LeakyReLU(0.9))
    ]
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for weight in (p for name, p in model.named_parameters() if name.endswith("weight")):
            weight.copy_(1.0 + 0.1 * torch.randn_like(weight))
    return model, (torch.randn(1, 16, 8, 8),), ({2: "height", 3: "width"},)


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], Any]]] = {
    "blocks": blocks,
    "chain": chain,
    "memory": memory,
}


def plant(graph: Any, what: str) -> list[str]:
    """Make one node guilty: the second norm of block 7, or the eighth layer's bias."""
    from bench.corpus import nodes, read_constant, set_attributes, write_constant

    if what == "blocks":
        node = nodes(graph, "LayerNormalization")[2 * 6 + 1]
        set_attributes(node, epsilon=1e-3)
    else:
        layers = nodes(graph, "Gemm", "Conv")
        node = layers[len(layers) // 2]
        bias = read_constant(graph, node.input[2]).copy()
        bias[3] += 0.5
        write_constant(graph, node.input[2], bias)
    return [node.name]


def write(what: str, folder: Path) -> tuple[Path, list[str]]:
    """Export, and plant the fault; the right file lies beside as `right.onnx`."""
    from bench.corpus import edit, export

    model, inputs, shapes = MODELS[what]()
    right = export(model, inputs, folder / f"{what}.right.onnx", shapes)
    wrong = folder / f"{what}.onnx"
    return wrong, edit(right, wrong, lambda graph: plant(graph, what))


# What runs in a process of its own.


def run_ours(what: str, path: Path, profile: bool) -> dict[str, Any]:
    """Verify the faulty file and time the explanation inside; for `memory`, the witness is first made large."""
    import onnxproof
    import onnxproof.diagnosis.diagnose as diagnose

    model, inputs, shapes = MODELS[what]()
    result: dict[str, Any] = {}
    explain, locate = diagnose.diagnose, diagnose.locate
    watch = cProfile.Profile()

    def timed(proof: Any, run: Any) -> Any:
        if what == "memory":
            proof = dataclasses.replace(proof, witness=_large(proof.witness))
            forget_peak()
        result["before"], result["start"] = peak_now_mb(), time.perf_counter()
        if profile:
            watch.enable()
        found = explain(proof, run)
        watch.disable()
        result["explain"] = time.perf_counter() - result["start"]
        return found

    def located(scene: Any) -> Any:
        try:
            found = locate(scene)
        finally:
            result["locate"], result["peak"] = time.perf_counter() - result["start"], peak_now_mb()
        if what == "memory":
            raise _Enough(found)  # the causes have their own bars
        return found

    diagnose.locate = located
    diagnose.diagnose = timed
    start = time.perf_counter()
    try:
        proof = onnxproof.verify(model, path, inputs, dynamic_shapes=shapes)
    except _Enough as enough:
        return result | {
            "nodes": list(enough.located.location.nodes),
            "compared": enough.located.location.compared,
            "verdict": "not judged",
        }
    result["wall"] = time.perf_counter() - start
    if profile:
        stats = pstats.Stats(watch, stream=sys.stderr)
        stats.sort_stats("tottime").print_stats(35)
        stats.sort_stats("cumtime").print_stats("onnxproof", 50)
    place = proof.location
    result.setdefault("explain", float("inf"))  # it raised: the proof holds no location
    return result | {
        "forward": sum(s for name, s in proof.seconds.items() if name != "total"),
        "verdict": proof.verdict.value,
        "nodes": list(place.nodes) if place else [],
        "compared": place.compared if place else 0,
    }


class _Enough(BaseException):
    """Carries the location out of a verification that need not go on."""

    def __init__(self, located: Any) -> None:
        super().__init__()
        self.located = located


def _large(case: Any) -> Any:
    """The same case with inputs whose every intermediate is 64 MB."""
    name = next(iter(case.inputs))
    large = np.random.default_rng(4).standard_normal((1, 16, SIDE, SIDE), dtype=np.float32)
    return dataclasses.replace(case, inputs={name: large}, sizes=dict.fromkeys(case.sizes, SIDE))


def run_plain(path: Path) -> dict[str, Any]:
    """Plain inference on the large case: the module, then the session."""
    import onnxruntime
    import torch

    model, _, _ = MODELS["memory"]()
    x = torch.randn(1, 16, SIDE, SIDE)
    with torch.no_grad():
        model(x)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return {"peak": peak_now_mb()}


def run_torch(what: str) -> dict[str, Any]:
    """torch.onnx.verification over the program of the exporter, with the same fault planted in its graph."""
    import onnx_ir
    import torch
    from torch.onnx import verification

    model, inputs, shapes = MODELS[what]()
    with torch.no_grad():
        program: Any = torch.onnx.export(
            model, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False
        )
    norm = [node for node in program.model.graph if node.op_type == "LayerNormalization"][2 * 6 + 1]
    norm.attributes["epsilon"] = onnx_ir.AttrFloat32("epsilon", 1e-3)
    start = time.perf_counter()
    infos = verification.verify_onnx_program(program, compare_intermediates=True)
    first = next(
        (info.name for info in infos if info.max_abs_diff > 0.01 or info.max_rel_diff > 0.1), ""
    )
    return {
        "seconds": time.perf_counter() - start,
        "values": len(infos),
        "first": first,
        "guilty": norm.outputs[0].name,
    }


def forget_peak() -> None:
    """Let the kernel count the peak anew from here."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_now_mb() -> float:
    """The peak of the resident size since the start or the last `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


# The three comparisons.


def against_torch(folder: Path, profile: bool) -> list[Bar]:
    path, guilty = write("blocks", folder)
    ours = _ours("blocks", path, profile)
    try:
        theirs = apart(
            "--child", "torch", "blocks", str(path), module="bench.locate", limit=LIMIT_S
        )
        words = f"{theirs['seconds']:.1f} s for {theirs['values']} values, first beyond its limits: {theirs['first'] or 'none'}"
        seconds = theirs["seconds"]
    except subprocess.TimeoutExpired:
        words, seconds = f"> {LIMIT_S:.0f} s", LIMIT_S
    return [
        Bar(
            what="blocks: torch.onnx.verification / locating",
            measured=seconds / ours["locate"],
            bar=TORCH_BAR,
            at_least=True,
            detail=f"{words} / {ours['locate']:.2f} s, {ours['compared']} nodes compared",
        ),
        *_answers("blocks", ours, guilty),
    ]


def against_polygraphy(folder: Path, profile: bool) -> list[Bar]:
    path, guilty = write("chain", folder)
    ours = _ours("chain", path, profile)
    seconds, left = reduce(folder, path)
    return [
        Bar(
            what="chain: polygraphy debug reduce / locating",
            measured=seconds / ours["locate"],
            bar=REDUCE_BAR,
            at_least=True,
            detail=f"{seconds:.1f} s (left: {', '.join(left)}) / {ours['locate']:.2f} s",
        ),
        *_answers("chain", ours, guilty),
    ]


def against_inference(folder: Path, profile: bool) -> list[Bar]:
    path, guilty = write("memory", folder)
    plain = apart("--child", "plain", "memory", str(path), module="bench.locate")
    ours = _ours("memory", path, profile)
    return [
        Bar(
            what="memory: peak while locating above plain inference",
            measured=ours["peak"] - plain["peak"],
            bar=MEMORY_BAR_MB,
            unit="MB",
            detail=f"{ours['peak']:.0f} MB ({ours['before']:.0f} MB when it began, {ours['locate']:.0f} s) / {plain['peak']:.0f} MB",
        ),
        _named("memory", ours, guilty),
    ]


def _ours(what: str, path: Path, profile: bool) -> dict[str, Any]:
    return apart(
        "--child",
        "ours",
        what,
        str(path),
        *(["--profile"] if profile else []),
        module="bench.locate",
    )


def _answers(what: str, ours: dict[str, Any], guilty: Sequence[str]) -> list[Bar]:
    return [
        _named(what, ours, guilty),
        Bar(
            what=f"{what}: explanation / forward passes of one verification",
            measured=ours["explain"] / ours["forward"],
            bar=PASSES_BAR,
            detail=f"{ours['explain']:.2f} s (locating {ours['locate']:.2f} s) / {ours['forward']:.2f} s, verify in all {ours['wall']:.1f} s",
        ),
    ]


def _named(what: str, ours: dict[str, Any], guilty: Sequence[str]) -> Bar:
    return Bar(
        what=f"{what}: the guilty node is named first",
        measured=float(ours["nodes"][:1] == list(guilty)),
        bar=1,
        unit="",
        at_least=True,
        detail=f"{ours['verdict']}, named {', '.join(ours['nodes'][:3]) or 'none'}; guilty {', '.join(guilty)}",
    )


def reduce(folder: Path, path: Path) -> tuple[float, list[str]]:
    """`polygraphy debug reduce`, both ways, with a check that knows every right value; gives seconds and the nodes left."""
    import onnx
    import onnxruntime

    model = onnx.load(folder / "chain.right.onnx")
    values = [output for node in model.graph.node for output in node.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=value) for value in values)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = MODELS["chain"]()[1][0].numpy()
    name = session.get_inputs()[0].name
    np.savez(
        folder / "known.npz",
        **{name: x},
        **dict(zip(values, session.run(values, {name: x}), strict=True)),
    )
    (folder / "check.py").write_text(_CHECK)
    tool = Path(sys.executable).parent / "polygraphy"
    shapes = f"{name}:[{','.join(map(str, x.shape))}]"
    start = time.perf_counter()
    check = ["--check", sys.executable, "check.py", "known.npz"]
    command = [
        str(tool),
        "debug",
        "reduce",
        str(path),
        "-o",
        "reduced.onnx",
        "--model-input-shapes",
        shapes,
        *check,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    seconds = time.perf_counter() - start
    reduced = folder / "reduced.onnx"
    if not reduced.exists():
        print(done.stdout[-1500:], done.stderr[-1500:], file=sys.stderr)
        return seconds, []
    return seconds, [node.name for node in onnx.load(reduced).graph.node]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every bar was met."""
    parts = {"blocks": against_torch, "chain": against_polygraphy, "memory": against_inference}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(parts))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        import torch

        torch.set_num_threads(
            1
        )  # for every tool alike: a shared machine makes more of them a lottery
        who, what, path = options.child
        found = {
            "ours": lambda: run_ours(what, Path(path), options.profile),
            "plain": lambda: run_plain(Path(path)),
            "torch": lambda: run_torch(what),
        }[who]()
        print(json.dumps(found))
        return 0
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            fresh = parts[name](Path(folder), options.profile)
            print(show(fresh), flush=True)
            bars += fresh
    print("\n" + show(bars))
    return int(not all(bar.met for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
