"""How large a graph becomes once its functions are inlined, computed from the file before anything opens it.

A file of a few kilobytes can ask for more nodes than any machine holds: thirty functions that each call the one before twice are
a billion. ONNX Runtime inlines them when it opens the file, and our own walks follow them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from onnxproof.errors import ModelError

MOST_NODES = 200_000
"""Nodes after inlining, where inlining makes them many. ONNX Runtime 1.31 opens 32,000 calls in 13 s, and 131,000 not in 100 s; exports with
functions have some thousand."""
MOST_CALLS_DEEP = 64
"""Functions that call functions. Exporters that keep modules as functions nest them as deep as the modules, about ten; ONNX Runtime 1.31
ends the process at 3,000, and opens 400."""
Key = tuple[str, str]


def check(model: onnx.ModelProto, path: Path) -> None:
    """Refuse a file whose functions call themselves, nest too deep, or become too many nodes."""
    functions = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[Key, int] = {}
    for key in _callees_first(functions, path):
        sizes[key] = _size(functions[key].node, sizes)
    total = _size(model.graph.node, sizes)
    in_file = sum(1 for _ in _nodes(model))
    if total > max(MOST_NODES, 2 * in_file):
        raise ModelError(
            "too-large-when-inlined",
            f"with its functions inlined this graph has {_count(total)} nodes",
            where=str(path),
            notes=[f"the limit is {MOST_NODES:,} nodes; the file itself holds {in_file:,}"],
            help="a function that calls another twice doubles it: export without functions, or share results instead of calls",
        )


def _count(total: int) -> str:
    """A number for people."""
    if total < 10**15:
        return f"{total:,}"
    return f"more than 10**{len(str(total)) - 1}"


def _size(nodes: Iterable[onnx.NodeProto], sizes: Mapping[Key, int]) -> int:
    """How many nodes these are with their functions inlined."""
    return sum(1 + sizes.get((node.domain, node.op_type), 0) for node in walk(nodes))


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node that the file holds."""
    yield from walk(model.graph.node)
    for function in model.functions:
        yield from walk(function.node)


def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Every node with those of its subgraphs; a stack and no recursion, since the file decides how deep it is."""
    waiting = [iter(nodes)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        yield node
        inner = [iter(graph.node) for graph in subgraphs(node)]
        waiting += reversed(inner)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The subgraphs of a node that hold any nodes."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            if graph.node:
                yield graph


def _callees_first(functions: Mapping[Key, onnx.FunctionProto], path: Path) -> Iterator[Key]:
    """Every function after those that it calls."""
    calls = {key: _calls(function.node, functions) for key, function in functions.items()}
    depth: dict[Key, int] = {}
    for start in functions:
        if start in depth:
            continue
        stack = [(start, iter(calls[start]))]
        open_calls = {start}
        while stack:
            key, rest = stack[-1]
            callee = next(rest, None)
            if callee is None:
                stack.pop()
                open_calls.discard(key)
                depth[key] = 1 + max((depth[other] for other in calls[key]), default=0)
                _check_depth(key, depth[key], path)
                yield key
            elif callee in open_calls:
                raise ModelError(
                    "recursive-function",
                    f"the function `{callee[1]}` calls itself",
                    where=str(path),
                    notes=["ONNX has no recursion: inlining it would never end"],
                    help="export the model without functions",
                )
            elif callee not in depth:
                open_calls.add(callee)
                stack.append((callee, iter(calls[callee])))


def _check_depth(
    key: Key,
    depth: int,
    path: Path,
) -> None:
    """Refuse functions that nest too deep."""
    if depth > MOST_CALLS_DEEP:
        raise ModelError(
            "functions-too-deep",
            f"the function `{key[1]}` calls functions {depth} deep",
            where=str(path),
            notes=[f"the limit is {MOST_CALLS_DEEP}"],
            help="export the model without functions",
        )


def _calls(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[Key, onnx.FunctionProto]
) -> Sequence[Key]:
    """The functions that these nodes call, each once."""
    keys = dict.fromkeys((node.domain, node.op_type) for node in walk(nodes))
    return [key for key in keys if key in functions]
