"""What a verification costs beyond the forward passes that it runs, in time and in memory; and how quick `--help` is.

    python -m bench.overhead                     # all of it, with verify's defaults: some minutes
    python -m bench.overhead --only conv         # one model
    python -m bench.overhead --only conv --profile   # where the time goes

Every figure is a ratio of two measurements of the same run on the same machine, each in a process of its own.
"""

import argparse
import cProfile
import json
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIME_BAR, MEMORY_BAR, HELP_BAR = 1.10, 1.25, 5.0
SLOW_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One line of the table."""

    what: str
    measured: float
    bar: float
    unit: str = "x"
    at_least: bool = False
    detail: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar


def show(bars: Sequence[Bar]) -> str:
    """The table."""
    lines = [f"{'what':58s} {'measured':>12s} {'bar':>12s}  met  detail"]
    for b in bars:
        sign = ">=" if b.at_least else "<="
        lines.append(
            f"{b.what:58s} {f'{b.measured:.4g} {b.unit}':>12s} {f'{sign} {b.bar:g} {b.unit}':>12s}  {'yes' if b.met else 'NO ':3s}  {b.detail}"
        )
    return "\n".join(lines)


# The models: random weights, made anew in every process from the same seed.


def conv() -> tuple[Any, tuple[Any, ...], Any]:
    """A conv net of eight blocks with BatchNorm and SiLU."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    blocks: list[Any] = [nn.Conv2d(3, 64, 3, padding=1)]
    for _ in range(8):
        blocks += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.SiLU()]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()
    return model, (torch.randn(2, 3, 64, 64),), ({0: "batch"},)


def nodes500() -> tuple[Any, tuple[Any, ...], Any]:
    """A transformer encoder of 26 blocks: about 500 ONNX nodes."""
    import torch

    torch.manual_seed(2)
    return (
        transformer(blocks=26, width=256),
        (torch.randn(2, 64, 256),),
        ({0: "batch", 1: "length"},),
    )


def external() -> tuple[Any, tuple[Any, ...], Any]:
    """A wide MLP whose 200 MB of weights lie beside the file."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    layers = [part for _ in range(3) for part in (nn.Linear(4096, 4096), nn.GELU())]
    return (
        nn.Sequential(*layers, nn.Linear(4096, 16)).eval(),
        (torch.randn(32, 4096),),
        ({0: "batch"},),
    )


def transformer(*, blocks: int, width: int, heads: int = 4) -> Any:
    """Pre-norm blocks written out, so that every step is a node of its own."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.act = (
                nn.Linear(width, 4 * width),
                nn.Linear(4 * width, width),
                nn.GELU(),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, n, d = x.shape
            q, k, v = (
                t.view(b, n, heads, d // heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
            )
            scores = torch.softmax(q @ k.transpose(-1, -2) / (d // heads) ** 0.5, dim=-1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(b, n, d))
            return x + self.down(self.act(self.up(self.norm2(x))))

    return nn.Sequential(*(Block() for _ in range(blocks)), nn.LayerNorm(width)).eval()


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], Any]]] = {
    "conv": conv,
    "nodes500": nodes500,
    "external": external,
}


def write(name: str, folder: Path) -> Path:
    """Export one of them, once."""
    import torch

    from bench.corpus import export

    model, inputs, shapes = MODELS[name]()
    path = folder / f"{name}.onnx"
    if name == "external":
        with torch.no_grad():
            torch.onnx.export(
                model,
                inputs,
                path,
                dynamo=True,
                dynamic_shapes=shapes,
                external_data=True,
                verbose=False,
            )
        return path
    return export(model, inputs, path, shapes)


# What runs in a process of its own.


def run_verify(name: str, path: Path, budget: float, profile: bool) -> dict[str, Any]:
    """Verify with the defaults; the largest input that the module was given is remembered, and one pass is timed alone."""
    import onnxruntime  # noqa: F401 - the forward passes need both imports anyway
    import torch

    model, inputs, shapes = MODELS[name]()
    with torch.no_grad():
        model(*inputs)
        start = time.perf_counter()
        model(*inputs)
    one = time.perf_counter() - start
    largest: list[int] = []
    model.register_forward_pre_hook(
        lambda _, args: largest.__setitem__(
            slice(None), max(largest, list(args[0].shape), key=_count)
        )
    )
    watch = cProfile.Profile()
    start = time.perf_counter()
    import onnxproof

    if profile:
        watch.enable()
    proof = onnxproof.verify(model, path, inputs, dynamic_shapes=shapes, budget_s=budget)
    wall = time.perf_counter() - start
    if profile:
        watch.disable()
        stats = pstats.Stats(watch, stream=sys.stderr)
        stats.sort_stats("tottime").print_stats(45)
        stats.sort_stats("cumtime").print_stats("onnxproof", 60)
    spent = {key: seconds for key, seconds in proof.seconds.items() if key != "total"}
    return {
        "wall": wall,
        "forward": sum(spent.values()),
        "one_ms": one * 1000,
        "spent": spent,
        "passes": dict(proof.passes),
        "rss": peak_mb(),
        "verdict": proof.verdict.value,
        "largest": largest,
        "cases": len({gap.case for gap in proof.gaps}),
        "total": proof.seconds["total"],
    }


def _count(shape: Sequence[int]) -> int:
    size = 1 if shape else 0
    for side in shape:
        size *= side
    return size


def run_plain(name: str, path: Path, shape: Sequence[int]) -> dict[str, Any]:
    """The script that a user would write for the same three kinds of passes: module, its float64 copy, a session."""
    import copy

    import onnxruntime
    import torch

    model, inputs, _ = MODELS[name]()
    double = copy.deepcopy(model).double()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for x in (*inputs, torch.randn(*shape)):
        with torch.no_grad():
            reference = model(x).numpy()
            truth = double(x.double()).numpy()
        found = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        print(abs(reference - truth).max(), abs(found - truth).max(), file=sys.stderr)
    return {"rss": peak_mb()}


def peak_mb() -> float:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(*words: str, module: str = "bench.overhead", limit: float = 900.0) -> dict[str, Any]:
    """Run this module in a new process and read the JSON that it prints last."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        stdout=subprocess.PIPE,
        stderr=None if "--profile" in words else subprocess.PIPE,
        text=True,
        timeout=limit,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{(done.stderr or '')[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measure(name: str, folder: Path, budget: float, profile: bool) -> list[Bar]:
    """Time and memory of one model."""
    path = write(name, folder)
    ours = apart(
        "--child",
        "verify",
        name,
        str(path),
        "--budget",
        str(budget),
        *(["--profile"] if profile else []),
    )
    plain = apart(
        "--child", "plain", name, str(path), "--shape", ",".join(map(str, ours["largest"]))
    )
    nodes = _nodes(path)
    spent = ", ".join(
        f"{key} {seconds:.1f} s/{ours['passes'].get(key, 0)}"
        for key, seconds in ours["spent"].items()
    )
    return [
        Bar(
            what=f"{name}: forward pass of one case ({nodes} nodes)",
            measured=ours["one_ms"],
            bar=SLOW_MS,
            unit="ms",
            at_least=True,
            detail=ours["verdict"],
        ),
        Bar(
            what=f"{name}: verify / its forward passes",
            measured=ours["wall"] / ours["forward"],
            bar=TIME_BAR,
            detail=f"{ours['wall']:.1f} s / {ours['forward']:.1f} s, {ours['cases']} cases; {spent}",
        ),
        Bar(
            what=f"{name}: peak memory / plain script",
            measured=ours["rss"] / plain["rss"],
            bar=MEMORY_BAR,
            detail=f"{ours['rss']:.0f} MB / {plain['rss']:.0f} MB at {ours['largest']}",
        ),
    ]


def _nodes(path: Path) -> int:
    import onnx

    return len(onnx.load(path, load_external_data=False).graph.node)


def measure_help(runs: int = 15) -> Bar:
    """`onnxproof --help` against an empty Python, turn about."""
    script = Path(sys.executable).parent / "onnxproof"
    ask = (
        [str(script), "--help"]
        if script.exists()
        else [sys.executable, "-m", "onnxproof.cli", "--help"]
    )
    taken: Mapping[str, list[float]] = {"help": [], "pass": []}
    for _ in range(runs):
        for key, command in (("help", ask), ("pass", [sys.executable, "-c", "pass"])):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            taken[key].append(time.perf_counter() - start)
    ours, empty = statistics.median(taken["help"]), statistics.median(taken["pass"])
    return Bar(
        what="onnxproof --help / python -c pass",
        measured=ours / empty,
        bar=HELP_BAR,
        detail=f"{ours * 1000:.0f} ms / {empty * 1000:.0f} ms, medians of {runs}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every bar was met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help=f"comma-separated: {', '.join([*MODELS, 'help'])}"
    )
    parser.add_argument(
        "--budget", type=float, default=60.0, help="verify's budget_s; 60 is its default"
    )
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--shape", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        import torch

        torch.set_num_threads(
            1
        )  # for both sides alike: a shared machine makes more of them a lottery
        what, name, path = options.child
        found = (
            run_verify(name, Path(path), options.budget, options.profile)
            if what == "verify"
            else run_plain(name, Path(path), _shape(options.shape))
        )
        print(json.dumps(found))
        return 0
    chosen = options.only.split(",") if options.only else [*MODELS, "help"]
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            if name in chosen:
                bars += measure(name, Path(folder), options.budget, options.profile)
                print(show(bars[-3:]), flush=True)
    if "help" in chosen:
        bars.append(measure_help())
    print("\n" + show(bars))
    return int(not all(bar.met for bar in bars))


def _shape(text: str) -> list[int]:
    return [int(side) for side in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
