"""How two models' inputs, outputs and dims go together, and what about that a user should know."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxproof.errors import InputError
from onnxproof.onnxmodel.onnx_file import OnnxFile, Port
from onnxproof.reference import tree as nest
from onnxproof.results import DimInfo, Finding, InputInfo, OutputInfo, Signature

_RANGES = "pkg.torch.export.ExportedProgram.range_constraints"
_DIMS = "onnxproof.dims"
_SUM = re.compile(r"[A-Za-z_]\w*( [+-] [A-Za-z_]\w*)+")
"""How a file says that a dim follows from others: `past + sequence`."""
_NO_BOUND = 1 << 31
"""Beyond it a recorded bound is only the end of the integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor of the reference, by its path in the example."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def merge(
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    file: OnnxFile,
    *,
    tree: Any = None,
    dynamic_shapes: Any = None,
) -> tuple[Signature, list[Finding]]:
    """The signature of the pair, and findings such as a dim the user calls dynamic and the file has fixed."""
    findings: list[Finding] = []
    paired = _pair_inputs(inputs, file, findings)
    specs = dim_specs(tree, dynamic_shapes)
    dims = _Dims(recorded=_recorded(file), told=_told(file))
    infos = tuple(
        _input(leaf, port, by, specs, dims, findings, given=dynamic_shapes is not None)
        for leaf, port, by in paired
    )
    outs = _pair_outputs(outputs, file, findings)
    return Signature(inputs=infos, outputs=outs, dims=dims.all()), findings


def _same(name: str) -> str:
    return name.replace(".", "_")


def _pair_inputs(
    leaves: Sequence[Leaf], file: OnnxFile, findings: list[Finding]
) -> list[tuple[Leaf, Port | None, str]]:
    ports = {port.name: port for port in file.inputs}
    by_name = {leaf.name: ports[_same(leaf.name)] for leaf in leaves if _same(leaf.name) in ports}
    by_name |= {leaf.name: ports[leaf.name] for leaf in leaves if leaf.name in ports}
    rest = [port for port in file.inputs if port not in by_name.values()]
    unnamed = [leaf for leaf in leaves if leaf.name not in by_name]
    by_place = _align(unnamed, rest) if rest else {}
    lonely = [port for port in rest if port not in by_place.values()]
    if lonely:
        have = ", ".join(f"`{leaf.name}` {leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
        raise InputError(
            "input-missing",
            f"the file takes an input `{lonely[0].name}` that the reference does not have",
            where=str(file.path),
            notes=[f"the reference takes {have}", f"the file takes {', '.join(ports)}"],
            help="pass example inputs for all of the file's inputs, in the order of `forward`",
        )
    result: list[tuple[Leaf, Port | None, str]] = []
    for leaf in leaves:
        if leaf.name in by_name:
            result.append((leaf, by_name[leaf.name], "name"))
        elif leaf.name in by_place:
            result.append((leaf, by_place[leaf.name], "position"))
        else:
            result.append((leaf, None, "absent"))
            findings.append(
                Finding(
                    code="input-absent",
                    what=f"the file has no input for `{leaf.name}`: constant folding or the exporter removed it",
                    help="it is varied all the same: if the reference answers to it, the outputs will differ",
                )
            )
    return result


def _align(leaves: Sequence[Leaf], ports: Sequence[Port]) -> dict[str, Port]:
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
    if port.dtype != leaf.dtype or (port.dims is not None and len(port.dims) != len(leaf.shape)):
        return False
    return port.dims is None or all(
        not isinstance(d, int) or d == size for d, size in zip(port.dims, leaf.shape, strict=True)
    )


def _pair_outputs(
    leaves: Sequence[Leaf], file: OnnxFile, findings: list[Finding]
) -> tuple[OutputInfo, ...]:
    ports = [port.name for port in file.outputs]
    by_port = {port.name: port for port in file.outputs}
    names = {
        leaf.name: next((p for p in ports if p in (leaf.name, _same(leaf.name))), None)
        for leaf in leaves
    }
    by_name = bool(leaves) and all(names.values())
    infos = []
    for place, leaf in enumerate(leaves):
        onnx_name = names[leaf.name] if by_name else (ports[place] if place < len(ports) else None)
        if onnx_name is not None and real_view(leaf, by_port[onnx_name]):
            findings.append(_seen_as_real(leaf, by_port[onnx_name], "returns"))
        infos.append(
            OutputInfo(
                name=leaf.name,
                dtype=leaf.dtype,
                shape=leaf.shape,
                onnx_name=onnx_name,
                paired_by="name" if by_name else "position",
            )
        )
    extra = [port for port in ports if port not in {info.onnx_name for info in infos}]
    if extra:
        findings.append(
            Finding(
                code="output-extra",
                what=f"the file returns {', '.join(f'`{e}`' for e in extra)}, which the reference does not",
            )
        )
    return tuple(infos)


class _Dims:
    """The open dims met so far, by name."""

    def __init__(self, recorded: tuple[int, ...], told: Mapping[str, Any] | None) -> None:
        self._found: dict[str, DimInfo] = {}
        self._recorded, self._told = recorded, told

    def add(self, info: DimInfo) -> str:
        old = self._found.get(info.name)
        if old is not None and old.example != info.example and 1 not in (old.example, info.example):
            info = replace(
                info, name=f"{info.name}_{info.example}"
            )  # one name for two sizes: keep them apart
        if info.name not in self._found or info.declared:
            self._found[info.name] = self._bounded(info)
        return info.name

    def _bounded(self, info: DimInfo) -> DimInfo:
        """With the sizes that were promised, or else those that were assumed: beyond an assumption the file must be tried."""
        if self._told is None:
            return replace(
                info, recorded=(None, max(self._recorded)) if self._recorded else (None, None)
            )
        entry = self._told.get(info.name, {})
        if entry.get("promised") and info.maximum is None:
            return replace(info, minimum=entry["minimum"], maximum=entry.get("maximum"))
        return replace(info, recorded=(entry.get("minimum") or None, entry.get("maximum")))

    def all(self) -> tuple[DimInfo, ...]:
        return tuple(self._found.values())


def real_view(leaf: Leaf, port: Port | None) -> bool:
    """True where a complex tensor of the reference is a real one with a last dim of 2 in the file, as exporters write it."""
    if port is None or not leaf.dtype.startswith("complex") or not port.dtype.startswith("float"):
        return False
    return port.dims is None or (
        len(port.dims) == len(leaf.shape) + 1 and port.dims[-1] in (2, None)
    )


def _seen_as_real(leaf: Leaf, port: Port, verb: str) -> Finding:
    return Finding(
        code="complex-as-real",
        what=f"`{leaf.name}` is {leaf.dtype} in the reference, and the file {verb} its real view `{port.name}` [..., 2]",
        help="real and imaginary parts are compared one by one; whoever serves the file must put them together",
    )


def _input(
    leaf: Leaf,
    port: Port | None,
    by: str,
    specs: Mapping[str, Mapping[int, Any]],
    dims: _Dims,
    findings: list[Finding],
    *,
    given: bool,
) -> InputInfo:
    if port is not None and port.dims is not None and real_view(leaf, port):
        findings.append(_seen_as_real(leaf, port, "takes"))
        info = _input(
            leaf,
            replace(port, dtype=leaf.dtype, dims=port.dims[:-1]),
            by,
            specs,
            dims,
            findings,
            given=given,
        )
        return replace(info, onnx_dtype=port.dtype)
    if port is not None and port.dims is not None and len(port.dims) != len(leaf.shape):
        raise InputError(
            "rank-differs",
            f"`{leaf.name}` has {len(leaf.shape)} dims and the file's `{port.name}` has {len(port.dims)}",
            notes=[
                f"the example is {leaf.dtype}{list(leaf.shape)}, the file says {list(port.dims)}"
            ],
            help="pass the example as the file takes it, or check the order of the inputs",
        )
    if port is not None and port.dtype not in (leaf.dtype, "unknown"):
        findings.append(
            Finding(
                code="input-dtype",
                what=f"`{leaf.name}` is {leaf.dtype} for the reference and {port.dtype} for the file (`{port.name}`)",
                help="it is converted for the file; values that the narrower type can't hold will show as a difference",
            )
        )
    turned = (
        other_layout(leaf.shape, port.dims) if port is not None and port.dims is not None else None
    )
    if port is not None and port.dims is not None and turned is not None:
        raise InputError(
            "layout-differs",
            f"the file's `{port.name}` has the dims of `{leaf.name}` in the order {list(turned)}: channels first on one side, last on the other",
            notes=[
                f"the example is {leaf.dtype}{list(leaf.shape)}, the file says {list(port.dims)}"
            ],
            help="deployment must transpose its input, too: put the transpose into the module that is verified, or export again",
        )
    wanted = specs.get(leaf.name, {})
    merged: list[str | int] = []
    for axis, size in enumerate(leaf.shape):
        filed = (
            port.dims[axis]
            if port is not None and port.dims is not None
            else (size if port is not None else None)
        )
        merged.append(_dim(leaf, axis, size, filed, wanted.get(axis), dims, findings, given=given))
    return InputInfo(
        name=leaf.name,
        dtype=leaf.dtype,
        shape=leaf.shape,
        dims=tuple(merged),
        onnx_name=port.name if port else None,
        onnx_dtype=port.dtype if port else None,
        paired_by=by,
    )


def other_layout(shape: Sequence[int], dims: Sequence[str | int | None]) -> tuple[int, ...] | None:
    """The order that puts the channels of an image last, or first, where only so the file's fixed dims are those of the example."""

    def fits(order: Sequence[int]) -> bool:
        return all(
            not isinstance(dim, int) or dim == shape[axis]
            for axis, dim in zip(order, dims, strict=True)
        )

    rank = len(shape)
    last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    return (
        next((order for order in (last, first) if fits(order)), None)
        if rank in (4, 5) and not fits(range(rank))
        else None
    )


def _dim(
    leaf: Leaf,
    axis: int,
    size: int,
    filed: str | int | None,
    spec: Any,
    dims: _Dims,
    findings: list[Finding],
    *,
    given: bool,
) -> str | int:
    """One dim: the user's word first, then the file's."""
    fallback = (
        filed if isinstance(filed, str) and filed.isidentifier() else f"{_same(leaf.name)}_{axis}"
    )
    kind = spec_kind(spec)
    if kind == "open":
        name = spec_name(spec) or fallback
        low, high = spec_range(spec)
        if isinstance(filed, int):
            findings.append(
                Finding(
                    code="dim-fixed",
                    what=f"dim {axis} of `{leaf.name}` (`{name}`) is meant to vary, and the file has it fixed at {filed}",
                    help="export again with dynamic_shapes (or dynamic_axes) for it",
                )
            )
        return dims.add(DimInfo(name=name, example=size, minimum=low, maximum=high, declared=True))
    if isinstance(filed, int):
        if filed != size:
            raise InputError(
                "size-differs",
                f"dim {axis} of `{leaf.name}` is {size} in the example and fixed at {filed} in the file",
                help="pass an example of the file's size, or export again with a dynamic dim",
            )
        return size
    if given and kind == "closed":
        return size
    derived = (
        filed
        if isinstance(filed, str) and not filed.isidentifier() and _SUM.fullmatch(filed)
        else ""
    )
    return dims.add(DimInfo(name=fallback, example=size, derived=derived))


def dim_specs(tree: Any, dynamic_shapes: Any) -> dict[str, dict[int, Any]]:
    """The user's `dynamic_shapes` by leaf and axis: dicts, tuples and None, nested as the inputs are."""
    if dynamic_shapes is None or tree is None:
        return {}
    found: dict[str, dict[int, Any]] = {}
    if not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = dict(zip(tree, dynamic_shapes, strict=False))
    unknown = [name for name in dynamic_shapes if name not in tree]
    if unknown:
        raise InputError(
            "unknown-input",
            f"dynamic_shapes names `{unknown[0]}`, which the reference does not take",
            notes=[f"it takes {', '.join(tree)}"],
        )
    for name, value in tree.items():
        _collect(value, dynamic_shapes.get(name), name, found)
    return found


def _collect(value: Any, spec: Any, path: str, found: dict[str, dict[int, Any]]) -> None:
    if value is None or spec is None:
        return
    leaves = list(nest.flatten(value))
    if len(leaves) == 1 and leaves[0][0] == "":
        axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        found[path] = {int(axis): entry for axis, entry in axes}
        return
    children = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list | tuple)
        else []
    )
    for key, child in children:
        inner = (
            spec.get(key)
            if isinstance(spec, Mapping)
            else spec[key]
            if isinstance(key, int) and key < len(spec)
            else None
        )
        _collect(child, inner, f"{path}.{key}", found)


def spec_kind(spec: Any) -> str:
    """open (a name, a Dim, DYNAMIC), auto (the file decides), or closed."""
    if spec is None or isinstance(spec, int):
        return "closed"
    text = str(getattr(spec, "type", spec)).upper()
    if "AUTO" in text and not isinstance(spec, str):
        return "auto"
    return "closed" if "STATIC" in text and not isinstance(spec, str) else "open"


def spec_name(spec: Any) -> str:
    """The name that a spec gives its dim, if any."""
    if isinstance(spec, str):
        return spec
    name = getattr(spec, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else ""


def spec_range(spec: Any) -> tuple[int, int | None]:
    """The sizes that a spec allows."""
    low, high = getattr(spec, "min", None), getattr(spec, "max", None)
    return (
        low if isinstance(low, int) else 0,
        int(high) if isinstance(high, int) and high < 1 << 40 else None,
    )


def _recorded(file: OnnxFile) -> tuple[int, ...]:
    """The upper bounds torch assumed. It keeps them under names that the file no longer uses, so they are a pool."""
    return tuple(
        int(high)
        for high in re.findall(r"VR\[\d+, (\d{1,18})\]", file.metadata(_RANGES))
        if int(high) < _NO_BOUND
    )


def _told(file: OnnxFile) -> dict[str, Any] | None:
    """What `onnxproof export` wrote about each dim of a file; None for other files."""
    try:
        entries = json.loads(file.metadata(_DIMS) or "null")
        return (
            {str(entry["name"]): entry for entry in entries}
            if all(map(_is_range, entries))
            else None
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ):  # there is nothing, or somebody else's
        return None


def _is_range(entry: Mapping[str, Any]) -> bool:
    """Whether the sizes of an entry are sizes, and in order; a promise needs the smaller one."""
    low, high = entry.get("minimum"), entry.get("maximum")
    sizes = [size for size in (low, high) if size is not None]
    return (
        all(type(size) is int and size >= 0 for size in sizes)
        and sizes == sorted(sizes)
        and not (entry.get("promised") and low is None)
    )
