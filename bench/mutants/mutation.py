"""What a change is, and the registers of kinds of change and of healthy rewrites."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import onnx

from bench.mutants.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change that was made to a graph."""

    guilty: tuple[str, ...]
    """Node names as they are in the written file: all that an expert would accept."""
    what: str
    codes: tuple[str, ...] = ()
    """The causes that are true of it; empty for a healthy rewrite."""
    kind: str = ""


Change = Callable[[Graph, Random], Mutation | None]
KINDS: dict[str, Change] = {}
TWINS: dict[str, Change] = {}


def kind(name: str, *codes: str) -> Callable[[Change], Change]:
    """Register a kind of fault with the codes that are true of it; a Mutation may bring its own."""
    return register(KINDS, name, codes)


def twin(name: str) -> Callable[[Change], Change]:
    """Register a rewrite that keeps the answers."""
    return register(TWINS, name, ())


def register(
    changes: dict[str, Change], name: str, codes: tuple[str, ...]
) -> Callable[[Change], Change]:
    """A decorator that adds a change to a register; its mutations get the name, and the codes where they have none."""

    def add(change: Change) -> Change:
        @functools.wraps(change)
        def named(graph: Graph, rng: Random) -> Mutation | None:
            mutation = change(graph, rng)
            if mutation is None:
                return None
            return replace(mutation, kind=name, codes=mutation.codes or codes)

        changes[name] = named
        return named

    return add


def load_kinds() -> None:
    """Import every file of kinds and of rewrites, which fills the registers."""
    for package in ("bench.mutants.kinds", "bench.mutants.twins"):
        root = importlib.import_module(package)
        for info in pkgutil.iter_modules(root.__path__):
            importlib.import_module(f"{package}.{info.name}")


def at(nodes: onnx.NodeProto | Sequence[onnx.NodeProto], what: str, *codes: str) -> Mutation:
    """A mutation whose guilty nodes are these."""
    listed = [nodes] if isinstance(nodes, onnx.NodeProto) else nodes
    return Mutation(guilty=tuple(node.name for node in listed), what=what, codes=codes)
