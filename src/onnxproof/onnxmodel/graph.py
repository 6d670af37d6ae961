"""The candidate's graph as producers and consumers of values, and what the nodes' metadata says."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.results import Source, Suspect

_SHAPE_ONLY = frozenset({"Shape", "Size", "ConstantOfShape"})


@dataclass(slots=True)
class Graph:
    """The main graph, or one inside it; a node is known by its place in the list."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    producers: dict[str, int] = field(default_factory=dict)
    """Value -> the node that computes it."""
    static: set[str] = field(default_factory=set)
    """Values that depend on weights and shapes alone."""
    _consumers: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, file: OnnxFile) -> "Graph":
        """The main graph of a file."""
        return cls.of_nodes(
            file.model.graph.node,
            static=(t.name for t in file.model.graph.initializer),
            inputs=(port.name for port in file.inputs),
            outputs=(port.name for port in file.outputs),
        )

    @classmethod
    def of_nodes(
        cls,
        nodes: Iterable[onnx.NodeProto],
        *,
        static: Iterable[str],
        inputs: Iterable[str],
        outputs: Iterable[str],
    ) -> "Graph":
        """Read the nodes and find what depends on the inputs."""
        graph = cls(inputs=frozenset(inputs), outputs=frozenset(outputs))
        graph.static = {*static, ""}
        for place, node in enumerate(nodes):
            graph.nodes.append(node)
            graph.producers.update(dict.fromkeys(node.output, place))
            consumed = dict.fromkeys(consumed_names(node))
            for name in consumed:
                graph._consumers.setdefault(name, []).append(place)
            if node.op_type in _SHAPE_ONLY or all(name in graph.static for name in consumed):
                graph.static.update(node.output)
        return graph

    def name(self, place: int) -> str:
        """A node's name, or its first output's where it has none."""
        node = self.nodes[place]
        return node.name or node.output[0]

    def consumers(self, value: str) -> list[int]:
        """The nodes that read a value."""
        return self._consumers.get(value, [])

    def is_fused_with_constants(self, place: int) -> bool:
        """Whether a node is a fused operator with constants of its own: the rest of an operation before it, such as a bias, may be inside of it."""
        node = self.nodes[place]
        return bool(node.domain) and any(name in self.static for name in node.input)


def consumed_names(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads: its inputs, and what its subgraphs take from outside."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in _subgraphs(attribute):
            yield from _captured_names(graph)


def _subgraphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The graphs in one attribute."""
    if attribute.type == onnx.AttributeProto.GRAPH:
        return [attribute.g]
    return list(attribute.graphs)


def _captured_names(graph: onnx.GraphProto) -> Iterator[str]:
    """What a subgraph takes from outside."""
    inner = {name for node in graph.node for name in node.output}
    inner |= {tensor.name for tensor in graph.initializer}
    inner |= {port.name for port in graph.input}
    for node in graph.node:
        yield from (name for name in consumed_names(node) if name not in inner)
    yield from (port.name for port in graph.output if port.name not in inner)


def make_suspect(
    graph: Graph,
    place: int,
    ratio: float,
    why: str = "",
) -> Suspect:
    """A node as a suspect, with what its metadata says of it."""
    module, source = source_of(graph.nodes[place])
    return Suspect(
        node=graph.name(place),
        op_type=graph.nodes[place].op_type,
        ratio=ratio,
        why=why,
        module=module,
        source=source,
    )


def source_of(node: onnx.NodeProto) -> tuple[str | None, Source | None]:
    """Module path and line of Python from the exporter's metadata, or from the scope in a TorchScript node's name."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    return _module_of(node, metadata), _line_of(metadata)


def _module_of(node: onnx.NodeProto, metadata: dict[str, str]) -> str | None:
    """The path of the module that a node comes from."""
    scopes = metadata.get("pkg.torch.onnx.name_scopes")
    if scopes is not None:
        return _last_module(scopes)
    if node.name.startswith("/"):
        return _join_scopes(node.name.strip("/").split("/")[:-1])
    return None


def _last_module(scopes: str) -> str | None:
    """The innermost module of the exporter's list of scopes, whose last item is the node itself."""
    try:
        names = [name for name in ast.literal_eval(scopes) if name]
    except (ValueError, SyntaxError):
        return None
    if len(names) < 2:
        return None
    module: str = names[-2]
    return module


def _line_of(metadata: dict[str, str]) -> Source | None:
    """The innermost line outside of torch, or the innermost of all."""
    trace = metadata.get("pkg.torch.onnx.stack_trace", "")
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    user_frames = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    if not user_frames:
        return None
    file, line, text = user_frames[-1]
    return Source(
        file=str(Path(file)),
        line=int(line),
        text=text.strip(),
    )


def _join_scopes(parts: list[str]) -> str | None:
    """A TorchScript scope such as `f/f.0` or `layer/attention/query` as the module's path."""
    path = ""
    for part in parts:
        if path and not part.startswith(path + "."):
            part = f"{path}.{part}"
        path = part
    return path or None
