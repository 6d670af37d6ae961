"""Nodes in an order in which each can be evaluated."""

import copy
import heapq

import onnx

from onnxproof.onnxmodel import expansion


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Producers before consumers, else in the file's order; a graph with a cycle stays as it is.

    ONNX Runtime's converter to half precision writes its casts behind all other nodes, and runtimes sort by themselves.
    """
    needs = _producers(graph)
    if all(place > max(makers, default=-1) for place, makers in enumerate(needs)):
        return
    order = _order(needs)
    if len(order) == len(needs):
        ordered = [copy.deepcopy(graph.node[place]) for place in order]
        del graph.node[:]
        graph.node.extend(ordered)


def _producers(graph: onnx.GraphProto) -> list[set[int]]:
    """For each node the places of the nodes whose values it reads."""
    makers: dict[str, int] = {}
    for place, node in enumerate(graph.node):
        makers.update((name, place) for name in node.output if name)
    return [{makers[name] for name in _names_read(node) if name in makers} for node in graph.node]


def _order(needs: list[set[int]]) -> list[int]:
    """The places of the nodes, each behind what it needs."""
    consumers: list[list[int]] = [[] for _ in needs]
    for place, makers in enumerate(needs):
        for maker in makers:
            consumers[maker].append(place)
    ready = [place for place, makers in enumerate(needs) if not makers]
    order = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for consumer in consumers[place]:
            needs[consumer].discard(place)
            if not needs[consumer]:
                heapq.heappush(ready, consumer)
    return order


def _names_read(node: onnx.NodeProto) -> set[str]:
    """What a node reads, its subgraphs included; what those write themselves is not of the graph around."""
    inner = list(expansion.walk([node]))
    written = {name for other in inner if other is not node for name in other.output}
    read = {name for other in inner for name in other.input}
    for attribute in node.attribute:
        read.update(value.name for value in attribute.g.output)
    return read - written
