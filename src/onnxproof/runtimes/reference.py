"""The standard's own evaluator: `reference` in the file's precision, `reference:float64` for what the graph says in float64.

onnx's evaluator is the base; what it lacks or gets wrong is in `_operators`. It is slow: a truth, not a runtime.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxproof.errors import Crashed, ModelError, OnnxproofError, Refused, UsageError
from onnxproof.onnxmodel import expansion, onnx_file
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.evaluator import contrib, operators, promotion
from onnxproof.runtimes.evaluator.promotion import promote as promote
from onnxproof.system import guard
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
IN_PROCESS = True
_LAST_NODE_S = 1.0
"""Seconds beyond the limit that the node which is being evaluated may take: then it is left behind."""
_deadline: ContextVar[Deadline] = ContextVar(
    "onnxproof-evaluator-deadline",
    default=Deadline.never(),  # noqa: B039 it is frozen
)
"""For the graph that is being evaluated, with its subgraphs and functions."""
_DOUBLE = onnx.TensorProto.DOUBLE
_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators whose draws no two implementations share: a float64 evaluation of them is no truth."""


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="reference",
        about="the ONNX standard's evaluator: what the graph says",
        installed=True,
        version=onnx.__version__,
        device="cpu",
        install="pip install 'onnxproof[reference]'",
        limits="slow; reference:float64 runs the graph in float64; little of com.microsoft",
    )


def open(
    model: Path | bytes, option: str = "", *, outputs: Sequence[str] | None = None
) -> "ReferenceSession":
    """Open a file (or a serialized model) in its own precision or in float64; `outputs` may name inner values too."""
    if option not in ("", "float64"):
        raise UsageError(
            "unknown-option",
            f"`reference:{option}` is not a precision of the reference evaluator",
            help="use `reference` or `reference:float64`",
        )
    loaded = _load(model)
    wide = option == "float64"
    with guard.memory():
        if wide:
            promotion.promote_in_place(loaded, weights=False)
        if outputs is not None:
            add_outputs(loaded, outputs)
        return ReferenceSession(loaded, wide=wide, outputs=outputs)


class ReferenceSession:
    """The evaluator behind the checks that it does not make itself: names, dtypes and shapes of what it is given."""

    def __init__(
        self, model: onnx.ModelProto, *, wide: bool, outputs: Sequence[str] | None = None
    ) -> None:
        self._wide = wide
        self.limit_s = current().time_s
        """Seconds after which a run is given up and refused with the code `too-slow`."""
        self._hung = False
        self._ports = {value.name: value for value in model.graph.input}
        self._optional = {tensor.name for tensor in model.graph.initializer}
        try:
            self._evaluator = (_WideEvaluator if wide else _Evaluator)(model)
        except OnnxproofError:
            raise
        except (
            Exception
        ) as why:  # the evaluator reads attributes here, and raises whatever they make it raise
            raise ModelError(
                "model-refused",
                "the reference evaluator can't open this model",
                notes=[f"{type(why).__name__}: {_short(why)}"],
            ) from why
        self._inner = list(_all_inside(self._evaluator, set()))
        for tensor in model.graph.initializer:  # the evaluator holds them as arrays now
            tensor.ClearField("raw_data")
        self.input_names: Sequence[str] = [
            name for name in self._ports if name not in self._optional
        ]
        self.output_names: Sequence[str] = (
            list(outputs) if outputs is not None else [value.name for value in model.graph.output]
        )

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays, which stay as they are."""
        fed = self._checked(inputs)
        given = {id(array) for array in fed.values()}
        if self._hung:
            raise Refused("too-slow", "the reference evaluator was left behind in an earlier run")
        try:
            found = guard.run(
                lambda: self._evaluated(fed),
                limit_s=self.limit_s + _LAST_NODE_S,
                what="the reference evaluator",
            )
        except Crashed as why:
            self._hung = True
            raise Refused(
                "too-slow",
                "the reference evaluator ran out of time within one node",
                notes=why.notes,
            ) from why
        return [np.array(value) if id(value) in given else value for value in found]

    def _evaluated(self, fed: dict[str, Any]) -> Any:
        token = _deadline.set(Deadline.after(self.limit_s))
        try:
            with np.errstate(all="ignore"):
                return self._evaluator.run(list(self.output_names), _Handed(fed))
        finally:
            _deadline.reset(token)

    def observe(
        self, observer: Callable[[onnx.NodeProto, Any], Any] | None, *, inner: bool = False
    ) -> None:
        """Let `observer` see (and replace) the outputs of every node of the main graph while it runs; `inner` also inside subgraphs and functions."""
        self._evaluator.observer = observer
        for evaluator in self._inner if inner else ():
            evaluator.observer = observer

    @property
    def nodes(self) -> Sequence[Any]:
        """The nodes of the main graph as the evaluator runs them."""
        return list(self._evaluator.rt_nodes_)

    def node(self, place: int) -> Any:
        """One of them: the evaluators of its subgraphs are its attributes."""
        return self.nodes[place]

    def close(self) -> None:
        """Let the weights go."""
        del self._evaluator, self._inner

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        unknown = [name for name in inputs if name not in self._ports]
        missing = [name for name in self.input_names if name not in inputs]
        if unknown or missing:
            raise Refused(
                "refused",
                f"the model has no input `{unknown[0]}`"
                if unknown
                else f"the input `{missing[0]}` was not given",
                notes=[f"its inputs are {', '.join(self.input_names)}"],
            )
        return {name: self._fit(self._ports[name], array) for name, array in inputs.items()}

    def _fit(self, port: onnx.ValueInfoProto, array: Any) -> Any:
        tensor = port.type.tensor_type
        if isinstance(array, list):  # a sequence
            return [
                item.astype(np.float64) if self._wide and _is_float(item.dtype) else item
                for item in array
            ]
        if not port.type.HasField("tensor_type"):
            return array
        array = np.asarray(array)
        if self._wide and tensor.elem_type == _DOUBLE and _is_float(array.dtype):
            array = array.astype(np.float64, copy=False)
        wanted = (
            np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            if tensor.elem_type
            else array.dtype
        )
        if wanted != array.dtype and wanted.kind != "O":
            raise Refused(
                "refused", f"`{port.name}` is {array.dtype}, and the model takes {wanted}"
            )
        dims = (
            [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
            if tensor.HasField("shape")
            else None
        )
        if dims is not None and (
            len(dims) != array.ndim
            or any(d not in (None, n) for d, n in zip(dims, array.shape, strict=True))
        ):
            raise Refused(
                "refused",
                f"`{port.name}` has the shape {list(array.shape)}, and the model takes {['?' if d is None else d for d in dims]}",
            )
        return array


def _check_time(where: str) -> None:
    if _deadline.get().passed:
        raise Refused("too-slow", f"the reference evaluator ran out of time {where}")


class _Handed(dict[str, Any]):
    """Inputs that the evaluator may let go of after their last use: nobody else holds them."""


class _Evaluator(ReferenceEvaluator):
    """onnx's evaluator with our operators, in subgraphs and functions too (its own `new_ops` does not reach those)."""

    observer: Callable[[onnx.NodeProto, Any], Any] | None = None
    """Sees every node's outputs as they are made, and may put others in their place."""

    def _init(self) -> None:
        super()._init()
        for node in self.rt_nodes_:
            _exact_attributes(node)
        self._free = (
            None if self.onnx_graph_ is None else _last_uses(self.nodes_, self.output_names_)
        )

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        if node.domain in ("", "ai.onnx"):
            ours = operators.find(
                node.op_type,
                self.opsets.get("", self.opsets.get("ai.onnx", onnx.defs.onnx_opset_version())),
            )
            if ours is not None:
                return ours
        contributed = contrib.find(node.op_type) if node.domain == contrib.DOMAIN else None
        if contributed is not None:
            return contributed
        try:
            return super()._load_impl(node, input_types)
        except NotImplementedError as why:
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            raise ModelError(
                "missing-operator",
                f"the reference evaluator lacks the operator `{name}`",
                notes=[_short(why)],
                help="try `--backend ort`, which has more operators",
            ) from why

    def run(
        self,
        output_names: Any,
        feed_inputs: dict[str, Any],
        attributes: dict[str, Any] | None = None,
        intermediate: bool = False,
        check_shape_annotations: bool | None = None,
        _bindings: Any = None,
    ) -> Any:
        """Evaluate node by node, letting go of each value after its last use, and name the node that can't be evaluated."""
        wanted = self.output_names if output_names is None else output_names
        results: dict[str, Any] = {"": None, **self.rt_inits_, **feed_inputs}
        if isinstance(feed_inputs, _Handed):
            feed_inputs.clear()
        keep = set(wanted)
        _check_time(
            "in a graph without nodes" if not self.rt_nodes_ else "at its first node"
        )  # a body without nodes can be called for ever, too
        for place, node in enumerate(self.rt_nodes_):
            _check_time(f"at node {place} of {len(self.rt_nodes_)} (`{node.op_type}`)")
            linked = (
                {"linked_attributes": attributes}
                if node.has_linked_attribute and attributes
                else {}
            )
            context = {"context": results} if node.need_context() else {}
            try:
                found = node.run(*[results[name] for name in node.input], **context, **linked)
            except OnnxproofError:  # from a node of a subgraph, already named
                raise
            except Exception as why:  # numpy and the evaluator raise whatever they like; each becomes one of ours with the node's name
                raise _refused(node.onnx_node, why) from why
            if self.observer is not None:
                found = self.observer(node.onnx_node, found)
            results.update(zip(node.output, found, strict=False))
            for name in () if self._free is None else self._free[place]:
                if name not in keep:
                    results.pop(name, None)
        if intermediate:
            return results
        return [results[name] for name in wanted]


class _WideEvaluator(_Evaluator):
    """The same in float64: weights are widened as they are loaded, and the standard's own functions are promoted."""

    def __init__(self, proto: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(proto, onnx.FunctionProto):
            copied = onnx.FunctionProto()
            copied.CopyFrom(proto)
            promotion.promote_nodes(copied.node, {})
            proto = copied
        super().__init__(proto, *args, **kwargs)

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        if node.op_type in _RANDOM and node.domain in ("", "ai.onnx"):
            raise ModelError(
                "random-operator",
                f"`{node.op_type}` draws at random: there is no float64 truth for it",
            )
        return super()._load_impl(node, input_types)

    def _init(self) -> None:
        super()._init()
        for name, value in self.rt_inits_.items():
            if isinstance(value, np.ndarray) and _is_float(value.dtype):
                self.rt_inits_[name] = value.astype(np.float64, copy=False)


def inside(node: Any) -> Iterator[tuple[str, Any]]:
    """The evaluators of a node's own subgraphs by their attribute's name, or that of the local function which it calls by its name."""
    for attribute in node.onnx_node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, getattr(node, attribute.name)
    body = getattr(node, "impl_", None)
    if body is not None and body is not node and node.onnx_node.domain not in ("", "ai.onnx"):
        yield node.onnx_node.op_type, body


def _all_inside(evaluator: Any, seen: set[int]) -> Iterator[Any]:
    """Every evaluator below this one, each once: a function that is called often is one evaluator."""
    for node in evaluator.rt_nodes_:
        for _, inner in inside(node):
            if id(inner) not in seen:
                seen.add(id(inner))
                yield inner
                yield from _all_inside(inner, seen)


def add_outputs(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Make inner values outputs of the graph; a name is all that is needed."""
    known = {value.name for value in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    made |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    for name in dict.fromkeys(names):
        if name not in known:
            if name not in made:
                raise UsageError("unknown-value", f"the graph has no value `{name}`")
            model.graph.output.append(onnx.ValueInfoProto(name=name))


def _load(source: Path | bytes) -> onnx.ModelProto:
    """The model with what is kept beside it; one standard domain has two spellings, and the evaluator knows one."""
    if not isinstance(source, bytes):
        onnx_file.read(
            source
        )  # for its words when the file can't be read; it leaves large weights out
    model = (
        onnx.load_model_from_string(source)
        if isinstance(source, bytes)
        else onnx.load(source, load_external_data=False)
    )
    folder = "" if isinstance(source, bytes) else str(Path(source).parent)
    for tensor in _external_tensors(model):
        onnx.external_data_helper.load_external_data_for_tensor(tensor, folder)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    for node in onnx_file.walk(model):
        node.domain = "" if node.domain == "ai.onnx" else node.domain
    for entry in (*model.opset_import, *(e for f in model.functions for e in f.opset_import)):
        entry.domain = "" if entry.domain == "ai.onnx" else entry.domain
    return model


def _external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor
    for node in onnx_file.walk(model):
        for attribute in node.attribute:
            candidates = (
                [attribute.t, *attribute.g.initializer]
                if attribute.type in (onnx.AttributeProto.TENSOR, onnx.AttributeProto.GRAPH)
                else []
            )
            yield from (
                tensor for tensor in candidates if tensor.data_location == onnx.TensorProto.EXTERNAL
            )


def _exact_attributes(node: Any) -> None:
    """Floats of the file as Python floats: a numpy float32 would pull Python numbers down to float32, and half precision up."""
    for name in getattr(node, "attributes_names_", ()):
        value = getattr(node, name)
        if isinstance(value, np.float32):
            setattr(node, name, float(value))
        elif isinstance(value, list) and value and isinstance(value[0], np.float32):
            setattr(node, name, [float(item) for item in value])


def _last_uses(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[list[str]]:
    """For each node the values that no later node reads, subgraphs included."""
    last: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in (
            *node.output,
            *(name for inner in expansion.walk([node]) for name in inner.input),
        ):
            last[name] = place
        for attribute in node.attribute:
            last.update(
                (value.name, place)
                for graph in (attribute.g, *attribute.graphs)
                for value in graph.output
            )
    free: list[list[str]] = [[] for _ in nodes]
    for name, place in last.items():
        if name and name not in outputs:
            free[place].append(name)
    return free


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype in (np.float16, np.float32, np.float64) or dtype == ml_dtypes.bfloat16


def _refused(node: onnx.NodeProto, why: Exception) -> Refused:
    cause = why.__cause__ or why
    return Refused(
        "unevaluated",
        f"the reference evaluator can't evaluate `{node.op_type}`"
        + (f" (node `{node.name}`)" if node.name else ""),
        notes=[f"{type(cause).__name__}: {_short(cause)}"],
    )


def _short(why: BaseException) -> str:
    return " ".join(str(why).split())[:300]
