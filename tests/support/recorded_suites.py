"""Histories of suites that nobody ran: many models, jitter, one regression, a new version, reports to open."""

from pathlib import Path

import numpy as np
from support.made_proofs import HOSTILE, hostile, large

from onnxproof.report.writers import json as proofs
from onnxproof.suite.records import Measure, Result, Run
from onnxproof.suite.store import Store


def record(path: Path, *, models: int = 40, runs: int = 12) -> Path:
    """From run 9 on `model-0007` diverges, with onnxruntime 1.31.1; the last run has proofs of three models, one of them hostile."""
    rng = np.random.default_rng(0)
    stored = {
        "model-0007": proofs.to_dict(large(60, ("ort",), 30)),
        "model-0001": proofs.to_dict(large(20, ("ort",), 5)),
    }
    with Store(path, write=True) as store:
        store._database.execute("PRAGMA synchronous=OFF")  # quick: nobody pulls the plug
        for number in range(1, runs + 1):
            run = store.begin(
                Run(
                    id=0,
                    suite="nightly",
                    started=f"2026-03-{number:02}T02:00:00Z",
                    commit_id=f"{number * 7919:040x}",
                    versions={"onnxruntime": "1.30.0" if number < 9 else "1.31.1"},
                )
            )
            for place in range(models):
                store.add(run.id, _result(place, number, runs, rng, stored))
            if number == runs:
                store.add(
                    run.id,
                    Result(
                        name=HOSTILE[0],
                        verdict="error",
                        error=HOSTILE[1],
                        tags=(HOSTILE[0],),
                        proof=proofs.to_dict(hostile()),
                    ),
                )
            store.finish(run.id)
    return path


def _result(
    place: int, number: int, runs: int, rng: np.random.Generator, stored: dict[str, object]
) -> Result:
    name = f"model-{place:04}"
    ratio = float(2.0 * 10 ** rng.normal(0, 0.05))
    verdict = "faithful"
    if place == 7 and number >= 9:
        ratio, verdict = ratio * 900, "diverged"
    elif place % 11 == 5:
        ratio, verdict = ratio * 9, "drift"
    proof = stored.get(name) if number == runs else None
    return Result(
        name=name,
        verdict=verdict,
        backends=("ort", "openvino"),
        noise_ratio=ratio,
        duration_s=1.0 + place % 7,
        key=f"{place}-{number >= 9}",
        tags=("vision",) if place % 2 else ("text", "nightly"),
        passed=verdict != "diverged",
        summary=f"{name}.onnx: at most {ratio:.1f} times the rounding noise",
        proof=proof,  # type: ignore[arg-type]
        measures=tuple(
            Measure(
                backend=backend,
                verdict=verdict,
                noise_ratio=ratio * factor,
                latency_ms=3.0 * factor,
            )
            for backend, factor in (("ort", 1.0), ("openvino", 1.3))
        ),
    )
