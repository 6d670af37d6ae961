"""What was tried, kept on disk: a tuning that was stopped goes on where it was, since the same graph on the same samples scores the same."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx

from onnxproof.quantization.calibration.batches import Batch, digest
from onnxproof.quantization.workbench import Score
from onnxproof.system.writing import explain_write_errors


class Journal:
    """Scores by the hash of graph and samples; in memory alone where no path is given."""

    def __init__(self, path: Path | None, samples: Sequence[Batch]) -> None:
        self._path, self._known = path, _read(path)
        self._earlier = frozenset(self._known)
        self._samples = ""
        for _, batch in samples:
            self._samples = digest(self._samples, batch)
        self.tried = self.recalled = 0

    def recall(self, model: onnx.ModelProto) -> tuple[str, Score | None]:
        """The key of a graph, and its score if it is known."""
        key = hashlib.sha256(
            model.SerializeToString(deterministic=True) + self._samples.encode()
        ).hexdigest()
        self.tried += 1
        found = self._known.get(key)
        self.recalled += (
            key in self._earlier
        )  # one that this run has tried itself is not known from an earlier one
        return key, None if found is None else Score(sqnr_db=found[0], agreement=found[1])

    def timed(
        self, models: Sequence[onnx.ModelProto], measure: Callable[[], list[float]]
    ) -> list[float]:
        """Seconds of each graph, as they were measured first: a run that is taken up again chooses as it did before."""
        keys = [
            "time:" + hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
            for model in models
        ]
        if not all(key in self._known for key in keys):
            for key, seconds in zip(keys, measure(), strict=True):
                self.write(key, Score(sqnr_db=seconds, agreement=None))
        return [self._known[key][0] for key in keys]

    def write(self, key: str, score: Score) -> None:
        """Remember a score; a line is written whole or not at all."""
        self._known[key] = (score.sqnr_db, score.agreement)
        if self._path is not None:
            with (
                explain_write_errors(self._path, "the journal of trials"),
                self._path.open("a", encoding="utf-8") as stream,
            ):
                stream.write(json.dumps([key, score.sqnr_db, score.agreement]) + "\n")


def _read(path: Path | None) -> dict[str, tuple[float, float | None]]:
    if path is None or not path.is_file():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            key, level, agreement = json.loads(line)
            found[str(key)] = (float(level), None if agreement is None else float(agreement))
        except (
            ValueError,
            TypeError,
        ):  # the line at which the last run was stopped, or a damaged one: it is tried again
            continue
    return found
