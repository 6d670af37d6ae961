"""Bundles: how large, how long to write, what a replay costs beyond its forward passes, and the verdict on every target.

`python -m bench.bundle --python /usr/bin/python3.9 --python ...` also runs `replay.py` in these environments, which need numpy and onnxruntime.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import onnxproof
from onnxproof import runtimes
from onnxproof.errors import OnnxproofError
from onnxproof.results.proof import Proof
from onnxproof.testing import adds_noise, fake_backend

TARGETS = (
    "ort",
    "ort@1.23.2",
    "openvino",
    "tract",
    "opencv",
    "ort-node",
    "ort-web",
    "ort-web:chromium",
)


class Tiny(nn.Module):
    """A pass of some microseconds: all that is not the pass shows."""

    example = (torch.randn(4, 16),)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class ConvNet(nn.Module):
    """A pass of some milliseconds, as small vision models have."""

    example = (torch.randn(1, 3, 64, 64),)

    def __init__(self) -> None:
        super().__init__()
        channels = [3, 32, 64, 128, 128]
        pairs = itertools.pairwise(channels)
        layers = [[nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()] for a, b in pairs]
        self.body = nn.Sequential(*[layer for block in layers for layer in block])
        self.head = nn.Linear(128, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(image).mean((2, 3)))


def measure(kind: type[nn.Module], folder: Path, budget_s: float) -> tuple[Path, Proof]:
    """Verify, bundle, replay; prints the figures."""
    torch.manual_seed(0)
    module, path = kind().eval(), folder / f"{kind.__name__}.onnx"
    onnxproof.export(module, kind.example, path, dynamic_shapes=({0: "batch"},), budget_s=1)
    start = time.perf_counter()
    proof = onnxproof.verify(
        module,
        path,
        kind.example,
        dynamic_shapes=({0: "batch"},),
        budget_s=budget_s,
        explain=False,
    )
    verified = time.perf_counter()
    bundle = proof.to_bundle(path.with_suffix(".proof"))
    written = time.perf_counter()
    replayed = onnxproof.replay(bundle)
    # What is paid once: reading the bundle, opening sessions, and for a case with an empty input the process that it runs in.
    once = ["example", *(name for name, sizes in replayed.sizes.items() if 0 in sizes.values())]
    fixed = onnxproof.replay(bundle, only=once[:2])
    total = replayed.seconds["total"]
    beyond = total - fixed.seconds["total"]
    passes = forward_s(replayed)
    print(
        f"{kind.__name__}: {proof.verdict.value}, {len(replayed.sizes)} of {len(proof.sizes)} cases, "
        f"{bundle.stat().st_size / 1e6:.2f} MB, verified in {verified - start:.2f} s, "
        f"written in {written - verified:.2f} s ({(written - verified) / (verified - start):.2f} of it), "
        f"replayed in {total:.2f} s, of which {fixed.seconds['total']:.2f} s are paid once and {passes:.2f} s are passes; "
        f"a further case costs {beyond / (passes - forward_s(fixed)):.2f} times its pass, all together {total / passes:.2f} times the passes"
    )
    return bundle, replayed


def forward_s(proof: Proof) -> float:
    """Seconds of forward passes."""
    return sum(seconds for name, seconds in proof.seconds.items() if name != "total")


def verdicts(bundle: Path) -> Iterator[tuple[str, str]]:
    """The verdict on every target that is installed, one by one, and on one that is off by a little."""
    for target in TARGETS:
        try:
            runtimes.require(target)
            yield target, onnxproof.replay(bundle, backends=(target,)).verdict.value
        except OnnxproofError as why:
            yield target, f"({why.code})"
    with fake_backend("off-by-one", adds_noise(1.0)):
        yield "a planted fault", onnxproof.replay(bundle, backends=("off-by-one",)).verdict.value


def bare(bundle: Path, python: str, folder: Path) -> str:
    """What `replay.py` says in another environment."""
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    about = "import sys, numpy, onnxruntime; print(sys.version.split()[0], numpy.__version__, onnxruntime.__version__)"
    versions = subprocess.run([python, "-c", about], capture_output=True, text=True, check=True)
    model = bundle.with_suffix(".onnx")
    words = [python, str(folder / "replay.py"), str(model)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    last = (done.stdout + done.stderr).strip().splitlines()[-1]
    return f"python, numpy, onnxruntime {versions.stdout.strip()}: exit {done.returncode}, {last}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--budget", type=float, default=20.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle, _ = measure(Tiny, folder, options.budget)
        measure(ConvNet, folder, options.budget)
        for target, verdict in verdicts(bundle):
            print(f"  {target}: {verdict}", flush=True)
        for place, python in enumerate(options.python):
            print(" ", bare(bundle, python, folder / str(place)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
