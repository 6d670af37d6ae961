"""The result of a model, made of what its process answered or of how that ended; the same for every engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxproof.suite import plan
from onnxproof.suite.expansion import Model
from onnxproof.suite.job import Outcome
from onnxproof.suite.plan import Planned
from onnxproof.suite.records import Measure, Result


def record(item: Planned, outcome: Outcome, files: plan.Files) -> Result:
    """The result of a model from what its process answered, or from how that ended."""
    answer: Mapping[str, Any] = outcome.answer or {"verdict": "error", "error": outcome.failure}
    observed = {files.name(Path(path)): hash for path, hash in answer.get("depends", {}).items()}
    backends = answer.get("backends", item.model.values.get("backends", ("ort",)))
    return Result(
        name=item.model.name,
        verdict=answer["verdict"],
        passed=answer.get("passed", False),
        backends=tuple(backends),
        noise_ratio=answer.get("noise_ratio"),
        quality=answer.get("quality"),
        duration_s=answer.get("duration_s", outcome.seconds),
        key=item.key,
        tags=item.model.tags,
        error=answer.get("error", "") or outcome.failure,
        expected=expected(item.model),
        proof=answer.get("proof"),
        measures=tuple(Measure(**measure) for measure in answer.get("measures", ())),
        summary=answer.get("summary", _first_line(outcome.failure)),
        cause=answer.get("cause", ""),
        peak_mb=outcome.peak / 1e6 or None,
        attempts=outcome.attempts,
        depends={**item.files, **observed},
    )


def _first_line(failure: str) -> str:
    """What an error says, without its code and its notes."""
    first = failure.partition("\n")[0]
    return first.partition("]: ")[2] or first


def expected(model: Model) -> dict[str, Any] | None:
    """The verdict that the manifest expects, for the store."""
    return model.expected.to_plain() if model.expected is not None else None
