"""Exported program to ONNX file: names for inputs, outputs and dims, metadata, external data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxproof.reference import tree

_PROTOBUF_LIMIT = int(1.9e9)
"""A protobuf ends at 2 GB; heavier weights go into a file beside the model."""
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def translate(
    program: Any,
    *,
    opset: int | None = None,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    table: Mapping[Any, Any] | None = None,
) -> Any:
    """torch's own translation; gives its ONNXProgram, which is not yet written anywhere."""
    options: dict[str, Any] = {"opset_version": opset} if opset is not None else {}
    options |= {"input_names": list(input_names)} if input_names else {}
    options |= {"output_names": list(output_names)} if output_names else {}
    if table:
        options["custom_translation_table"] = dict(table)
    return torch.onnx.export(program, dynamo=True, verbose=False, **options)


def output_names(program: Any, inputs: Sequence[str]) -> list[str]:
    """Names for the outputs: dict keys and field names where there are any, `output` for a single tensor; none may be an input's."""
    specs = [
        spec for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"
    ]
    told = tree.flatten(program.call_spec.out_spec.unflatten(list(range(len(specs)))))
    paths = [path for path, place in told if type(specs[place].arg).__name__ != "ConstantArgument"]
    named = [
        "output" if not path else path if not path[0].isdigit() else f"output.{path}"
        for path in paths
    ]
    taken = {name.replace(".", "_") for name in inputs}
    return [
        f"{name}_out" if name in taken else name
        for name in (name.replace(".", "_") for name in named)
    ]


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
    graphs = [
        model.graph,
        *(
            function.graph if hasattr(function, "graph") else function
            for function in model.functions.values()
        ),
    ]
    for graph in graphs:
        yield from graph.inputs
        for node in graph.all_nodes():
            yield from node.outputs


def save(
    onnx_program: Any,
    path: Path,
    metadata: Mapping[str, str],
    *,
    weight: int,
    external: bool | None = None,
) -> bool:
    """Write the file, with its weights beside it when they are asked to be or must be; says which."""
    onnx_program.model.metadata_props.update(metadata)
    kept = apart(weight, external)
    onnx_program.save(str(path), external_data=kept)
    return kept


def apart(weight: int, external: bool | None) -> bool:
    """Whether the weights go into a file of their own: as asked for, else where a protobuf would be too small."""
    return weight > _PROTOBUF_LIMIT if external is None else external


def weight(module: Any) -> int:
    """Bytes of parameters and buffers, shared ones once."""
    tensors = (
        {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        if hasattr(module, "parameters")
        else {}
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
