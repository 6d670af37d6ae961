"""How two models' inputs, outputs and dims go together, and what about that a user should know."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxproof.errors import InputError
from onnxproof.numerics import port_values
from onnxproof.onnxmodel.onnx_file import OnnxFile, Port
from onnxproof.reference.dynamic_shapes import (
    dim_specs,
    spec_kind,
    spec_name,
    spec_range,
    spec_sum,
)
from onnxproof.reference.leaf import Leaf
from onnxproof.reference.open_dims import OpenDims
from onnxproof.reference.port_pairing import as_identifier, input_ports, pair_outputs
from onnxproof.results import DimInfo, Finding, InputInfo, OutputInfo, Signature

_SUM = re.compile(r"[A-Za-z_]\w*( [+-] [A-Za-z_]\w*)+")
"""How a file says that a dim follows from others: `past + sequence`."""


def merge(
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    file: OnnxFile,
    *,
    tree: Any = None,
    dynamic_shapes: Any = None,
    states: Collection[str] = (),
) -> tuple[Signature, list[Finding]]:
    """The signature of the pair, and findings such as a dim the user calls dynamic and the file has fixed.

    `states` are inputs that come back from an output: the file may keep them in a layout of its own.
    """
    findings: list[Finding] = []
    pairs = _pair_inputs(inputs, file, findings)
    merger = _InputMerger(
        specs=dim_specs(tree, dynamic_shapes),
        has_specs=dynamic_shapes is not None,
        dims=OpenDims(file),
        findings=findings,
        states=states,
    )
    input_infos = tuple(merger.merge(leaf, port, paired_by) for leaf, port, paired_by in pairs)
    output_infos = _pair_outputs(outputs, file, findings)
    signature = Signature(inputs=input_infos, outputs=output_infos, dims=merger.dims.all())
    return signature, findings


def _pair_inputs(
    leaves: Sequence[Leaf],
    file: OnnxFile,
    findings: list[Finding],
) -> list[tuple[Leaf, Port | None, str]]:
    """Each leaf with the file's input and how it was paired: by name first, then by position."""
    ports = input_ports(leaves, file)
    by_name = _pair_by_name(leaves, ports)
    unpaired_ports = [port for port in ports if port not in by_name.values()]
    unpaired_leaves = [leaf for leaf in leaves if leaf.name not in by_name]
    by_position: dict[str, Port] = {}
    if unpaired_ports:
        by_position = _pair_by_position(unpaired_leaves, unpaired_ports)
    missing = [port for port in unpaired_ports if port not in by_position.values()]
    if missing:
        raise _input_missing(missing[0], leaves, file)
    pairs: list[tuple[Leaf, Port | None, str]] = []
    for leaf in leaves:
        if leaf.name in by_name:
            pairs.append((leaf, by_name[leaf.name], "name"))
        elif leaf.name in by_position:
            pairs.append((leaf, by_position[leaf.name], "position"))
        else:
            pairs.append((leaf, None, "absent"))
            findings.append(
                Finding(
                    code="input-absent",
                    what=f"the file has no input for `{leaf.name}`: constant folding or the exporter removed it",
                    help="it is varied all the same: if the reference answers to it, the outputs will differ",
                )
            )
    return pairs


def _pair_by_name(leaves: Sequence[Leaf], ports: Sequence[Port]) -> dict[str, Port]:
    by_name = {port.name: port for port in ports}
    pairs: dict[str, Port] = {}
    for leaf in leaves:
        port = by_name.get(leaf.name) or by_name.get(as_identifier(leaf.name))
        if port is not None:
            pairs[leaf.name] = port
    return pairs


def _pair_by_position(leaves: Sequence[Leaf], ports: Sequence[Port]) -> dict[str, Port]:
    """Pairs in order; where the file has fewer inputs, the first order-keeping choice whose dtypes and ranks fit."""
    if len(leaves) == len(ports):
        return {leaf.name: port for leaf, port in zip(leaves, ports, strict=True)}
    pairs: dict[str, Port] = {}
    waiting = list(ports)
    for index, leaf in enumerate(leaves):
        must = len(leaves) - index <= len(waiting)
        if waiting and (must or _fits(leaf, waiting[0])):
            pairs[leaf.name] = waiting.pop(0)
    return pairs


def _fits(leaf: Leaf, port: Port) -> bool:
    if port.dtype != leaf.dtype:
        return False
    if port.dims is None:
        return True
    return len(port.dims) == len(leaf.shape) and _fixed_dims_agree(port.dims, leaf.shape)


def _fixed_dims_agree(dims: Sequence[str | int | None], shape: Sequence[int]) -> bool:
    return all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, shape, strict=True)
    )


def _input_missing(port: Port, leaves: Sequence[Leaf], file: OnnxFile) -> InputError:
    have = ", ".join(f"`{leaf.name}` {leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
    names = dict.fromkeys(port.name for port in file.inputs)
    return InputError(
        "input-missing",
        f"the file takes an input `{port.name}` that the reference does not have",
        where=str(file.path),
        notes=[f"the reference takes {have}", f"the file takes {', '.join(names)}"],
        help="pass example inputs for all of the file's inputs, in the order of `forward`",
    )


def _pair_outputs(
    leaves: Sequence[Leaf],
    file: OnnxFile,
    findings: list[Finding],
) -> tuple[OutputInfo, ...]:
    """By name where every leaf has its name in the file, else by position."""
    ports = {port.name: port for port in file.outputs}
    roots, paired_by = pair_outputs(leaves, file)
    infos = []
    for leaf in leaves:
        root, part = port_values.split(leaf.name)
        port_name = roots[root]
        onnx_name = None if port_name is None else port_values.join(port_name, part)
        if port_name is not None and real_view(leaf, ports[port_name]):
            findings.append(_complex_as_real(leaf, ports[port_name], "returns"))
        infos.append(
            OutputInfo(
                name=leaf.name,
                dtype=leaf.dtype,
                shape=leaf.shape,
                onnx_name=onnx_name,
                paired_by=paired_by,
            )
        )
    extra = [f"`{port.name}`" for port in file.outputs if port.name not in roots.values()]
    if extra:
        findings.append(
            Finding(
                code="output-extra",
                what=f"the file returns {', '.join(extra)}, which the reference does not",
            )
        )
    return tuple(infos)


def real_view(leaf: Leaf, port: Port | None) -> bool:
    """True where a complex tensor of the reference is a real one with a last dim of 2 in the file, as exporters write it."""
    if port is None or not leaf.dtype.startswith("complex") or not port.dtype.startswith("float"):
        return False
    if port.dims is None:
        return True
    return len(port.dims) == len(leaf.shape) + 1 and port.dims[-1] in (2, None)


def _complex_as_real(leaf: Leaf, port: Port, verb: str) -> Finding:
    return Finding(
        code="complex-as-real",
        what=f"`{leaf.name}` is {leaf.dtype} in the reference, and the file {verb} its real view `{port.name}` [..., 2]",
        help="real and imaginary parts are compared one by one; whoever serves the file must put them together",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _InputMerger:
    """Merges what the example, the user's `dynamic_shapes` and the file say about each input."""

    specs: Mapping[str, Mapping[int, Any]]
    """The user's word for each dim."""
    has_specs: bool
    """Whether the user passed `dynamic_shapes` at all: a dim without a spec is closed then."""
    dims: OpenDims
    findings: list[Finding]
    states: Collection[str] = ()
    """Inputs whose layout in the file is the file's own."""

    def merge(
        self,
        leaf: Leaf,
        port: Port | None,
        paired_by: str,
    ) -> InputInfo:
        """One input of the signature."""
        if port is None:
            return self._info(leaf, None, [None] * len(leaf.shape), paired_by)
        if leaf.name in self.states:
            return self._info(leaf, port, _state_dims(leaf, port), paired_by)
        if port.dims is not None and real_view(leaf, port):
            self.findings.append(_complex_as_real(leaf, port, "takes"))
            as_complex = replace(port, dtype=leaf.dtype, dims=port.dims[:-1])
            return replace(self.merge(leaf, as_complex, paired_by), onnx_dtype=port.dtype)
        if port.dims is not None:
            _check_rank(leaf, port, port.dims)
        if port.dtype not in (leaf.dtype, "unknown"):
            self.findings.append(
                Finding(
                    code="input-dtype",
                    what=f"`{leaf.name}` is {leaf.dtype} for the reference and {port.dtype} for the file (`{port.name}`)",
                    help="it is converted for the file; values that the narrower type can't hold will show as a difference",
                )
            )
        if port.dims is None:
            return self._info(leaf, port, leaf.shape, paired_by)
        _check_layout(leaf, port, port.dims)
        return self._info(leaf, port, port.dims, paired_by)

    def _info(
        self,
        leaf: Leaf,
        port: Port | None,
        file_dims: Sequence[str | int | None],
        paired_by: str,
    ) -> InputInfo:
        dims = [self._dim(leaf, axis, file_dim) for axis, file_dim in enumerate(file_dims)]
        return InputInfo(
            name=leaf.name,
            dtype=leaf.dtype,
            shape=leaf.shape,
            dims=tuple(dims),
            onnx_name=port.name if port else None,
            onnx_dtype=port.dtype if port else None,
            paired_by=paired_by,
        )

    def _dim(
        self,
        leaf: Leaf,
        axis: int,
        file_dim: str | int | None,
    ) -> str | int:
        """One dim: the user's word first, then the file's."""
        size = leaf.shape[axis]
        spec = self.specs.get(leaf.name, {}).get(axis)
        kind = spec_kind(spec)
        if kind == "open":
            return self._declared_dim(leaf, axis, file_dim, spec)
        if isinstance(file_dim, int):
            if file_dim != size:
                raise InputError(
                    "size-differs",
                    f"dim {axis} of `{leaf.name}` is {size} in the example and fixed at {file_dim} in the file",
                    help="pass an example of the file's size, or export again with a dynamic dim",
                )
            return size
        if self.has_specs and kind == "closed":
            return size
        name = _dim_name(leaf, axis, file_dim)
        return self.dims.add(DimInfo(name=name, example=size, derived=_derived(file_dim)))

    def _declared_dim(
        self,
        leaf: Leaf,
        axis: int,
        file_dim: str | int | None,
        spec: Any,
    ) -> str:
        derived = spec_sum(spec)
        name = spec_name(spec) or _dim_name(leaf, axis, file_dim)
        if derived:
            name = _dim_name(leaf, axis, file_dim)
        low, high = spec_range(spec)
        if isinstance(file_dim, int):
            self.findings.append(
                Finding(
                    code="dim-fixed",
                    what=f"dim {axis} of `{leaf.name}` (`{name}`) is meant to vary, and the file has it fixed at {file_dim}",
                    help="export again with dynamic_shapes (or dynamic_axes) for it",
                )
            )
        return self.dims.add(
            DimInfo(
                name=name,
                example=leaf.shape[axis],
                minimum=low,
                maximum=high,
                declared=True,
                derived=derived,
            )
        )


def _dim_name(leaf: Leaf, axis: int, file_dim: str | int | None) -> str:
    """The file's name for a dim, or one made of its place."""
    if isinstance(file_dim, str) and file_dim.isidentifier():
        return file_dim
    return f"{as_identifier(leaf.name)}_{axis}"


def _derived(file_dim: str | int | None) -> str:
    """The sum of other dims that a file writes for this one; empty where it writes a name or nothing."""
    if isinstance(file_dim, str) and not file_dim.isidentifier() and _SUM.fullmatch(file_dim):
        return file_dim
    return ""


def _state_dims(leaf: Leaf, port: Port) -> Sequence[str | int | None]:
    """The file's dims of a state, or unknown ones where its layout is another."""
    if port.dims is None:
        return leaf.shape
    if len(port.dims) == len(leaf.shape) and _fixed_dims_agree(port.dims, leaf.shape):
        return port.dims
    return [None] * len(leaf.shape)


def _check_rank(leaf: Leaf, port: Port, dims: Sequence[str | int | None]) -> None:
    if len(dims) != len(leaf.shape):
        raise InputError(
            "rank-differs",
            f"`{leaf.name}` has {len(leaf.shape)} dims and the file's `{port.name}` has {len(dims)}",
            notes=[f"the example is {leaf.dtype}{list(leaf.shape)}, the file says {list(dims)}"],
            help="pass the example as the file takes it, or check the order of the inputs",
        )


def _check_layout(leaf: Leaf, port: Port, dims: Sequence[str | int | None]) -> None:
    order = other_layout(leaf.shape, dims)
    if order is not None:
        raise InputError(
            "layout-differs",
            f"the file's `{port.name}` has the dims of `{leaf.name}` in the order {list(order)}: channels first on one side, last on the other",
            notes=[f"the example is {leaf.dtype}{list(leaf.shape)}, the file says {list(dims)}"],
            help="deployment must transpose its input, too: put the transpose into the module that is verified, or export again",
        )


def other_layout(shape: Sequence[int], dims: Sequence[str | int | None]) -> tuple[int, ...] | None:
    """The order that puts the channels of an image last, or first, where only so the file's fixed dims are those of the example."""
    rank = len(shape)
    if rank not in (4, 5) or _fixed_dims_agree(dims, shape):
        return None
    channels_last = (0, *range(2, rank), 1)
    channels_first = (0, rank - 1, *range(1, rank - 1))
    for order in (channels_last, channels_first):
        if _fixed_dims_agree(dims, [shape[axis] for axis in order]):
            return order
    return None
