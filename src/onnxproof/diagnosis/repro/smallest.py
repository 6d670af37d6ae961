"""The smallest part of a model that still shows the fault: grown from the guilty node until it shows, then every node left out that is not needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.diagnosis.repro.cut import Cut, Values, error, plain, run
from onnxproof.errors import OnnxproofError
from onnxproof.inputs.space import as_dtype
from onnxproof.onnxmodel.graph import Graph, captured
from onnxproof.results import Location, Stage, Status
from onnxproof.runtimes import parse
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session.execution import feed

Array = np.ndarray[Any, Any]
Truth = Callable[[Cut], Mapping[str, Array]]
_ROUNDS = 12
_TRIALS = 40
_OUTPUTS = 4
_LIKE = 4.0
"""The error of the sub-model may be this many times larger or smaller than it was in the whole model."""


class Search:
    """Looks for the smallest cut that shows the fault."""

    def __init__(self, scene: Scene, where: Location) -> None:
        self._scene, self._where = scene, where
        self._graph = Graph.of(scene.file)
        self._refused = scene.gap is not None and scene.gap.status is Status.REFUSED
        self._values = Values(scene, self._graph, readable=not self._refused)
        by_stage: dict[Stage, Truth] = {
            Stage.OPTIMIZER: self._unoptimised,
            Stage.RUNTIME: self._by_standard,
            Stage.PRECISION: self._by_standard,
        }
        self._truth = by_stage.get(where.stage, self._by_module)
        self._outputs = {
            o.onnx_name: t
            for o, t in zip(scene.signature.outputs, scene.truth, strict=True)
            if o.onnx_name
        }
        self._limit = max(20 * scene.noise, 1e-6)
        self._cured: dict[str, Array] | None = None
        self._double: Any = None

    def smallest(self) -> Cut:
        """The first cut that shows it, then with every node left out that is not needed."""
        own = parse(self._scene.backend)[1]
        others = () if self._where.stage is Stage.OPTIMIZER else ("all", "disabled")
        levels = dict.fromkeys(
            (own if own in ("basic", "extended", "disabled") else "all", *others)
        )
        for places in self._regions():
            for level in levels:
                cut = self._try(places, level)
                if cut is not None:
                    return self._shrunk(cut)
        raise OnnxproofError(
            "no-repro",
            "no part of the model, nor all of it, shows the fault on onnxruntime alone",
            where=str(self._scene.path),
            notes=[f"the fault was seen on {self._scene.backend}, case `{self._scene.case.name}`"],
            help="send the whole model with the proof's replay line",
        )

    def _regions(self) -> Iterator[list[int]]:
        """From the guilty node alone to the whole model."""
        seeds = self._seeds()
        whole = list(range(len(self._graph.nodes)))
        if self._where.stage is Stage.SIGNATURE or self._refused:
            yield from [r for r in (self._to_the_end(seeds), whole) if r]
            return
        region: set[int] = set(seeds)
        if not region:
            yield from (
                [place] for place in whole[:_TRIALS] if self._where.stage is Stage.OPTIMIZER
            )
        for turn in range(_ROUNDS if region else 0):
            yield sorted(region)
            grown = region | (self._consumers(region) if turn % 2 == 0 else self._producers(region))
            if grown == region and turn % 2:
                break
            region = grown
        if seeds:
            yield self._to_the_end(seeds)
        yield whole

    def _seeds(self) -> list[int]:
        """The guilty node; all that the optimizer took."""
        main = [
            name
            for name in self._where.nodes
            if name in {self._graph.name(place) for place in range(len(self._graph.nodes))}
        ]
        names = (
            main if self._where.stage is Stage.OPTIMIZER else main[:1]
        )  # a node inside another goes with that one
        return [
            place for place in range(len(self._graph.nodes)) if self._graph.name(place) in names
        ]

    def _consumers(self, region: set[int]) -> set[int]:
        return {
            p
            for place in region
            for o in self._graph.nodes[place].output
            if o
            for p in self._graph.consumers(o)
        }

    def _producers(self, region: set[int]) -> set[int]:
        makers = (
            self._graph.makers.get(name)
            for place in region
            for name in captured(self._graph.nodes[place])
        )
        return {p for p in makers if p is not None and not self._values.constant(p)}

    def _to_the_end(self, seeds: Sequence[int]) -> list[int]:
        """The seeds and all that follows from them."""
        region = set(seeds)
        for place in range(min(seeds, default=0), len(self._graph.nodes) if seeds else 0):
            if any(
                self._graph.makers.get(name) in region
                for name in captured(self._graph.nodes[place])
            ):
                region.add(place)
        return sorted(region)

    def _try(self, places: Sequence[int], level: str) -> Cut | None:
        """The cut, if it can be made and shows the fault by itself, at a like size."""
        try:
            cut = self._values.cut(places)
            cut.level = level
            truth = {n: plain(t) for n, t in self._truth(cut).items() if n in cut.outputs}
            cut.found, cut.words = run(cut, level)
        except (OnnxproofError, ValueError, TypeError):
            return None
        if cut.words and not self._refused:
            return None
        scores = {name: error(cut.found.get(name), t) for name, t in truth.items()}
        wrong = sorted(
            (n for n, score in scores.items() if self._shows(n, score, truth[n])),
            key=lambda n: -scores[n],
        )[:_OUTPUTS]
        if not wrong:
            return None
        lean = self._values.cut(self._values.needed(places, wrong), wrong)
        lean.level, lean.words = level, cut.words
        lean.truth, lean.found = (
            {n: truth[n] for n in wrong},
            {n: cut.found[n] for n in wrong if n in cut.found},
        )
        lean.limits = {n: self._threshold(scores[n], truth[n]) for n in wrong}
        return lean if set(lean.places) == set(places) else self._checked(lean)

    def _checked(self, cut: Cut) -> Cut | None:
        """The same cut, if it still is as wrong after nodes were left out."""
        try:
            found, words = run(cut, cut.level)
        except OnnxproofError:
            return None
        if bool(words) != bool(cut.words):
            return None
        same = all(
            self._alike(error(found.get(n), t), error(cut.found.get(n), t))
            for n, t in cut.truth.items()
        )
        cut.found = found
        return cut if same else None

    def _shows(self, name: str, score: float, truth: Array) -> bool:
        """Wrong beyond rounding, and about as wrong as in the whole model, where that can be told."""
        if score <= (0.0 if truth.dtype.kind in "iub" else self._limit):
            return False
        if self._where.stage in (Stage.OPTIMIZER, Stage.SIGNATURE) or self._refused:
            return True
        whole = self._values.get([name]).get(name)
        return whole is None or self._alike(score, error(plain(whole), truth))

    @staticmethod
    def _alike(a: float, b: float) -> bool:
        return a == b or (min(a, b) > 0 and max(a, b) / min(a, b) <= _LIKE)

    def _threshold(self, score: float, truth: Array) -> float:
        """Half-way, on a logarithmic scale, between rounding and the fault."""
        if truth.dtype.kind in "iub" or not np.isfinite(score):
            return 0.0 if truth.dtype.kind in "iub" else float(self._limit)
        return float(f"{(max(self._scene.noise, 1e-7) * score) ** 0.5:.2g}")

    def _shrunk(self, cut: Cut) -> Cut:
        """Leave out one node after the other, as long as the rest shows it as well."""
        own_truth = self._where.stage in (Stage.OPTIMIZER, Stage.RUNTIME, Stage.PRECISION)
        kept = (
            set() if own_truth else set(self._seeds()) or set(cut.places)
        )  # behind a guilty node everything is wrong: it must stay
        tried = 0
        for place in list(cut.places) if self._where.stage is not Stage.SIGNATURE else ():
            if len(cut.places) == 1 or tried >= _TRIALS or place not in cut.places or place in kept:
                continue
            tried += 1
            smaller = self._try([p for p in cut.places if p != place], cut.level)
            cut = smaller if smaller is not None and len(smaller.places) < len(cut.places) else cut
        return cut

    def _unoptimised(self, cut: Cut) -> Mapping[str, Array]:
        """What the same sub-model says when nothing is optimised."""
        return run(cut, "disabled")[0]

    def _by_standard(self, cut: Cut) -> Mapping[str, Array]:
        """What the sub-model says by the standard, in float64, rounded to the value's own type."""
        session = standard.open(cut.model.SerializeToString(), "float64")
        kinds = self._values.get(cut.outputs)
        found = dict(zip(session.output_names, session.run(cut.given), strict=True))
        return {
            n: as_dtype(np.asarray(v), kinds[n].dtype)
            for n, v in found.items()
            if v is not None and n in kinds
        }

    def _by_module(self, cut: Cut) -> Mapping[str, Array]:
        """What the module says: for outputs of the model and for nodes whose counterpart is known; behind those, by evaluating on in float64."""
        kinds = {} if self._refused else self._values.get(cut.outputs)
        if (
            self._scene.gap is not None
            and self._scene.gap.status is Status.DTYPE
            and self._where.suspects
        ):
            by_name = {
                o.onnx_name: dtype
                for o, dtype in zip(self._scene.signature.outputs, self._scene.dtypes, strict=True)
            }
            return {n: kinds[n].astype(by_name[n]) for n in cut.outputs if n in by_name}
        truths = {n: self._final(n, kinds.get(n)) for n in cut.outputs if n in self._outputs}
        rest = [n for n in cut.outputs if n not in truths and n in kinds]
        behind = self._behind(rest) if rest else {}
        return truths | {
            n: as_dtype(v.reshape(kinds[n].shape) if v.size == kinds[n].size else v, kinds[n].dtype)
            for n, v in behind.items()
        }

    def _final(self, name: str, like: Array | None) -> Array:
        """The truth of an output of the model, rounded to the type in which the file gives it."""
        truth = self._outputs[name]
        own = next(
            dtype
            for o, dtype in zip(self._scene.signature.outputs, self._scene.dtypes, strict=True)
            if o.onnx_name == name
        )
        return as_dtype(truth, own if like is None else like.dtype)

    def _behind(self, names: Sequence[str]) -> dict[str, Array]:
        """True inner values: the module's own where the guilty node's counterpart is known, and what follows from them."""
        cured = self._cure()
        if not cured:
            return {}
        if self._double is None:
            self._double = standard.open(self._scene.path, "float64")
        kept: dict[str, Array] = {}

        def look(node: onnx.NodeProto, found: Any) -> Any:
            values = [
                cured[n].reshape(np.shape(v)) if n in cured and np.size(v) == cured[n].size else v
                for n, v in zip(node.output, found, strict=False)
            ]
            kept.update(
                {
                    n: np.array(v)
                    for n, v in zip(node.output, values, strict=False)
                    if n in names and isinstance(v, np.ndarray | np.generic)
                }
            )
            return tuple(values)

        self._double.observe(look)
        try:
            self._double.run(feed(self._scene.case.inputs, self._scene.signature))
        finally:
            self._double.observe(None)
        return kept

    def _cure(self) -> dict[str, Array]:
        """For the guilty nodes the value that is wrong, and the module's own in its place."""
        if self._cured is None:
            self._cured = {}
            guilty = [s.node for place, s in enumerate(self._where.suspects) if place == 0 or s.why]
            for place in range(len(self._graph.nodes)):
                entry = self._scene.counterparts.get(self._graph.name(place))
                true = (
                    self._scene.fetch(entry.place)
                    if entry is not None and self._graph.name(place) in guilty
                    else None
                )
                if true is not None:
                    made = self._values.get([n for n in self._graph.nodes[place].output if n])
                    self._cured.update(
                        {
                            name: np.asarray(true)
                            for name in [n for n, v in made.items() if v.size == np.size(true)][:1]
                        }
                    )
        return self._cured
