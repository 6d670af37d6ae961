"""A model with more than 2 GB of weights, really exported and verified: `python -m bench.export_large [--gigabytes 2.2]`.

Part of `make bench-export`, not of the tests: it needs about ten times the weights in memory (the module, its float64 truth, the runtime) and some minutes.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import onnx
import torch
from torch import nn

import onnxproof
from bench.quantize import peak_kb
from onnxproof import inspection
from onnxproof.options import ExportOptions


class Wide(nn.Module):
    """Two matrices that are a gigabyte each, and little arithmetic."""

    def __init__(self, gigabytes: float) -> None:
        super().__init__()
        inner = int(gigabytes * 2**30 / 4 / 2 / 4096)
        self.up, self.down = nn.Linear(4096, inner), nn.Linear(inner, 4096)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--gigabytes", type=float, default=2.2)
    given = words.parse_args()
    torch.manual_seed(0)
    module = Wide(given.gigabytes).eval()
    weight = sum(p.numel() * p.element_size() for p in module.parameters())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wide.onnx"
        start = time.perf_counter()
        proof = onnxproof.export(
            module,
            (torch.randn(2, 4096),),
            path,
            budget_s=20,
            explain=False,
            options=ExportOptions(),
        )
        seconds = time.perf_counter() - start
        files = {file.name: file.stat().st_size for file in sorted(Path(folder).iterdir())}
        print(
            f"{weight / 1e9:.2f} GB of weights: {proof.verdict.value}, {len({gap.case for gap in proof.gaps})} cases; "
            f"exported in {proof.export.seconds:.0f} s, verified after {seconds:.0f} s, peak {peak_kb() / 2**20:.1f} GB; files {files}"
        )
        onnx.checker.check_model(str(path))
        seen = inspection.inspect(path)
        print("inspect:", ", ".join(f"{check.name} {check.rating}" for check in seen.checks))
        good = (
            proof.verdict.value == "faithful"
            and proof.export.choices["external data"] == "yes"
            and files["wide.onnx.data"] > 2**31
        )
    print("met" if good else "MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
