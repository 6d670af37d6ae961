"""One branch of a merged decoder as a model of its own, so that its nodes can be run and located like any others."""

import hashlib
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


def write_merged(first: Path, step: Path, path: Path) -> None:
    """One file of a decoder's two calls, chosen by `use_cache_branch`; both are removed.

    1. Weights that are the same in both stand once, outside of the branches.
    2. Each branch keeps its own names behind its own prefix.
    3. The branch with a cache gives the encoder's part of it back as it was handed it.
    """
    models = {"else_branch": onnx.load(first), "then_branch": onnx.load(step)}
    names = [port.name for port in models["else_branch"].graph.output]
    weights: dict[bytes, onnx.TensorProto] = {}
    branches = {
        attribute: _as_branch(model.graph, attribute, names, weights)
        for attribute, model in models.items()
    }
    switch = onnx.helper.make_tensor_value_info(SWITCH, onnx.TensorProto.BOOL, [1])
    inputs = {port.name: port for model in models.values() for port in model.graph.input}
    outputs = [_of_any_length(port) for port in models["else_branch"].graph.output]
    choice = onnx.helper.make_node("If", [SWITCH], names, name="use_cache", **branches)
    graph = onnx.helper.make_graph(
        [choice], "merged", [*inputs.values(), switch], outputs, list(weights.values())
    )
    main = models["else_branch"]
    opsets = {entry.domain: entry for model in models.values() for entry in model.opset_import}
    functions = {(f.domain, f.name): f for model in models.values() for f in model.functions}
    merged = onnx.helper.make_model(
        graph,
        opset_imports=opsets.values(),
        ir_version=main.ir_version,
        functions=functions.values(),
        producer_name=main.producer_name,
    )
    save(merged, path)
    for old in (first, step):
        for data in (old, old.with_name(f"{old.name}.data")):
            data.unlink(missing_ok=True)


def _as_branch(
    graph: onnx.GraphProto,
    attribute: str,
    outputs: list[str],
    weights: dict[bytes, onnx.TensorProto],
) -> onnx.GraphProto:
    """A graph whose values have a prefix; its inputs are the merged graph's, and its weights are shared."""
    prefix = attribute.removesuffix("_branch")
    names = {port.name: port.name for port in graph.input}
    for tensor in graph.initializer:  # 1
        names[tensor.name] = _shared(tensor, weights)
    for node in graph.node:
        names.update({name: f"{prefix}/{name}" for name in node.output if name})  # 2
    nodes = [_renamed(node, names) for node in graph.node]
    for node in nodes:
        node.name = f"{prefix}/{node.name}"
    made = {port.name for port in graph.output}
    ports = []
    for name in outputs:
        inner = names[name] if name in made else f"{prefix}/{name}"
        if name not in made:  # 3
            past = name.replace("present", "past_key_values", 1)
            nodes.append(onnx.helper.make_node("Identity", [past], [inner], name=f"{inner}/kept"))
        ports.append(onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, None))
    return onnx.helper.make_graph(nodes, prefix, [], ports)


def _shared(tensor: onnx.TensorProto, weights: dict[bytes, onnx.TensorProto]) -> str:
    """The name under which a weight's bytes stand in the merged graph."""
    content = onnx.TensorProto()
    content.CopyFrom(tensor)
    content.name, content.doc_string = "", ""
    del content.metadata_props[:]
    key = hashlib.sha256(content.SerializeToString(deterministic=True)).digest()
    if key not in weights:
        content.name = tensor.name
        taken = {weight.name for weight in weights.values()}
        while content.name in taken:
            content.name += "_"
        weights[key] = content
    return weights[key].name


def _of_any_length(port: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """An output whose length depends on the branch."""
    open_port = onnx.ValueInfoProto()
    open_port.CopyFrom(port)
    if cache_place(port.name) is not None:
        open_port.type.tensor_type.shape.dim[2].dim_param = f"{port.name}.length"
    return open_port
