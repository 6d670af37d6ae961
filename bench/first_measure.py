"""How far from the truth healthy models look before their noise is measured again, in units of the limit: the evidence for `case_runner._PLAIN`.

    python -m bench.first_measure [--only NAME] [--jobs 2]

Only gaps that `allclose` fails, of models whose graphs decide nothing, could be called wrong after a single re-run.
"""

import argparse
import concurrent.futures
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path


def one(name: str) -> float:
    """The largest ratio of one healthy model, before any re-run."""
    import onnxproof
    from onnxproof.results.judging import within_tolerance
    from onnxproof.verification.case_runner import Trial

    largest = [0.0]
    measured = Trial._confirmable

    def watch(trial, gap, base):  # type: ignore[no-untyped-def]
        if (
            not trial._decides
            and gap.domain is None
            and not base.confirmed
            and not within_tolerance(gap, trial._policy)
        ):
            largest[0] = max(largest[0], gap.noise_ratio / trial._policy.noise_limit)
        return measured(trial, gap, base)

    Trial._confirmable = watch  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        built = importlib.import_module(f"bench.clean.{name}").build(Path(folder))
        onnxproof.verify(
            built.model,
            built.correct,
            built.example_inputs,
            dynamic_shapes=built.dynamic_shapes,
            explain=False,
        )
    return largest[0]


def main() -> None:
    """One row a model, the largest last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--child")
    asked = parser.parse_args()
    if asked.child:
        print(f"RATIO {one(asked.child)}")
        return
    names = [
        file.stem
        for file in sorted((Path(__file__).parent / "clean").glob("[a-z]*.py"))
        if asked.only in file.stem
    ]

    def apart(name: str) -> tuple[str, float]:
        done = subprocess.run(
            [sys.executable, "-m", "bench.first_measure", "--child", name],
            capture_output=True,
            text=True,
            check=False,
        )
        found = [line for line in done.stdout.splitlines() if line.startswith("RATIO ")]
        return name, float(found[0].split()[1]) if found else float("nan")

    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        rows = sorted(pool.map(apart, names), key=lambda row: row[1])
    for name, ratio in rows:
        print(f"{name:<40} {ratio:8.2f}")


if __name__ == "__main__":
    main()
