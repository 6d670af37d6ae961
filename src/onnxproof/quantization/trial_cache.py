"""Scores of trials, kept on disk: a tuning that was stopped goes on where it was, since the same graph on the same samples scores the same."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from onnxproof.onnxmodel import large_models
from onnxproof.quantization.calibration.batches import Batch, extend_digest
from onnxproof.quantization.scoring import Score
from onnxproof.system.writing import explain_write_errors


class TrialCache:
    """Scores by the hash of graph and samples; in memory alone where no path is given."""

    def __init__(self, path: Path | None, samples: Sequence[Batch]) -> None:
        self._path = path
        self._scores = _read(path)
        self._costs = _read_costs(path)
        self._from_earlier_runs = frozenset((*self._scores, *self._costs))
        self._samples_hash = ""
        for _, batch in samples:
            self._samples_hash = extend_digest(self._samples_hash, batch)
        self.tried = 0
        self.recalled = 0
        """Graphs that an earlier run has scored; one that this run has tried itself is not counted."""

    def look_up(self, model: onnx.ModelProto) -> tuple[str, Score | None]:
        """The key of a graph, and its score if it is known."""
        content = large_models.digest(model) + self._samples_hash
        key = hashlib.sha256(content.encode()).hexdigest()
        self.tried += 1
        self.recalled += key in self._from_earlier_runs
        return key, self._scores.get(key)

    def recall_latencies(
        self, models: Sequence[onnx.ModelProto], measure: Callable[[], list[float]]
    ) -> list[float]:
        """Seconds of each graph, as they were measured first: a run that is taken up again chooses as it did before."""
        keys = [f"time:{large_models.digest(model)}" for model in models]
        if not all(key in self._scores for key in keys):
            for key, seconds in zip(keys, measure(), strict=True):
                self.write(key, Score(sqnr_db=seconds, agreement=None))
        return [self._scores[key].sqnr_db for key in keys]

    def recall_costs(
        self, model: onnx.ModelProto, samples: Sequence[Batch], measure: Callable[[], list[float]]
    ) -> list[float]:
        """What a graph costs, sample by sample."""
        digest = large_models.digest(model)
        for _, batch in samples:
            digest = extend_digest(digest, batch)
        key = f"costs:{digest}"
        self.tried += 1
        self.recalled += key in self._from_earlier_runs
        if key not in self._costs:
            self._costs[key] = measure()
            self._append([key, self._costs[key]])
        return self._costs[key]

    def write(self, key: str, score: Score) -> None:
        """Remember a score."""
        self._scores[key] = score
        self._append([key, score.sqnr_db, score.agreement])

    def _append(self, record: list[Any]) -> None:
        """A line is written whole or not at all."""
        if self._path is None:
            return
        with (
            explain_write_errors(self._path, "the journal of trials"),
            self._path.open("a", encoding="utf-8") as stream,
        ):
            stream.write(json.dumps(record) + "\n")


def _read_costs(path: Path | None) -> dict[str, list[float]]:
    """Costs by sample of earlier runs; other lines are scores, or damaged."""
    if path is None or not path.is_file():
        return {}
    costs = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            key, numbers = json.loads(line)
            costs[str(key)] = [float(number) for number in numbers]
        except (ValueError, TypeError):
            continue
    return costs


def _read(path: Path | None) -> dict[str, Score]:
    """The scores of earlier runs; a damaged line (the last run may have been stopped within it) is left out and tried again."""
    if path is None or not path.is_file():
        return {}
    scores = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            key, level, agreement = json.loads(line)
            if agreement is not None:
                agreement = float(agreement)
            scores[str(key)] = Score(sqnr_db=float(level), agreement=agreement)
        except (ValueError, TypeError):
            continue
    return scores
