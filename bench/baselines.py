"""How much the noise ratios of healthy models move between runs that should agree: the evidence for the baseline's factor.

Each model is verified with three seeds, and once without the runtime's optimisers (as a stand-in for another runtime). For every pair
the growth is measured as `onnxproof.verification.baseline` measures it: now / max(then, 1), the largest over outputs, and over nodes.
"""

import argparse
import importlib
import itertools
import pkgutil
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

import bench.clean
import onnxproof
from onnxproof.verification import baseline


def runs(name: str, folder: Path, budget_s: float) -> dict[str, baseline.Baseline]:
    built = importlib.import_module(f"bench.clean.{name}").build(folder)

    def one(seed: int, backend: str) -> baseline.Baseline:
        proof = onnxproof.verify(
            built.model,
            built.correct,
            built.example_inputs,
            dynamic_shapes=built.dynamic_shapes,
            seed=seed,
            backends=(backend,),
            budget_s=budget_s,
            explain=False,
            profile=True,
        )
        found = baseline.of(proof)
        return replace(
            found, outputs={("any", output): ratio for (_, output), ratio in found.outputs.items()}
        )

    return {
        "seed 0": one(0, "ort"),
        "seed 1": one(1, "ort"),
        "seed 2": one(2, "ort"),
        "unoptimised": one(0, "ort:disabled"),
    }


def growth(then: dict[object, float], now: dict[object, float]) -> float:
    return max((now[key] / max(then[key], 1.0) for key in then if key in now), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=5, help="take every n-th healthy model")
    parser.add_argument("--budget", type=float, default=5.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [
        info.name
        for info in pkgutil.iter_modules(bench.clean.__path__)
        if not info.name.startswith("_")
    ][:: options.every]
    seeds, runtimes, nodes = [], [], []
    print(
        "| model | outputs, other seed | outputs, unoptimised | nodes |\n| --- | ---: | ---: | ---: |",
        flush=True,
    )
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = runs(name, Path(folder), options.budget)
            except Exception as why:  # a model that needs a package which is not here
                print(f"| {name} | {type(why).__name__} | | |", flush=True)
                continue
        plain = found.pop("unoptimised")
        pairs = list(itertools.permutations(found.values(), 2))
        same = [(found["seed 0"], plain), (plain, found["seed 0"])]
        seeds.append(max(growth(dict(a.outputs), dict(b.outputs)) for a, b in pairs))
        runtimes.append(max(growth(dict(a.outputs), dict(b.outputs)) for a, b in same))
        nodes.append(max(growth(dict(a.nodes), dict(b.nodes)) for a, b in pairs + same))
        print(f"| {name} | {seeds[-1]:.2f} | {runtimes[-1]:.2f} | {nodes[-1]:.2f} |", flush=True)
    for what, grew in (
        ("outputs, other seed", seeds),
        ("outputs, same seed, unoptimised", runtimes),
        ("nodes", nodes),
    ):
        print(
            f"\n{what}: median {statistics.median(grew):.2f}, largest {max(grew):.2f} of {len(grew)} models",
            flush=True,
        )


if __name__ == "__main__":
    main()
