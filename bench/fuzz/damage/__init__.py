"""The kinds of damage, one file a family; a function with `@kind("...")` is one, and nothing else has to know it."""

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import onnx

T = TypeVar("T")


class NotApplicable(Exception):
    """This model has nothing that could be damaged in this way."""


@dataclass(slots=True, kw_only=True)
class Target:
    """A model on its way to being damaged: the graph, the folder of its file, and what is done to the file's bytes at last."""

    model: onnx.ModelProto
    folder: Path
    random: random.Random
    bytes_change: list[Callable[[bytes], bytes]] = field(default_factory=list)

    @property
    def graph(self) -> onnx.GraphProto:
        """The main graph."""
        return self.model.graph

    def weight(self) -> onnx.TensorProto:
        """One of the initializers, or of the tensors that Constant nodes hold."""
        inside = [
            a.t
            for node in self.graph.node
            for a in node.attribute
            if a.type == onnx.AttributeProto.TENSOR
        ]
        return self.one([*self.graph.initializer, *inside])

    def node(self, *, least_inputs: int = 0) -> onnx.NodeProto:
        """One of the nodes, those of subgraphs and functions included."""
        return self.one([node for node in nodes(self.model) if len(node.input) >= least_inputs])

    def graphs(self) -> list[onnx.GraphProto]:
        """The graphs inside nodes."""
        return [
            a.g
            for node in nodes(self.model)
            for a in node.attribute
            if a.type == onnx.AttributeProto.GRAPH
        ]

    def port(self) -> onnx.ValueInfoProto:
        """An input or an output of the main graph."""
        return self.one([*self.graph.input, *self.graph.output])

    def one(self, choices: list[T]) -> T:
        """A random choice; where there is none, this kind of damage is not for this model."""
        if not choices:
            raise NotApplicable
        return self.random.choice(choices)


Damage = Callable[[Target], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of damage."""

    name: str
    family: str
    apply: Damage


KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Damage], Damage]:
    """Register a function as a kind of damage; its family is its file."""

    def register(apply: Damage) -> Damage:
        KINDS[name] = Kind(name=name, family=apply.__module__.rpartition(".")[2], apply=apply)
        return apply

    return register


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node, also of subgraphs and functions."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [
            inner
            for a in node.attribute
            if a.type == onnx.AttributeProto.GRAPH
            for inner in a.g.node
        ]


for _info in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_info.name}")
