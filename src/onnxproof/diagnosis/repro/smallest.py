"""The smallest part of a model that still shows the fault: grown from the guilty node until it shows, then every node left out that is not needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.diagnosis.repro.submodel import (
    InnerValues,
    Repro,
    SubModel,
    error_of,
    is_integer,
    plain,
    run,
)
from onnxproof.diagnosis.repro.true_values import TrueValues
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, consumed_names
from onnxproof.results import Stage, Status
from onnxproof.runtimes import parse

Array = np.ndarray[Any, Any]
_MOST_ROUNDS = 12
"""Times that the region grows, by its consumers and its producers in turn. Not measured."""
_MOST_TRIALS = 40
"""Sub-models of one node that are tried, and nodes that are tried to be left out. Not measured."""
_MOST_OUTPUTS = 4
_LIKE = 4.0
"""The error of the sub-model may be this many times larger or smaller than it was in the whole model. Not measured."""
_LEAST_NOISE = 1e-7


class Search:
    """Looks for the smallest sub-model that shows the fault."""

    def __init__(self, scene: Scene, located: Located) -> None:
        self._scene = scene
        self._where = located.location
        self._graph = Graph.of(scene.file)
        self._refused = scene.gap is not None and scene.gap.status is Status.REFUSED
        self._values = InnerValues(scene, self._graph, readable=not self._refused)
        self._truth = TrueValues(scene, located, self._graph, self._values, refused=self._refused)
        self._limit = limits.error_limit(scene.noise)

    def smallest(self) -> Repro:
        """The first region that shows it, then with every node left out that is not needed."""
        for places in self._regions():
            for level in self._levels():
                repro = self._try(places, level)
                if repro is not None:
                    return self._shrink(repro)
        raise OnnxproofError(
            "no-repro",
            "no part of the model, nor all of it, shows the fault on onnxruntime alone",
            where=str(self._scene.path),
            notes=[f"the fault was seen on {self._scene.backend}, case `{self._scene.case.name}`"],
            help="send the whole model with the proof's replay line",
        )

    def _levels(self) -> list[str]:
        """The optimisation levels to try, the served one first."""
        served = parse(self._scene.backend)[1]
        if served not in ("basic", "extended", "disabled"):
            served = "all"
        if self._where.stage is Stage.OPTIMIZER:
            return [served]
        return list(dict.fromkeys((served, "all", "disabled")))

    def _regions(self) -> Iterator[list[int]]:
        """From the guilty node alone to the whole model.

        1. A fault of the signature or a refusal shows at the outputs: all that follows from the guilty node.
        2. Else the guilty nodes with more and more neighbours; without one, for an optimizer, each node alone.
        3. All that follows from the guilty nodes, then the whole model.
        """
        guilty = self._guilty_nodes()
        whole = list(range(len(self._graph.nodes)))
        at_outputs = self._where.stage is Stage.SIGNATURE or self._refused
        if not at_outputs:
            if guilty:
                yield from self._growing_regions(set(guilty))  # step 2
            elif self._where.stage is Stage.OPTIMIZER:
                yield from ([place] for place in whole[:_MOST_TRIALS])
        if guilty:
            yield self._with_descendants(guilty)  # steps 1 and 3
        if whole or not at_outputs:
            yield whole

    def _growing_regions(self, region: set[int]) -> Iterator[list[int]]:
        """The region with its consumers, then with its producers, in turn."""
        for turn in range(_MOST_ROUNDS):
            yield sorted(region)
            if turn % 2 == 0:
                region = region | self._consumers(region)
                continue
            grown = region | self._producers(region)
            if grown == region:
                break
            region = grown

    def _guilty_nodes(self) -> list[int]:
        """The guilty node, or all that an optimizer changed; a node inside another goes with that one."""
        places = range(len(self._graph.nodes))
        in_main_graph = {self._graph.name(place) for place in places}
        names = [name for name in self._where.nodes if name in in_main_graph]
        if self._where.stage is not Stage.OPTIMIZER:
            names = names[:1]
        return [place for place in places if self._graph.name(place) in names]

    def _consumers(self, region: set[int]) -> set[int]:
        """The nodes that read what the region computes."""
        outputs = (name for place in region for name in self._graph.nodes[place].output if name)
        return {consumer for name in outputs for consumer in self._graph.consumers(name)}

    def _producers(self, region: set[int]) -> set[int]:
        """The nodes that compute what the region reads, constants left out."""
        consumed = (name for p in region for name in consumed_names(self._graph.nodes[p]))
        producers = {self._graph.producers.get(name) for name in consumed}
        return {p for p in producers if p is not None and not self._values.is_constant(p)}

    def _with_descendants(self, guilty: Sequence[int]) -> list[int]:
        """The guilty nodes and all that follows from them."""
        region = set(guilty)
        for place in range(min(guilty), len(self._graph.nodes)):
            consumed = consumed_names(self._graph.nodes[place])
            if any(self._graph.producers.get(name) in region for name in consumed):
                region.add(place)
        return sorted(region)

    def _try(self, places: Sequence[int], level: str) -> Repro | None:
        """The sub-model of these nodes, if it can be made and shows the fault by itself, at a like size.

        1. Run it, and compare its outputs with the truth.
        2. Keep the outputs that are most wrong, and the nodes that they need.
        3. Where nodes were left out, run it again.
        """
        try:
            submodel = self._values.cut(places)
            truth = self._known_truth(submodel)
            answers, refusal = run(submodel, level)  # step 1
        except (OnnxproofError, ValueError, TypeError):
            return None
        if refusal and not self._refused:
            return None
        errors = {name: error_of(answers.get(name), true) for name, true in truth.items()}
        wrong = self._most_wrong(errors, truth)
        if not wrong:
            return None
        lean = Repro(  # step 2
            submodel=self._values.cut(self._values.needed(places, wrong), wrong),
            level=level,
            truth={name: truth[name] for name in wrong},
            answers={name: answers[name] for name in wrong if name in answers},
            limits={name: self._threshold(errors[name], truth[name]) for name in wrong},
            refusal=refusal,
        )
        if set(lean.submodel.places) == set(places):
            return lean
        return self._check(lean)  # step 3

    def _most_wrong(self, errors: Mapping[str, float], truth: Mapping[str, Array]) -> list[str]:
        """The outputs that show the fault, most wrong first."""
        wrong = [name for name in truth if self._is_shown(name, errors[name], truth[name])]
        wrong.sort(key=lambda name: -errors[name])
        return wrong[:_MOST_OUTPUTS]

    def _known_truth(self, submodel: SubModel) -> dict[str, Array]:
        """The truth for the outputs of a sub-model, in dtypes of numpy."""
        truth: Mapping[str, Array] = self._truth.of(submodel)
        return {name: plain(true) for name, true in truth.items() if name in submodel.outputs}

    def _check(self, repro: Repro) -> Repro | None:
        """The same, if it still is as wrong after nodes were left out."""
        try:
            answers, refusal = run(repro.submodel, repro.level)
        except OnnxproofError:
            return None
        if bool(refusal) != bool(repro.refusal):
            return None
        for name, true in repro.truth.items():
            before = error_of(repro.answers.get(name), true)
            if not _alike(error_of(answers.get(name), true), before):
                return None
        return replace(repro, answers=answers)

    def _is_shown(
        self,
        name: str,
        error: float,
        truth: Array,
    ) -> bool:
        """Wrong beyond rounding, and about as wrong as in the whole model, where that is known."""
        limit = 0.0 if is_integer(truth) else self._limit
        if error <= limit:
            return False
        if self._where.stage in (Stage.OPTIMIZER, Stage.SIGNATURE) or self._refused:
            return True
        in_whole_model = self._values.get([name]).get(name)
        if in_whole_model is None:
            return True
        return _alike(error, error_of(plain(in_whole_model), truth))

    def _threshold(self, error: float, truth: Array) -> float:
        """Half-way, on a logarithmic scale, between rounding and the fault."""
        if is_integer(truth):
            return 0.0
        if not np.isfinite(error):
            return float(self._limit)
        noise = max(self._scene.noise, _LEAST_NOISE)
        return float(f"{(noise * error) ** 0.5:.2g}")

    def _shrink(self, repro: Repro) -> Repro:
        """Leave out one node after the other, as long as the rest shows it as well."""
        if self._where.stage is Stage.SIGNATURE:
            return repro
        kept = self._nodes_to_keep(repro)
        trials = 0
        for place in repro.submodel.places:
            places = repro.submodel.places
            if len(places) == 1 or trials >= _MOST_TRIALS:
                break
            if place not in places or place in kept:
                continue
            trials += 1
            smaller = self._try([other for other in places if other != place], repro.level)
            if smaller is not None and self._is_smaller(smaller, repro, kept):
                repro = smaller
        return repro

    @staticmethod
    def _is_smaller(smaller: Repro, repro: Repro, kept: set[int]) -> bool:
        """Fewer nodes, and all those that must stay are among them."""
        places = smaller.submodel.places
        return len(places) < len(repro.submodel.places) and kept.issubset(places)

    def _nodes_to_keep(self, repro: Repro) -> set[int]:
        """With the module's truth everything behind a guilty node is wrong, so the guilty node must stay."""
        if self._where.stage in (Stage.OPTIMIZER, Stage.RUNTIME, Stage.PRECISION):
            return set()
        return set(self._guilty_nodes() or repro.submodel.places)


def _alike(a: float, b: float) -> bool:
    """Whether two errors are about the same."""
    if a == b:
        return True
    smaller = min(a, b)
    return smaller > 0 and max(a, b) / smaller <= _LIKE
