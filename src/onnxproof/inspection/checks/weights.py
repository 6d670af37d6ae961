"""Weights: their number beside the module's, copies, those that no node consumes, and their precision."""

from collections import defaultdict
from collections.abc import Iterator

from onnxproof.inspection.view import Check, Rating, View, Weight, format_bytes, list_names

_SMALL = 64
"""Elements up to which a weight is not looked at: a scalar or a shape, which costs nothing."""
_MARGIN = 0.05
"""Share by which the counts may differ (not measured). Vectors may be fewer: folding a BatchNorm drops four numbers of a channel and adds one."""


def check(view: View) -> Iterator[Check]:
    """Compare their number, look for copies, for weights that are not consumed, and for float64."""
    if view.state:
        yield _check_count(view)
    yield _check_copies(view)
    yield _check_unread(view)
    yield _check_precision(view)


def _check_count(view: View) -> Check:
    floats = [tensor for tensor in view.state.values() if tensor.is_floating_point()]
    most = sum(tensor.numel() for tensor in floats)
    least = sum(tensor.numel() for tensor in floats if tensor.dim() > 1)
    count = _count_elements(view)
    excess = 0
    if count > most:
        excess = count - most
    elif count < least:
        excess = count - least
    share = excess / max(most, 1)
    what = f"{count:,} parameters in the file, {most:,} in the module"
    if abs(share) <= _MARGIN:
        return Check(name="parameters", rating=Rating.GOOD, what=what)
    if share < 0:
        return Check(
            name="parameters",
            rating=Rating.BAD,
            what=f"{what}: {-share:.0%} are missing",
            help="part of the module was not exported, or was folded into constants",
        )
    return Check(
        name="parameters",
        rating=Rating.ODD,
        what=f"{what}: {share:.0%} too many",
        help="a shared weight was copied, or tracing computed a constant and kept it",
    )


def _count_elements(view: View) -> int:
    """The elements of the file's weights: floats, or whatever a quantized file keeps them in."""
    if view.file.quantized:
        weights = [weight for weight in view.weights if weight.elements > _SMALL]
    else:
        weights = [weight for weight in view.weights if "float" in weight.dtype]
    return sum(weight.elements for weight in weights)


def _check_copies(view: View) -> Check:
    by_digest: dict[str, list[Weight]] = defaultdict(list)
    for weight in view.weights:
        if weight.elements > _SMALL:
            by_digest[weight.digest].append(weight)
    groups = [group for group in by_digest.values() if len(group) > 1]
    wasted = sum(weight.bytes for group in groups for weight in group[1:])
    if not groups:
        return Check(name="copies", rating=Rating.GOOD, what="no weight is there twice")
    names = [weight.name for weight in max(groups, key=lambda group: group[0].bytes)]
    return Check(
        name="copies",
        rating=Rating.ODD,
        what=f"{len(groups)} weights are there more than once, {format_bytes(wasted)} for nothing: {list_names(names)}",
        help="tied weights were split by the exporter; an optimizer that merges equal initializers shares them again",
    )


def _check_unread(view: View) -> Check:
    consumed = view.consumed
    unread = [weight for weight in view.weights if weight.name not in consumed]
    if not unread:
        return Check(name="unread", rating=Rating.GOOD, what="every weight is read")
    return Check(
        name="unread",
        rating=Rating.ODD,
        what=f"{len(unread)} weights are read by nobody, {_size_and_names(unread)}",
        help="a part of the model was cut off without its weights",
    )


def _check_precision(view: View) -> Check:
    large = [weight for weight in view.weights if weight.elements > _SMALL]
    double = [weight for weight in large if weight.dtype == "float64"]
    if double:
        return Check(
            name="precision",
            rating=Rating.ODD,
            what=f"{len(double)} weights are kept in float64, {_size_and_names(double)}",
            help="few runtimes have fast kernels for it; `module.float()` before the export halves it",
        )
    bytes_by_dtype: dict[str, int] = defaultdict(int)
    for weight in view.weights:
        bytes_by_dtype[weight.dtype] += weight.bytes
    largest = sorted(bytes_by_dtype.items(), key=lambda item: -item[1])[:4]
    what = ", ".join(f"{dtype} {format_bytes(size)}" for dtype, size in largest)
    return Check(name="precision", rating=Rating.GOOD, what=what or "no weights")


def _size_and_names(weights: list[Weight]) -> str:
    total = sum(weight.bytes for weight in weights)
    names = [weight.name for weight in weights]
    return f"{format_bytes(total)}: {list_names(names)}"
