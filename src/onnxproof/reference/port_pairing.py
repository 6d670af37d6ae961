"""Which port of a file is which input or output of the reference, where ports may be sequences and maps of several parts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnxproof.numerics import port_values
from onnxproof.onnxmodel.onnx_file import OnnxFile, Port
from onnxproof.reference.leaf import Leaf


def as_identifier(name: str) -> str:
    """A path as exporters write it."""
    return name.replace(".", "_")


def input_ports(leaves: Sequence[Leaf], file: OnnxFile) -> list[Port]:
    """The file's inputs, a sequence or map as one port for each of its parts that the reference takes."""
    parts = _parts(leaves)
    ports: list[Port] = []
    for place, port in enumerate(file.inputs):
        named = _parts_of(port, place, parts)
        if port.kind == "tensor" or not named:
            ports.append(port)
        else:
            ports += [replace(port, name=port_values.join(port.name, part)) for part in named]
    return ports


def _parts(leaves: Sequence[Leaf]) -> dict[str, list[str]]:
    """The parts of each input; those of a module's list are `xs.0`, `xs.1`."""
    parts: dict[str, list[str]] = {}
    for leaf in leaves:
        root, part = port_values.split(leaf.name)
        container, dot, place = root.rpartition(".")
        if dot and place.isdigit() and not part:
            root, part = container, f"[{place}]"
        parts.setdefault(root, []).append(part)
    return parts


def _parts_of(port: Port, place: int, parts: Mapping[str, list[str]]) -> list[str]:
    """The parts of the input that has the port's name, or its place."""
    root = port.name
    if root not in parts and place < len(parts):
        root = list(parts)[place]
    return [part for part in parts.get(root, ()) if part]


def pair_outputs(leaves: Sequence[Leaf], file: OnnxFile) -> tuple[dict[str, str | None], str]:
    """The file's output for each of the reference's, the parts of a sequence or map together, and how they were paired."""
    roots = list(port_values.group(leaf.name for leaf in leaves))
    by_name = {root: _output_by_name(root, file) for root in roots}
    if roots and all(by_name.values()):
        return by_name, "name"
    names = [port.name for port in file.outputs]
    padded = [*names, *[None] * len(roots)][: len(roots)]
    return dict(zip(roots, padded, strict=True)), "position"


def _output_by_name(root: str, file: OnnxFile) -> str | None:
    names = (root, as_identifier(root))
    return next((port.name for port in file.outputs if port.name in names), None)
