"""An ONNX model with what a change needs to know: producers, consumers, constants, shapes and the example's values."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


class Graph:
    """A model that is being changed. The maps are those of the model as it was read: one change is made to one graph."""

    def __init__(self, model: onnx.ModelProto, example: Mapping[str, Array]) -> None:
        self.model = model
        self.proto = model.graph
        self.example = dict(example)
        self.constants: dict[str, Array] = {}
        self.constant_nodes: dict[str, onnx.NodeProto] = {}
        self.producers: dict[str, onnx.NodeProto] = {}
        self._consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        self._new_names = 0
        self._name_all()
        self._read()

    def _name_all(self) -> None:
        """Nodes without a name, or with one that another has, get their own."""
        taken: set[str] = set()
        for place, node in enumerate(self.proto.node):
            if not node.name or node.name in taken:
                node.name = f"node_{node.op_type}_n{place}"
            taken.add(node.name)

    def _read(self) -> None:
        for tensor in self.proto.initializer:
            self.constants[tensor.name] = np.array(numpy_helper.to_array(tensor))
        for node in self.proto.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                value = numpy_helper.to_array(node.attribute[0].t)
                self.constants[node.output[0]] = np.array(value)
                self.constant_nodes[node.output[0]] = node
            for name in node.output:
                self.producers[name] = node
            for name in set(node.input):
                self._consumers[name].append(node)

    # ------------------------------------------------------------ reading

    def nodes(self, *op_types: str) -> list[onnx.NodeProto]:
        """The nodes of these types, in the file's order."""
        return [node for node in self.proto.node if node.op_type in op_types]

    def consumers(self, value: str) -> list[onnx.NodeProto]:
        """The nodes that read a value."""
        return list(self._consumers.get(value, ()))

    def producer(self, value: str) -> onnx.NodeProto | None:
        """The node that computes a value; None for an input or initializer."""
        return self.producers.get(value)

    def constant(self, node: onnx.NodeProto, place: int) -> Array | None:
        """The constant that stands at an input of a node, if one does."""
        if place >= len(node.input):
            return None
        return self.constants.get(node.input[place])

    def weights(self, *op_types: str) -> Iterator[tuple[onnx.NodeProto, int, Array]]:
        """Each float constant with more than one element that a node of these types (or any) reads."""
        for node in self.proto.node:
            if op_types and node.op_type not in op_types:
                continue
            for place in range(len(node.input)):
                value = self.constant(node, place)
                if value is not None and value.dtype.kind == "f" and value.size > 1:
                    yield node, place, value

    def is_output(self, value: str) -> bool:
        """Whether a value is an output of the model."""
        return any(output.name == value for output in self.proto.output)

    @cached_property
    def values(self) -> dict[str, Array]:
        """Every value that the model computes on the example."""
        from bench.mutants.judge import run_all_values

        return run_all_values(self.model, self.example)

    def shape(self, value: str) -> tuple[int, ...] | None:
        """The shape of a value on the example."""
        if value in self.constants:
            return tuple(self.constants[value].shape)
        if value in self.example:
            return tuple(self.example[value].shape)
        if value in self.values:
            return tuple(self.values[value].shape)
        return None

    def dtype(self, value: str) -> np.dtype[Any] | None:
        """The type of a value's elements."""
        for source in (self.constants, self.example, self.values):
            if value in source:
                return source[value].dtype
        return None

    def is_float(self, value: str) -> bool:
        """Whether a value is made of float32 numbers."""
        return self.dtype(value) == np.float32

    # ------------------------------------------------------------ changing

    def new_name(self, word: str) -> str:
        """A name that nothing in the graph has."""
        self._new_names += 1
        return f"{word}_m{self._new_names}"

    def attribute(self, node: onnx.NodeProto, name: str, default: Any = None) -> Any:
        """The value of an attribute, or what the standard says without it."""
        for attribute in node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def set_attribute(self, node: onnx.NodeProto, name: str, value: Any) -> None:
        """Give an attribute another value; None takes it away."""
        for old in [item for item in node.attribute if item.name == name]:
            node.attribute.remove(old)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))

    def write(self, node: onnx.NodeProto, place: int, value: Array) -> None:
        """Put a constant at one input of one node; a constant that others read stays theirs."""
        old = node.input[place]
        readers = sum(list(other.input).count(old) for other in self.proto.node)
        if readers == 1 and not self.is_output(old):
            self.overwrite(old, value)
            return
        name = self.new_name(f"{old}_own")
        self.proto.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        node.input[place] = name

    def overwrite(self, name: str, value: Array) -> None:
        """Give a constant another value for all who read it."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        if name in self.constant_nodes:
            self.constant_nodes[name].attribute[0].t.CopyFrom(tensor)
            return
        for old in self.proto.initializer:
            if old.name == name:
                old.CopyFrom(tensor)

    def add_constant(self, value: Array, word: str = "const") -> str:
        """A new initializer."""
        name = self.new_name(word)
        self.proto.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def insert_before(
        self, node: onnx.NodeProto, op_type: str, inputs: list[str], **attributes: Any
    ) -> onnx.NodeProto:
        """A new node in front of another one, with one output."""
        name = self.new_name(f"node_{op_type}")
        output = self.new_name(op_type.lower())
        made = helper.make_node(op_type, inputs, [output], name=name, **attributes)
        place = next(k for k, other in enumerate(self.proto.node) if other.name == node.name)
        self.proto.node.insert(place, made)
        return self.proto.node[place]

    def insert_after(
        self, value: str, op_type: str, *, extra: tuple[str, ...] = (), **attributes: Any
    ) -> onnx.NodeProto:
        """A new node behind a computed value: all who read the value read what the node makes of it."""
        producer = next(node for node in self.proto.node if value in node.output)
        inner = self.new_name(f"{value}_before")
        for place, name in enumerate(producer.output):
            if name == value:
                producer.output[place] = inner
        name = self.new_name(f"node_{op_type}")
        made = helper.make_node(op_type, [inner, *extra], [value], name=name, **attributes)
        place = next(k for k, other in enumerate(self.proto.node) if other.name == producer.name)
        self.proto.node.insert(place + 1, made)
        return self.proto.node[place + 1]

    def bypass(self, node: onnx.NodeProto, source: str) -> bool:
        """Let all who read a node's output read another value, and drop the node; False where the output is the model's."""
        if self.is_output(node.output[0]):
            return False
        for other in self.proto.node:
            for place, name in enumerate(other.input):
                if name == node.output[0]:
                    other.input[place] = source
        self.proto.node.remove(node)
        return True

    def drop_unused(self) -> None:
        """Remove nodes and initializers that nothing reads any more."""
        outputs = {output.name for output in self.proto.output}
        while True:
            used = outputs | {name for node in self.proto.node for name in node.input}
            used |= {name for node in self.proto.node for name in _captured(node)}
            idle = [node for node in self.proto.node if not used.intersection(node.output)]
            if not idle:
                break
            for node in idle:
                self.proto.node.remove(node)
        for tensor in [item for item in self.proto.initializer if item.name not in used]:
            self.proto.initializer.remove(tensor)


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the subgraphs of a node may read from outside."""
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                yield from inner.input
                yield from _captured(inner)
            yield from (output.name for output in graph.output)
