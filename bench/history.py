"""A planted regression in recorded runs: is it named with its run, and is anything else?

    python -m bench.history --seeds 200

Each seed is a history of 30 runs of 40 models, written to a store and read again. The noise ratios jitter (each model by its own amount, of the kind in
the table). In one run the file of one model changes: its ratio grows by the factor, for that run alone (`blip`) or from then on (`step`).
`quiet` histories have no planted change: what is named there is a false alarm.
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

from onnxproof.suite import history, series
from onnxproof.suite.records import Measure, Result, Run
from onnxproof.suite.store import Store

RUNS, MODELS = 30, 40
JITTERS = ("normal", "laplace", "t3", "two-levels", "equal")
Array = np.ndarray


def jitter(kind: str, rng: np.random.Generator) -> Array:
    """Factors, models by runs; the deviation of a model's logarithm is 0.01 to 0.15 decades."""
    size = (MODELS, RUNS)
    spread = rng.uniform(0.01, 0.15, (MODELS, 1))
    if kind == "equal":  # half of the models always give the same number
        spread = spread * (rng.random((MODELS, 1)) < 0.5)
        noise = rng.standard_normal(size)
    elif kind == "laplace":
        noise = rng.laplace(size=size) / 2**0.5
    elif kind == "t3":
        noise = rng.standard_t(3, size=size) / 3**0.5
    elif kind == "two-levels":
        noise = np.where(rng.random(size) < 0.2, 3.0, 0.0) + rng.standard_normal(size) / 2
    else:
        noise = rng.standard_normal(size)
    return 10 ** (spread * noise)


def record(path: Path, ratios: Array, planted: tuple[int, int, int] | None) -> None:
    """A store of these ratios; `planted` is the model, its first run and the end of the change."""
    with Store(path, write=True) as store:
        store._database.execute(
            "PRAGMA synchronous=OFF"
        )  # 1,200 commits that nobody needs to survive
        for place in range(RUNS):
            run = store.begin(
                Run(
                    id=0,
                    suite="planted",
                    started=f"2026-01-{place + 1:02}T00:00:00Z",
                    commit_id=f"c{place}",
                    versions={"onnxruntime": "1.31.1"},
                )
            )
            for model in range(MODELS):
                changed = (
                    planted is not None and planted[0] == model and planted[1] <= place < planted[2]
                )
                ratio = float(ratios[model, place])
                store.add(
                    run.id,
                    Result(
                        name=f"m{model}",
                        verdict="faithful",
                        noise_ratio=ratio,
                        key=f"k{model}{changed}",
                        depends={f"m{model}.onnx": f"hash{changed}"},
                        measures=(Measure(backend="ort", verdict="faithful", noise_ratio=ratio),),
                    ),
                )
            store.finish(run.id)


def named(path: Path) -> set[tuple[str, int]]:
    """Models and runs that the history names as worse."""
    with Store(path) as store:
        found = history.examine(series.read(store))
    return {(move.model, move.run) for move in found.moves if move.worse}


def one(seed: int, kind: str, shape: str, factor: float, folder: Path) -> tuple[bool, int]:
    """Whether the planted change is named with its run, and how many other models are named."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.8, 4.0, (MODELS, 1))
    ratios = base * jitter(kind, rng)
    planted = None
    if shape != "quiet":
        model, start = int(rng.integers(MODELS)), int(rng.integers(5, RUNS))
        end = start + 1 if shape == "blip" else RUNS
        ratios[model, start:end] *= factor
        planted = (model, start, end)
    path = folder / f"{seed}-{kind}-{shape}-{factor}.sqlite"
    record(path, ratios, planted)
    found = named(path)
    path.unlink()
    if planted is None:
        return True, len({model for model, _ in found})
    expected = (f"m{planted[0]}", planted[1] + 1)
    return expected in found, len({model for model, _ in found} - {expected[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=40)
    arguments = parser.parse_args()
    print(f"{RUNS} runs of {MODELS} models, {arguments.seeds} seeds each")
    print("| jitter | change | factor | named with its run | histories with another model named |")
    print("| --- | --- | ---: | ---: | ---: |")
    shapes = [("quiet", 1.0), *itertools.product(("blip", "step"), (2.0, 4.0, 30.0))]
    with tempfile.TemporaryDirectory() as folder:
        for kind, (shape, factor) in itertools.product(JITTERS, shapes):
            results = [
                one(seed, kind, shape, factor, Path(folder)) for seed in range(arguments.seeds)
            ]
            hits = sum(hit for hit, _ in results)
            others = sum(other > 0 for _, other in results)
            share = "" if shape == "quiet" else f"{hits}/{len(results)}"
            print(
                f"| {kind} | {shape} | {factor:g} | {share} | {others}/{len(results)} |", flush=True
            )


if __name__ == "__main__":
    main()
