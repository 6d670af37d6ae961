"""The samples of a quantization: those that recipes may look at, and those that only the end does."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxproof.quantization.calibration import batches, data_quality
from onnxproof.quantization.calibration.calibration_pass import Pass
from onnxproof.quantization.calibration.observe import is_held_out
from onnxproof.reference.protocol import open_reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding
from onnxproof.runtimes.session.execution import Clock

_KEPT = 512
"""Samples that are kept in memory for judging."""


@dataclass(slots=True)
class Samples:
    """The first samples, in memory: those that recipes may look at, and those that only the end does."""

    tuned: list[batches.Batch] = field(default_factory=list)
    held: list[batches.Batch] = field(default_factory=list)
    seen: Pass | None = None
    """The statistics of the pass over the calibration data, where there was one."""
    findings: list[Finding] = field(default_factory=list)
    """What the data gave cause to say."""

    def unseen(self) -> list[batches.Batch]:
        """What quality is asked on: samples that chose no range; where there are too few to tell anything, also inputs like those that did."""
        few = (
            not self.held
            or data_quality.count_distinct([*self.tuned, *self.held]) < data_quality.FEW
        )
        if few:
            return [*self.held, *batches.perturb(self.tuned)]
        return self.held

    def keeping(self, stream: Iterator[batches.Batch], few: int | None) -> Iterator[batches.Batch]:
        """Pass batches on, and keep the first."""
        count = 0
        for place, (label, batch) in enumerate(stream):
            if count < _KEPT and all(_is_finite(array) for array in batch.values()):
                kept = self.held if is_held_out(place, few) else self.tuned
                kept.append((label, batch))
                count += batches.count_samples(batch)
            yield label, batch


def _is_finite(array: Any) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def example_inputs(subject: Subject, ports: Any, *, quiet: bool = False) -> Any:
    """The example inputs by the graph's names."""
    made_up = subject.onnx is not None and not (subject.args or subject.kwargs)
    if quiet and made_up:
        return None
    example = open_reference(subject, Clock()).example()
    names = [port.name for port in ports]
    return dict(zip(names, example.values(), strict=False))
