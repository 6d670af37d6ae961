"""One branch of a merged decoder as a model of its own, so that its nodes can be run and located like any others."""

from pathlib import Path

import onnx

from onnxproof.errors import ModelError
from onnxproof.packages.cache_names import cache_place
from onnxproof.packages.full_mask import save

SWITCH = "use_cache_branch"
"""The input that chooses the branch: true takes the cache."""


def write_branch(path: Path, with_cache: bool, folder: Path) -> Path:
    """Write the branch of a merged decoder to a folder; weights that lie beside the file are read into it."""
    model = onnx.load(path)
    name = "with_cache.onnx" if with_cache else "first.onnx"
    written = folder / name
    save(branch_model(model, with_cache, path), written)
    return written


def branch_model(model: onnx.ModelProto, with_cache: bool, path: Path) -> onnx.ModelProto:
    """The graph with its `If` replaced by one of its branches.

    1. The nodes beside the `If` stay, and the branch's nodes take its place under their own names.
    2. What the branch returns gets the names of the `If`'s outputs.
    3. Inputs that nothing reads any more, and caches that only pass through, are left out.
    """
    graph = model.graph
    choice = _choice(graph, path)
    branch = _branch(choice, with_cache)
    names = dict(zip([out.name for out in branch.output], choice.output, strict=True))
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:  # 1
        if node is choice:
            nodes += [_renamed(inner, names) for inner in branch.node]
            nodes += _passed_through(branch, names)
        else:
            nodes.append(node)
    initializers = [*graph.initializer, *branch.initializer]
    read = {name for node in nodes for name in node.input}
    inputs = [port for port in graph.input if port.name in read]  # 3
    outputs = [port for port in graph.output if not _passes_through(port.name, with_cache)]
    single = onnx.helper.make_graph(
        nodes,
        f"{graph.name}.{branch.name}",
        inputs,
        outputs,
        [tensor for tensor in initializers if tensor.name in read],
    )
    return onnx.helper.make_model(
        single,
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        functions=model.functions,
        producer_name=model.producer_name,
    )


def _choice(graph: onnx.GraphProto, path: Path) -> onnx.NodeProto:
    choices: list[onnx.NodeProto] = [
        node for node in graph.node if node.op_type == "If" and node.input[0] == SWITCH
    ]
    if choices:
        return choices[0]
    raise ModelError(
        "not-merged",
        f"`{path.name}` has no `If` that `{SWITCH}` decides",
        where=str(path),
        help="Optimum writes decoder_model_merged.onnx with one",
    )


def _branch(choice: onnx.NodeProto, with_cache: bool) -> onnx.GraphProto:
    wanted = "then_branch" if with_cache else "else_branch"
    branches: list[onnx.GraphProto] = [
        attribute.g for attribute in choice.attribute if attribute.name == wanted
    ]
    return branches[0]


def _renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """A copy of a node that uses other names for some values; in subgraphs of its own too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for attribute in copy.attribute:
        if attribute.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            continue
        for graph in (attribute.g, *attribute.graphs):
            inner = [_renamed(child, names) for child in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return copy


def _passed_through(branch: onnx.GraphProto, names: dict[str, str]) -> list[onnx.NodeProto]:
    """Nodes for what a branch returns without computing it."""
    computed = {name for node in branch.node for name in node.output}
    return [
        onnx.helper.make_node("Identity", [inner], [outer], name=f"{outer}/passed")
        for inner, outer in names.items()
        if inner not in computed
    ]


def _passes_through(name: str, with_cache: bool) -> bool:
    """Whether an output is a cross-attention cache in the branch that is handed it."""
    place = cache_place(name)
    return with_cache and place is not None and place.cross
