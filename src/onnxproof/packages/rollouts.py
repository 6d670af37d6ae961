"""Rollouts of a folder, by the roller that single files have: what it is fed with, and the sides that take part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy
from onnxproof.packages.package import Package
from onnxproof.packages.schedules import Feeder
from onnxproof.packages.sides import FolderSide, HuggingFaceSide
from onnxproof.results import Gap, Rollout
from onnxproof.system.deadline import Deadline
from onnxproof.verification.rollout.confirmed_rolls import roll_confirmed, summarize
from onnxproof.verification.rollout.rolling import Roller, Sides
from onnxproof.verification.rollout.schedules import Schedule

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Rolled:
    """What one rollout gave."""

    rollout: Rollout
    gap: Gap | None = None
    """The worst of its steps."""
    file: str = ""
    """The file that was called at the first bad step."""
    refused: str = ""
    """Why the reference did not go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCalls:
    """How the whole model is called; its caches are its own business."""

    model: Any
    seed: int
    answers: tuple[str, ...] = ("logits",)
    logits: str | None = "logits"
    state_names: tuple[str, ...] = ()

    def held(self, states: Mapping[str, Array]) -> int:
        """Nobody asks: the sides know how much they hold."""
        return 0

    def feeding(self, schedule: Schedule) -> Feeder:
        """What a rollout of this schedule is fed with."""
        return Feeder(self.model, schedule, self.seed)


class FolderRoller:
    """Runs the rollouts of one folder on one backend."""

    def __init__(self, model: Any, sides: Sides, policy: Policy, seed: int) -> None:
        self._model, self._sides, self._seed = model, sides, seed
        self._roller = Roller(FolderCalls(model=model, seed=seed), policy)

    def roll(self, schedule: Schedule, deadline: Deadline) -> Rolled:
        """Run a schedule; what looks wrong is measured again beside other roundings of the reference."""
        rolled = roll_confirmed(self._roller, schedule, self._sides, deadline, self._reruns)
        return Rolled(
            rollout=summarize(rolled, self._sides.backend),
            gap=rolled.worst.get("logits"),
            file=rolled.file,
            refused=rolled.refused,
        )

    def _reruns(self, count: int) -> list[HuggingFaceSide]:
        return [HuggingFaceSide(self._model, jitter=1000 * k + 1) for k in range(count)]


def taking_part(
    package: Package,
    model: Any,
    sides: tuple[HuggingFaceSide, HuggingFaceSide, FolderSide],
    backend: str,
    policy: Policy,
) -> Sides:
    """All sides of a rollout: with the model in half precision for files in half, by quality for quantized ones."""
    files = [onnx_file.read(part.path) for part in package.components]
    halves: Sequence[str] = sorted({file.half for file in files if file.half is not None})
    reference, truth, candidate = sides
    return Sides(
        reference=reference,
        truth=truth,
        candidate=candidate,
        noisy=tuple(HuggingFaceSide(model, half=half) for half in halves),
        backend=backend,
        allowed_db=policy.drift_db if any(file.quantized for file in files) else None,
        shares_states=False,
    )
