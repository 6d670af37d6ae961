"""Drawing mutants from a seed: a kind, a model, a place in it; what the judge does not call a fault is drawn again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import onnx

from bench.mutants import cache, judge
from bench.mutants.graph import Graph
from bench.mutants.mutation import KINDS, TWINS, Change, Mutation

PLACES = 3
"""How often a kind is tried in one model before another model is drawn."""
MODELS = 12
"""How many models are tried for a kind before another kind is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed file that the judge has seen."""

    subject: str
    mutation: Mutation
    model: onnx.ModelProto
    movement: float
    """How far the answers moved, in multiples of the healthy file's noise."""


@dataclass(slots=True)
class Workshop:
    """The subjects that changes are drawn for; files are read once."""

    folder: Path
    health: Mapping[str, cache.Health]
    _prepared: dict[str, cache.Prepared]

    @classmethod
    def of(cls, folder: Path, health: Sequence[cache.Health]) -> "Workshop":
        """A workshop with the usable ones."""
        return cls(folder, {one.name: one for one in health if one.usable}, {})

    def prepared(self, name: str) -> cache.Prepared:
        """The healthy file and its answers."""
        if name not in self._prepared:
            self._prepared[name] = cache.load(self.health[name], self.folder)
        return self._prepared[name]

    def change(self, subject: str, change: Change, rng: Random) -> Mutant | None:
        """One change in one subject as the judge sees it; None where it does not apply or the file no longer runs."""
        healthy = self.prepared(subject)
        model = onnx.ModelProto()
        model.CopyFrom(healthy.model)
        del model.graph.value_info[:]
        mutation = change(Graph(model, healthy.feeds[0]), rng)
        if mutation is None:
            return None
        try:
            onnx.checker.check_model(model)
            answers = judge.run(model, healthy.feeds)
        except Exception:  # the runtime and the checker have exceptions of their own
            return None
        moved = judge.movement(healthy.answers, answers, healthy.health.noise)
        return Mutant(subject=subject, mutation=mutation, model=model, movement=moved)

    def draw(
        self, seed: int, index: int, *, healthy: bool = False, only_kind: str = ""
    ) -> Mutant | None:
        """The mutant, or the healthy twin, of this seed and index."""
        rng = Random(f"{seed}/{index}/{healthy}")
        register = TWINS if healthy else KINDS
        kinds = sorted(name for name in register if only_kind in name)
        rng.shuffle(kinds)
        for name in kinds:
            subjects = sorted(self.health)
            rng.shuffle(subjects)
            found = self._draw_kind(register[name], subjects[:MODELS], rng, healthy)
            if found is not None:
                return found
        return None

    def _draw_kind(
        self, change: Change, subjects: Sequence[str], rng: Random, healthy: bool
    ) -> Mutant | None:
        for subject in subjects:
            for _ in range(PLACES):
                mutant = self.change(subject, change, rng)
                if mutant is None:
                    break
                if self.accepts(mutant, healthy=healthy):
                    return mutant
        return None

    def accepts(self, mutant: Mutant, *, healthy: bool) -> bool:
        """Whether the answers moved as far as a fault's do, or as little as a healthy twin's."""
        health = self.health[mutant.subject]
        if healthy:
            return mutant.movement <= health.healthy
        return mutant.movement > health.fault
