"""The smallest sub-model that still shows the fault, with a script that needs numpy and onnxruntime alone.

The guilty node is cut out with the values that it was given and the values that it should have made. Where it alone
does not show the fault (a fusion, a missing piece, a cast whose harm shows later), the cut grows by neighbours, up to
the whole model; then every node that is not needed is left out again.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import external_data_helper, helper
from safetensors.numpy import save_file

from onnxproof.backends import ort, parse
from onnxproof.backends import reference as standard
from onnxproof.cases._space import as_dtype
from onnxproof.errors import OnnxproofError, Refused, UsageError
from onnxproof.execute import feed
from onnxproof.locate._graph import Graph, captured
from onnxproof.locate._match import relative
from onnxproof.locate._scene import Scene
from onnxproof.proof import Proof
from onnxproof.types import Location, Stage, Status

Array = np.ndarray[Any, Any]
Truth = Callable[["Cut"], Mapping[str, Array]]
_LARGEST = 1 << 31
_ROUNDS = 12
_TRIALS = 40
_OUTPUTS = 4
_LIKE = 4.0
"""The error of the sub-model may be this many times larger or smaller than it was in the whole model."""
_RANDOM = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"})


@dataclass(slots=True, kw_only=True)
class Cut:
    """A sub-model: nodes of the main graph, what they are given, and which of their values are looked at."""

    places: list[int]
    given: dict[str, Array]
    outputs: list[str]
    model: onnx.ModelProto
    truth: dict[str, Array] = field(default_factory=dict)
    found: dict[str, Array] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    """The relative error from which on an output counts as wrong: between rounding and the fault."""
    level: str = ""
    words: str = ""
    """What the runtime says, where it refuses."""


def write_repro(proof: Proof, scene: Scene | None, folder: str | Path) -> Path:
    """Write `model.onnx`, `inputs.safetensors`, `outputs.safetensors`, `repro.py` and `report.md`; gives the script's path."""
    scene = scene or proof.scene
    where = proof.location
    if scene is None:
        raise UsageError("no-scene", "a stored proof holds no tensors, so nothing can be cut out of the model",
                         help="verify again: `onnxproof explain SUBJECT MODEL --repro DIR`")
    if where is None:
        raise UsageError("nothing-to-reproduce", "no fault was located, so there is nothing to reproduce", where=proof.candidate)
    cut = _Search(scene, where).smallest()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _save(cut.model, folder / "model.onnx")
    save_file({name: np.array(array, order="C") for name, array in cut.given.items()}, folder / "inputs.safetensors")
    save_file({name: np.array(array, order="C") for name, array in cut.truth.items()}, folder / "outputs.safetensors")
    nodes = [scene.file.model.graph.node[place] for place in cut.places]
    (folder / "repro.py").write_text(_script(cut), encoding="utf-8")
    (folder / "report.md").write_text(_report(proof, nodes, cut), encoding="utf-8")
    return folder / "repro.py"


def error(found: Array | None, truth: Array) -> float:
    """How wrong a value is: relative for floats, the root of the share that differs for what is exact, 1 for another dtype."""
    if found is None or found.shape != truth.shape:
        return float("inf")
    if found.dtype != truth.dtype:
        return 1.0
    if found.dtype.kind in "iub":
        return float((found != truth).mean()) ** 0.5 if found.size else 0.0
    return relative(found, truth)


class _Search:
    """Looks for the smallest cut that shows the fault."""

    def __init__(self, scene: Scene, where: Location) -> None:
        self._scene, self._where = scene, where
        self._graph = Graph.of(scene.file)
        self._refused = scene.gap is not None and scene.gap.status is Status.REFUSED
        self._values = _Values(scene, self._graph, readable=not self._refused)
        by_stage: dict[Stage, Truth] = {Stage.OPTIMIZER: self._unoptimised, Stage.RUNTIME: self._by_standard, Stage.PRECISION: self._by_standard}
        self._truth = by_stage.get(where.stage, self._by_module)
        self._outputs = {o.onnx_name: t for o, t in zip(scene.signature.outputs, scene.truth, strict=True) if o.onnx_name}
        self._limit = max(20 * scene.noise, 1e-6)
        self._cured: dict[str, Array] | None = None
        self._double: Any = None

    def smallest(self) -> Cut:
        """The first cut that shows it, then with every node left out that is not needed."""
        own = parse(self._scene.backend)[1]
        others = () if self._where.stage is Stage.OPTIMIZER else ("all", "disabled")
        levels = dict.fromkeys((own if own in ("basic", "extended", "disabled") else "all", *others))
        for places in self._regions():
            for level in levels:
                cut = self._try(places, level)
                if cut is not None:
                    return self._shrunk(cut)
        raise OnnxproofError("no-repro", "no part of the model, nor all of it, shows the fault on onnxruntime alone", where=str(self._scene.path),
                             notes=[f"the fault was seen on {self._scene.backend}, case `{self._scene.case.name}`"],
                             help="send the whole model with the proof's replay line")

    def _regions(self) -> Iterator[list[int]]:
        """From the guilty node alone to the whole model."""
        seeds = self._seeds()
        whole = list(range(len(self._graph.nodes)))
        if self._where.stage is Stage.SIGNATURE or self._refused:
            yield from [r for r in (self._to_the_end(seeds), whole) if r]
            return
        region: set[int] = set(seeds)
        if not region:
            yield from ([place] for place in whole[:_TRIALS] if self._where.stage is Stage.OPTIMIZER)
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
        main = [name for name in self._where.nodes if name in {self._graph.name(place) for place in range(len(self._graph.nodes))}]
        names = main if self._where.stage is Stage.OPTIMIZER else main[:1]  # a node inside another goes with that one
        return [place for place in range(len(self._graph.nodes)) if self._graph.name(place) in names]

    def _consumers(self, region: set[int]) -> set[int]:
        return {p for place in region for o in self._graph.nodes[place].output if o for p in self._graph.consumers(o)}

    def _producers(self, region: set[int]) -> set[int]:
        makers = (self._graph.makers.get(name) for place in region for name in captured(self._graph.nodes[place]))
        return {p for p in makers if p is not None and not self._values.constant(p)}

    def _to_the_end(self, seeds: Sequence[int]) -> list[int]:
        """The seeds and all that follows from them."""
        region = set(seeds)
        for place in range(min(seeds, default=0), len(self._graph.nodes) if seeds else 0):
            if any(self._graph.makers.get(name) in region for name in captured(self._graph.nodes[place])):
                region.add(place)
        return sorted(region)

    def _try(self, places: Sequence[int], level: str) -> Cut | None:
        """The cut, if it can be made and shows the fault by itself, at a like size."""
        try:
            cut = self._values.cut(places)
            cut.level = level
            truth = {n: _plain(t) for n, t in self._truth(cut).items() if n in cut.outputs}
            cut.found, cut.words = _run(cut, level)
        except (OnnxproofError, ValueError, TypeError):
            return None
        if cut.words and not self._refused:
            return None
        scores = {name: error(cut.found.get(name), t) for name, t in truth.items()}
        wrong = sorted((n for n, score in scores.items() if self._shows(n, score, truth[n])), key=lambda n: -scores[n])[:_OUTPUTS]
        if not wrong:
            return None
        lean = self._values.cut(self._values.needed(places, wrong), wrong)
        lean.level, lean.words = level, cut.words
        lean.truth, lean.found = {n: truth[n] for n in wrong}, {n: cut.found[n] for n in wrong if n in cut.found}
        lean.limits = {n: self._threshold(scores[n], truth[n]) for n in wrong}
        return lean if set(lean.places) == set(places) else self._checked(lean)

    def _checked(self, cut: Cut) -> Cut | None:
        """The same cut, if it still is as wrong after nodes were left out."""
        try:
            found, words = _run(cut, cut.level)
        except OnnxproofError:
            return None
        if bool(words) != bool(cut.words):
            return None
        same = all(self._alike(error(found.get(n), t), error(cut.found.get(n), t)) for n, t in cut.truth.items())
        cut.found = found
        return cut if same else None

    def _shows(self, name: str, score: float, truth: Array) -> bool:
        """Wrong beyond rounding, and about as wrong as in the whole model, where that can be told."""
        if score <= (0.0 if truth.dtype.kind in "iub" else self._limit):
            return False
        if self._where.stage in (Stage.OPTIMIZER, Stage.SIGNATURE) or self._refused:
            return True
        whole = self._values.get([name]).get(name)
        return whole is None or self._alike(score, error(_plain(whole), truth))

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
        kept = set() if own_truth else set(self._seeds()) or set(cut.places)  # behind a guilty node everything is wrong: it must stay
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
        return _run(cut, "disabled")[0]

    def _by_standard(self, cut: Cut) -> Mapping[str, Array]:
        """What the sub-model says by the standard, in float64, rounded to the value's own type."""
        session = standard.open(cut.model.SerializeToString(), "float64")
        kinds = self._values.get(cut.outputs)
        found = dict(zip(session.output_names, session.run(cut.given), strict=True))
        return {n: as_dtype(np.asarray(v), kinds[n].dtype) for n, v in found.items() if v is not None and n in kinds}

    def _by_module(self, cut: Cut) -> Mapping[str, Array]:
        """What the module says: for outputs of the model and for nodes whose counterpart is known; behind those, by evaluating on in float64."""
        kinds = {} if self._refused else self._values.get(cut.outputs)
        if self._scene.gap is not None and self._scene.gap.status is Status.DTYPE and self._where.suspects:
            by_name = {o.onnx_name: dtype for o, dtype in zip(self._scene.signature.outputs, self._scene.dtypes, strict=True)}
            return {n: kinds[n].astype(by_name[n]) for n in cut.outputs if n in by_name}
        truths = {n: self._final(n, kinds.get(n)) for n in cut.outputs if n in self._outputs}
        rest = [n for n in cut.outputs if n not in truths and n in kinds]
        behind = self._behind(rest) if rest else {}
        return truths | {n: as_dtype(v.reshape(kinds[n].shape) if v.size == kinds[n].size else v, kinds[n].dtype) for n, v in behind.items()}

    def _final(self, name: str, like: Array | None) -> Array:
        """The truth of an output of the model, rounded to the type in which the file gives it."""
        truth = self._outputs[name]
        own = next(dtype for o, dtype in zip(self._scene.signature.outputs, self._scene.dtypes, strict=True) if o.onnx_name == name)
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
            values = [cured[n].reshape(np.shape(v)) if n in cured and np.size(v) == cured[n].size else v for n, v in zip(node.output, found, strict=False)]
            kept.update({n: np.array(v) for n, v in zip(node.output, values, strict=False) if n in names and isinstance(v, np.ndarray | np.generic)})
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
                true = self._scene.fetch(entry.place) if entry is not None and self._graph.name(place) in guilty else None
                if true is not None:
                    made = self._values.get([n for n in self._graph.nodes[place].output if n])
                    self._cured.update({name: np.asarray(true) for name in [n for n, v in made.items() if v.size == np.size(true)][:1]})
        return self._cured


class _Values:
    """Inner values of the model on the witness, and sub-models made of its nodes."""

    def __init__(self, scene: Scene, graph: Graph, *, readable: bool = True) -> None:
        self._scene, self._graph, self._readable = scene, graph, readable
        self._feeds = feed(scene.case.inputs, scene.signature)
        self._known: dict[str, Array] = dict(self._feeds)
        self._weights = {t.name: t for t in scene.file.model.graph.initializer}
        self._fixed = set(self._find_fixed())

    def constant(self, place: int) -> bool:
        """True when a node makes the same for every input."""
        return place in self._fixed

    def _find_fixed(self) -> Iterator[int]:
        known = set(self._weights)
        for place, node in enumerate(self._graph.nodes):
            if node.op_type not in _RANDOM and all(name in known for name in captured(node)):
                known.update(node.output)
                yield place

    def get(self, names: Iterable[str]) -> dict[str, Array]:
        """Values read without optimisation, from a model that computes nothing else; those that can't be read are left out."""
        wanted = [n for n in dict.fromkeys(names) if n and n not in self._known]
        if wanted:
            model = self._assemble(self.needed(range(len(self._graph.nodes)), wanted), self._feeds, wanted, typed=False)
            read = {value.name for value in model.graph.input}
            found = _open(model, "disabled").run({n: _plain(a) for n, a in self._feeds.items() if n in read})
            self._known.update({n: v for n, v in zip(wanted, found, strict=True) if isinstance(v, np.ndarray) and v.dtype.kind != "O"})
        return {n: self._known[n] for n in names if n in self._known}

    def needed(self, places: Iterable[int], outputs: Sequence[str]) -> list[int]:
        """Of these nodes those that the outputs depend on."""
        wanted, kept = set(outputs), []
        for place in sorted(places, reverse=True):
            if wanted & set(self._graph.nodes[place].output):
                kept.append(place)
                wanted |= set(captured(self._graph.nodes[place]))
        return kept[::-1]

    def cut(self, places: Sequence[int], outputs: Sequence[str] | None = None) -> Cut:
        """The sub-model of these nodes: constants come along, everything else that they read becomes an input."""
        nodes = [self._graph.nodes[place] for place in places]
        made = dict.fromkeys(o for node in nodes for o in node.output if o)
        read = list(dict.fromkeys(n for node in nodes for n in captured(node) if n not in made))
        extra = self._constants(read)
        inputs = [n for n in read if n not in self._weights and n not in {o for p in extra for o in self._graph.nodes[p].output}]
        given = self.get(inputs)
        if missing := [n for n in inputs if n not in given]:
            raise OnnxproofError("not-a-tensor", f"`{missing[0]}` is no tensor (a sequence or an optional), so it can't be an input of a sub-model")
        chosen = list(outputs) if outputs is not None else self._leaving(places, made)
        whole = sorted({*places, *extra})
        return Cut(places=list(places), given={n: _plain(a) for n, a in given.items()}, outputs=chosen,
                   model=self._assemble(whole, given, chosen, typed=self._readable))

    def _leaving(self, places: Sequence[int], made: Iterable[str]) -> list[str]:
        """What others read; a value that nobody reads stays inside, since reading it can make a fault of an optimizer vanish."""
        final = {port.name for port in self._scene.file.outputs}
        leaving = [name for name in made if name in final or not set(self._graph.consumers(name)) <= set(places)]
        return leaving or list(made)

    def _constants(self, names: Iterable[str]) -> list[int]:
        """The nodes that make constants out of constants."""
        found: list[int] = []
        for name in names:
            place = self._graph.makers.get(name)
            if place is not None and place not in found and self.constant(place):
                found += [*self._constants(captured(self._graph.nodes[place])), place]
        return list(dict.fromkeys(found))

    def _assemble(self, places: Sequence[int], given: Mapping[str, Array], outputs: Sequence[str], *, typed: bool = True) -> onnx.ModelProto:
        nodes = [onnx.NodeProto.FromString(self._graph.nodes[p].SerializeToString()) for p in places]
        read = {n for node in nodes for n in captured(node)} | set(outputs)
        source = self._scene.file.model
        graph = onnx.GraphProto(name=f"{source.graph.name or 'model'}_cut", node=nodes)
        graph.initializer.extend(self._loaded(name) for name in self._weights if name in read)
        graph.input.extend(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(_plain(a).dtype), a.shape) for n, a in given.items() if n in read)
        kinds = self.get(outputs) if typed else {}
        for name in outputs:
            if name in kinds:
                graph.output.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(_plain(kinds[name]).dtype), [None] * kinds[name].ndim))
            else:
                graph.output.append(onnx.ValueInfoProto(name=name))
        _widen(graph, [n for n, a in given.items() if a.dtype == ml_dtypes.bfloat16], [n for n, a in kinds.items() if a.dtype == ml_dtypes.bfloat16])
        return onnx.ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions, producer_name="onnxproof",
                               graph=graph)

    def _loaded(self, name: str) -> onnx.TensorProto:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(self._weights[name])
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            external_data_helper.load_external_data_for_tensor(tensor, str(self._scene.path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        return tensor


def _run(cut: Cut, level: str) -> tuple[dict[str, Array], str]:
    """The outputs of a sub-model at a level, or the words with which the runtime refuses it."""
    session = _open(cut.model, level)
    try:
        found = session.run({n: a for n, a in cut.given.items() if n in session.input_names})
    except Refused as why:
        return {}, why.what
    return {n: v for n, v in zip(session.output_names, found, strict=True) if v is not None}, ""


def _open(model: onnx.ModelProto, level: str) -> ort.OrtSession:
    if model.ByteSize() < _LARGEST:
        return ort.open(model.SerializeToString(), level)
    with tempfile.TemporaryDirectory(prefix="onnxproof-") as folder:
        _save(model, Path(folder) / "model.onnx")
        return ort.open(Path(folder) / "model.onnx", level)


def _save(model: onnx.ModelProto, path: Path) -> None:
    """In one file, unless a protobuf can't hold it."""
    onnx.save(model, path, save_as_external_data=model.ByteSize() >= _LARGEST, location="model.onnx.data")


def _plain(array: Array) -> Array:
    """numpy has no bfloat16: it goes in and out as float32."""
    if array.dtype == ml_dtypes.bfloat16:
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise OnnxproofError("not-a-tensor", f"values of type {array.dtype} can't be kept in a safetensors file")
    return array


def _widen(graph: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Casts at the border, so that bfloat16 values come in and go out as float32 under their own names."""
    for name in inputs:
        _rename(graph.node, name, f"{name}_bfloat16", made=False)
        graph.node.insert(0, helper.make_node("Cast", [name], [f"{name}_bfloat16"], to=onnx.TensorProto.BFLOAT16))
    for name in outputs:
        _rename(graph.node, name, f"{name}_bfloat16", made=True)
        graph.node.append(helper.make_node("Cast", [f"{name}_bfloat16"], [name], to=onnx.TensorProto.FLOAT))


def _rename(nodes: Iterable[onnx.NodeProto], old: str, new: str, *, made: bool) -> None:
    for node in nodes:
        for names in (node.input, node.output) if made else (node.input,):
            for place in [k for k, name in enumerate(names) if name == old]:
                names[place] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner.node, old, new, made=made)


_SCRIPT = '''"""Exits with 1 while the fault exists, with 0 once it is gone. Needs numpy and onnxruntime alone."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent
LIMITS = @LIMITS@  # the relative error from which on an output is wrong; 0 where it must be exact
LEVEL = onnxruntime.GraphOptimizationLevel.@LEVEL@
KINDS = {"BOOL": "?", "F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
         "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1"}


def tensors(name):
    data = (HERE / name).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    head = {n: e for n, e in json.loads(data[8:start]).items() if n != "__metadata__"}
    parts = {n: data[start + e["data_offsets"][0] : start + e["data_offsets"][1]] for n, e in head.items()}
    return {n: np.frombuffer(parts[n], KINDS[e["dtype"]]).reshape(e["shape"]) for n, e in head.items()}


def error(found, truth):
    if found.shape != truth.shape or found.dtype != truth.dtype:
        return np.inf
    if truth.dtype.kind != "f":
        return float((found != truth).mean()) if truth.size else 0.0
    f, t = found.astype("f8"), truth.astype("f8")
    odd = ~(np.isfinite(f) & np.isfinite(t))
    if (odd & ~((f == t) | (np.isnan(f) & np.isnan(t)))).any():
        return np.inf
    f, t = np.where(odd, 0, f), np.where(odd, 0, t)
    scale = np.sqrt((t**2).mean()) if t.size else 0.0
    return float(np.sqrt(((f - t) ** 2).mean()) / (scale or 1.0)) if t.size else 0.0


options = onnxruntime.SessionOptions()
options.graph_optimization_level, options.log_severity_level = LEVEL, 4
given, truths = tensors("inputs.safetensors"), tensors("outputs.safetensors")
try:
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), options, providers=["CPUExecutionProvider"])
    found = session.run(list(truths), {i.name: given[i.name] for i in session.get_inputs()})
except Exception as why:
    sys.exit(f"onnxruntime {onnxruntime.__version__} refuses the model: {why}")
wrong = False
for (name, truth), value in zip(truths.items(), found):
    off = error(np.asarray(value), truth)
    wrong |= off > LIMITS[name]
    print(f"{name}: {'WRONG' if off > LIMITS[name] else 'right'}, relative error {off:.3g} (limit {LIMITS[name]:g})")
    print("  should be", truth.ravel()[:6], "and is", np.asarray(value).ravel()[:6])
sys.exit(int(wrong))
'''
_LEVELS = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}


def _script(cut: Cut) -> str:
    return _SCRIPT.replace("@LIMITS@", repr(cut.limits)).replace("@LEVEL@", _LEVELS.get(cut.level, "ORT_ENABLE_ALL"))


def _report(proof: Proof, nodes: Sequence[onnx.NodeProto], cut: Cut) -> str:
    """A text to paste into a bug report."""
    where = proof.location
    assert where is not None
    names = ", ".join(f"`{n.name or n.output[0]}` ({n.op_type})" for n in nodes[:6]) + (f" and {len(nodes) - 6} more" if len(nodes) > 6 else "")
    head = f"{nodes[0].op_type if len(nodes) == 1 else where.nodes[0] if where.nodes else 'model'}: wrong values"
    lines = [f"# {head} (stage {where.stage.value})", "", proof.sentence(), ""]
    lines += [f"The smallest part that shows it has {len(nodes)} of the model's nodes: {names}.", ""]
    lines += [f"Optimizer: `{where.optimizer}`.", ""] if where.optimizer else []
    lines += [f"Python: `{where.source.file}:{where.source.line}`: `{where.source.text}`", ""] if where.source else []
    lines += [f"Evidence: {where.evidence}.", ""] if where.evidence else []
    lines += ["| output | relative error | counts as wrong beyond | should be | is |", "| --- | --- | --- | --- | --- |"]
    for name, truth in cut.truth.items():
        found = cut.found.get(name)
        seen = _few(found) if found is not None else cut.words.replace("|", "/")
        lines.append(f"| `{name}` | {error(found, truth):.3g} | {cut.limits[name]:g} | {_few(truth)} | {seen} |")
    lines += [""]
    for cause in proof.causes[:1]:
        lines += [f"Cause ({'proven' if cause.proven else 'likely'}): {cause.code}: {cause.title}. {cause.evidence}."]
        lines += [f"Remedy: {cause.fix.what}."] if cause.fix is not None else []
    lines += ["", "## See it", "", "```", "pip install numpy onnxruntime", "python repro.py    # exits with 1 while the fault exists", "```", ""]
    lines += ["## Versions", ""]
    lines += [f"- {name} {version}" for name, version in proof.environment.items() if name != "time"]
    return "\n".join([*lines, f"- SHA-256 of the whole model: {proof.hashes.get('candidate', 'unknown')}", ""])


def _few(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)} " + " ".join(f"{v:.7g}" if array.dtype.kind == "f" else str(v) for v in array.reshape(-1)[:4])
