"""Exported program to ONNX file: names for inputs, outputs and dims, metadata, external data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxproof.reference import tree

_PROTOBUF_LIMIT = int(1.9e9)
"""A protobuf ends at 2 GB; larger weights go into a file beside the model."""
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def translate(
    program: Any,
    *,
    opset: int | None = None,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    table: Mapping[Any, Any] | None = None,
    optimize: bool = True,
) -> Any:
    """torch's own translation; returns its ONNXProgram, which is not yet written anywhere."""
    options: dict[str, Any] = {}
    if opset is not None:
        options["opset_version"] = opset
    if input_names:
        options["input_names"] = list(input_names)
    if output_names:
        options["output_names"] = list(output_names)
    if table:
        options["custom_translation_table"] = dict(table)
    return torch.onnx.export(program, dynamo=True, verbose=False, optimize=optimize, **options)


def output_names(program: Any, inputs: Sequence[str]) -> list[str]:
    """Names for the outputs: dict keys and field names where there are any, `output` for a single tensor; none may be an input's."""
    output_specs = program.graph_signature.output_specs
    specs = [spec for spec in output_specs if spec.kind.name == "USER_OUTPUT"]
    numbered = program.call_spec.out_spec.unflatten(list(range(len(specs))))
    taken = {name.replace(".", "_") for name in inputs}
    names = []
    for path, place in tree.flatten(numbered):
        if type(specs[place].arg).__name__ == "ConstantArgument":
            continue
        name = _output_name(path)
        if name in taken:
            name = f"{name}_out"
        names.append(name)
    return names


def _output_name(path: str) -> str:
    if not path:
        return "output"
    name = path.replace(".", "_")
    if path[0].isdigit():
        return f"output_{name}"
    return name


def rename_dims(model: Any, names: Mapping[str, str]) -> None:
    """The user's names in the place of torch's symbols, in every shape of the graph.

    torch writes a dim that tracing fixed at 6 as an open dim called "6", which every runtime takes for open: here it becomes the number.
    """
    import onnx_ir as ir

    def renamed(dim: Any) -> Any:
        if not isinstance(dim, ir.SymbolicDim) or dim.value is None:
            return dim
        text = _SYMBOL.sub(lambda word: names.get(word[0], word[0]), dim.value)
        return int(text) if text.isdigit() else ir.SymbolicDim(text)

    for value in _values(model):
        if value.shape is not None and not value.shape.is_static():
            value.shape = ir.Shape([renamed(dim) for dim in value.shape])


def _values(model: Any) -> Iterator[Any]:
    graphs = [model.graph]
    graphs += [getattr(function, "graph", function) for function in model.functions.values()]
    for graph in graphs:
        yield from graph.inputs
        for node in graph.all_nodes():
            yield from node.outputs


def save(
    onnx_program: Any,
    path: Path,
    metadata: Mapping[str, str],
    *,
    external: bool,
) -> None:
    """Write the file, with its weights beside it or inside of it."""
    onnx_program.model.metadata_props.update(metadata)
    onnx_program.save(str(path), external_data=external)


def needs_external_data(weight_bytes: int, external: bool | None) -> bool:
    """Whether the weights go into a file of their own: as asked for, else if a protobuf would be too small."""
    if external is None:
        return weight_bytes > _PROTOBUF_LIMIT
    return external


def weight_bytes(module: Any) -> int:
    """Bytes of parameters and buffers, shared ones once."""
    if not hasattr(module, "parameters"):
        return 0
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
