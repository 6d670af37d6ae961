"""The candidate's graph as locating sees it: values, who makes them, who reads them, and what metadata says."""

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
    """The main graph, or one inside it: nodes in order, with names for those that have none."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    static: set[str] = field(default_factory=set)
    """Values that depend on weights and shapes alone."""

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
            graph.makers.update(dict.fromkeys(node.output, place))
            read = dict.fromkeys(captured(node))
            for name in read:
                graph.readers.setdefault(name, []).append(place)
            if node.op_type in _SHAPE_ONLY or all(name in graph.static for name in read):
                graph.static.update(node.output)
        return graph

    def name(self, place: int) -> str:
        """A node's name, or its first output's where it has none."""
        node = self.nodes[place]
        return node.name or node.output[0]

    def consumers(self, value: str) -> list[int]:
        """The places of the nodes that read a value."""
        return self.readers.get(value, [])


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads: its inputs, and what its subgraphs take from outside."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (
            [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
        ):
            inner = (
                {o for n in graph.node for o in n.output}
                | {t.name for t in graph.initializer}
                | {i.name for i in graph.input}
            )
            for child in graph.node:
                yield from (name for name in captured(child) if name not in inner)
            yield from (o.name for o in graph.output if o.name not in inner)


def suspect(graph: Graph, place: int, ratio: float, why: str = "") -> Suspect:
    """A node with what its metadata says of it."""
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
    props = {p.key: p.value for p in node.metadata_props}
    module = None
    if "pkg.torch.onnx.name_scopes" in props:
        try:
            scopes = [s for s in ast.literal_eval(props["pkg.torch.onnx.name_scopes"]) if s]
        except (ValueError, SyntaxError):
            scopes = []
        module = scopes[-2] if len(scopes) > 1 else None
    elif node.name.startswith("/"):
        module = _joined(node.name.strip("/").split("/")[:-1])
    trace = props.get("pkg.torch.onnx.stack_trace", "")
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    users = [f for f in frames if "/torch/" not in f[0]] or frames
    if not users:
        return module, None
    file, line, text = users[-1]
    return module, Source(file=str(Path(file)), line=int(line), text=text.strip())


def _joined(parts: list[str]) -> str | None:
    """A TorchScript scope such as `f/f.0` or `layer/attention/query` as the module's path."""
    path = ""
    for part in parts:
        path = part if not path or part.startswith(path + ".") else f"{path}.{part}"
    return path or None
