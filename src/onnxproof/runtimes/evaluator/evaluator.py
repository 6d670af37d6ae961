"""onnx's evaluator with our operators, a deadline, and an observer of every node's outputs."""

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxproof.errors import ModelError, OnnxproofError, Refused
from onnxproof.onnxmodel import expansion
from onnxproof.runtimes.evaluator import (
    contrib,
    custom,
    machine_learning,
    operators,
    promotion,
)
from onnxproof.runtimes.evaluator.stored_weights import SMALL, StoredWeight
from onnxproof.system.deadline import Deadline

Observer = Callable[[onnx.NodeProto, Any], Any]
"""Sees every node's outputs as they are computed, and returns what takes their place."""
_deadline: ContextVar[Deadline] = ContextVar(
    "onnxproof-evaluator-deadline",
    default=Deadline.never(),  # noqa: B039 it is frozen
)
"""For the graph that is being evaluated, with its subgraphs and functions."""
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


def evaluate(
    evaluator: "Evaluator",
    output_names: Sequence[str],
    feeds: dict[str, Any],
    limit_s: float,
) -> Any:
    """Run the graph; after `limit_s` seconds the next node is refused with the code `too-slow`."""
    token = _deadline.set(Deadline.after(limit_s))
    try:
        with np.errstate(all="ignore"):
            return evaluator.run(list(output_names), _ReleasableFeeds(feeds))
    finally:
        _deadline.reset(token)


def _check_time(where: str) -> None:
    if _deadline.get().passed:
        raise Refused("too-slow", f"the reference evaluator ran out of time {where}")


class _ReleasableFeeds(dict[str, Any]):
    """Inputs that the evaluator may let go of after their last use: nobody else holds them."""


class Evaluator(ReferenceEvaluator):
    """onnx's evaluator with our operators, in subgraphs and functions too (its own `new_ops` does not reach those)."""

    observer: Observer | None = None

    def _init(self) -> None:
        super()._init()
        for node in self.rt_nodes_:
            _use_python_floats(node)
        self._last_uses: list[list[str]] | None = None
        if self.onnx_graph_ is not None:
            self._last_uses = _last_uses(self.nodes_, self.output_names_)

    def retrieve_external_data(self, tensor: onnx.TensorProto) -> Any:
        """A large weight stays in its file; `reference.open` has made its location a path."""
        return StoredWeight.in_file(tensor)

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        ours = self._our_operator(node)
        if ours is not None:
            return ours
        try:
            return super()._load_impl(node, input_types)
        except NotImplementedError as why:
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            raise ModelError(
                "missing-operator",
                f"the reference evaluator lacks the operator `{name}`",
                notes=[shorten(why)],
                help="try `--backend ort`, which has more operators; `--ops operators.py` brings your own",
            ) from why

    def _our_operator(self, node: onnx.NodeProto) -> Any:
        if node.domain in ("", "ai.onnx"):
            newest = onnx.defs.onnx_opset_version()
            opset = self.opsets.get("", self.opsets.get("ai.onnx", newest))
            return operators.find(node.op_type, opset)
        if node.domain == machine_learning.DOMAIN:
            return machine_learning.OPERATORS.get(node.op_type)
        if node.domain in contrib.DOMAINS:
            return contrib.find(node.domain, node.op_type)
        return custom.find(node.domain, node.op_type)

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
        if isinstance(feed_inputs, _ReleasableFeeds):
            feed_inputs.clear()
        keep = set(wanted)
        # A body without nodes can be called for ever, too.
        _check_time("at its first node" if self.rt_nodes_ else "in a graph without nodes")
        for place, node in enumerate(self.rt_nodes_):
            _check_time(f"at node {place} of {len(self.rt_nodes_)} (`{node.op_type}`)")
            outputs = self._outputs_of(node, results, attributes)
            if self.observer is not None:
                outputs = self.observer(node.onnx_node, outputs)
            results.update(zip(node.output, outputs, strict=False))
            results[""] = None  # an output without a name is no later node's missing input
            if self._last_uses is not None:
                for name in self._last_uses[place]:
                    if name not in keep:
                        results.pop(name, None)
        if intermediate:
            return results
        return [_read(results[name]) for name in wanted]

    def _outputs_of(
        self, node: Any, results: dict[str, Any], attributes: dict[str, Any] | None
    ) -> Any:
        """The outputs of one node; whatever numpy or onnx raises becomes a refusal with the node's name."""
        options: dict[str, Any] = {}
        if node.need_context():
            options["context"] = results
        if node.has_linked_attribute and attributes:
            options["linked_attributes"] = attributes
        try:
            inputs = [results[name] for name in node.input]
            if node.op_type == "Gather" and isinstance(inputs[0], StoredWeight):
                return inputs[0].take_rows(node, _read(inputs[1]), options)
            arrays = [_read(value) for value in inputs]
            if self.observer is not None:
                arrays = _widened_integers(node.op_type, arrays)
            return self.run_node(node, arrays, options)
        except OnnxproofError:  # from a node of a subgraph, already named
            raise
        except Exception as why:  # numpy and the evaluator raise whatever they like
            raise _refusal(node.onnx_node, why) from why

    def run_node(self, node: Any, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
        """Run one node on these inputs; evaluators of other precisions do more here."""
        return node.run(*inputs, **options)


class WideEvaluator(Evaluator):
    """The same in float64: large weights are widened when a node reads them, and the standard's own functions are promoted."""

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
        weights: dict[str, Any] = self.rt_inits_
        for name, value in weights.items():
            if not is_float(getattr(value, "dtype", np.dtype(bool))):
                continue
            if isinstance(value, StoredWeight):
                weights[name] = value.widened()
            elif value.nbytes > SMALL and value.dtype != np.float64:
                weights[name] = StoredWeight(value, wide=True)
            else:
                weights[name] = value.astype(np.float64, copy=False)


_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Pow"})


def _widened_integers(op_type: str, arrays: list[Any]) -> list[Any]:
    """The operands of integer arithmetic in one width: an observer may have put an int64 in the place of an int32."""
    dtypes = {array.dtype for array in arrays if isinstance(array, np.ndarray | np.generic)}
    mixed = len(dtypes) > 1 and all(dtype.kind in "iu" for dtype in dtypes)
    if op_type not in _ARITHMETIC or not mixed:
        return arrays
    return [array.astype(np.int64) for array in arrays]


def _read(value: Any) -> Any:
    """A value as a node takes it."""
    if isinstance(value, StoredWeight):
        return value.read()
    return value


def inner_evaluators(node: Any) -> Iterator[tuple[str, Any]]:
    """The evaluators of a node's own subgraphs by their attribute's name, or that of the local function which it calls by its name."""
    for attribute in node.onnx_node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, getattr(node, attribute.name)
    body = getattr(node, "impl_", None)
    if body is not None and body is not node and node.onnx_node.domain not in ("", "ai.onnx"):
        yield node.onnx_node.op_type, body


def all_inner_evaluators(evaluator: Any, seen: set[int]) -> Iterator[Any]:
    """Every evaluator below this one, each once: a function that is called often is one evaluator."""
    for node in evaluator.rt_nodes_:
        for _, inner in inner_evaluators(node):
            if id(inner) not in seen:
                seen.add(id(inner))
                yield inner
                yield from all_inner_evaluators(inner, seen)


def _use_python_floats(node: Any) -> None:
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
        for name in _names_in(node):
            last[name] = place
    released: list[list[str]] = [[] for _ in nodes]
    for name, place in last.items():
        if name and name not in outputs:
            released[place].append(name)
    return released


def _names_in(node: onnx.NodeProto) -> Iterator[str]:
    """What a node writes and reads, its subgraphs included."""
    yield from node.output
    for inner in expansion.walk([node]):
        yield from inner.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (value.name for value in graph.output)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is a float of 16, 32 or 64 bits."""
    return dtype in (np.float16, np.float32, np.float64) or dtype == ml_dtypes.bfloat16


def _refusal(node: onnx.NodeProto, why: Exception) -> Refused:
    cause = why.__cause__ or why
    where = f" (node `{node.name}`)" if node.name else ""
    return Refused(
        "unevaluated",
        f"the reference evaluator can't evaluate `{node.op_type}`{where}",
        notes=[f"{type(cause).__name__}: {shorten(cause)}"],
    )


def shorten(why: BaseException) -> str:
    """An error's message on one line, at most 300 characters of it."""
    return " ".join(str(why).split())[:300]
