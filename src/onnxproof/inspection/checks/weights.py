"""Weights: as many as the module has, none twice, none that nobody reads, and in which precision."""

from collections import defaultdict
from collections.abc import Iterator

from onnxproof.inspection.view import Check, Rating, View, Weight, few, megabytes

_SMALL = 64
"""Elements: shorter ones are scalars and shapes, and cost nothing."""
_MARGIN = 0.05
"""Share by which the counts may differ. Vectors may be fewer: folding a BatchNorm drops four numbers a channel and adds one."""


def check(view: View) -> Iterator[Check]:
    """Count, compare, look for copies and for what is not read."""
    if view.state:
        yield _against_the_module(view)
    yield _copies(view)
    yield _unread(view)
    yield _precision(view)


def _against_the_module(view: View) -> Check:
    state = [tensor for tensor in view.state.values() if tensor.is_floating_point()]
    wanted, least = (
        sum(tensor.numel() for tensor in state),
        sum(tensor.numel() for tensor in state if tensor.dim() > 1),
    )
    found = sum(weight.elements for weight in view.weights if "float" in weight.dtype)
    quantized = view.file.quantized
    if quantized:
        found = sum(weight.elements for weight in view.weights if weight.elements > _SMALL)
    share = (found - (wanted if found > wanted else least if found < least else found)) / max(
        wanted, 1
    )
    what = f"{found:,} parameters in the file, {wanted:,} in the module"
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


def _copies(view: View) -> Check:
    same: dict[str, list[Weight]] = defaultdict(list)
    for weight in view.weights:
        if weight.elements > _SMALL:
            same[weight.digest].append(weight)
    groups = [group for group in same.values() if len(group) > 1]
    wasted = sum(weight.bytes for group in groups for weight in group[1:])
    if not groups:
        return Check(name="copies", rating=Rating.GOOD, what="no weight is there twice")
    names = [weight.name for weight in max(groups, key=lambda group: group[0].bytes)]
    return Check(
        name="copies",
        rating=Rating.ODD,
        what=f"{len(groups)} weights are there more than once, {megabytes(wasted)} for nothing: {few(names)}",
        help="tied weights were split by the exporter; an optimizer that merges equal initializers shares them again",
    )


def _unread(view: View) -> Check:
    read = view.read
    unread = [weight for weight in view.weights if weight.name not in read]
    if not unread:
        return Check(name="unread", rating=Rating.GOOD, what="every weight is read")
    return Check(
        name="unread",
        rating=Rating.ODD,
        what=f"{len(unread)} weights are read by nobody, {megabytes(sum(w.bytes for w in unread))}: {few([w.name for w in unread])}",
        help="a part of the model was cut off without its weights",
    )


def _precision(view: View) -> Check:
    double = [
        weight for weight in view.weights if weight.dtype == "float64" and weight.elements > _SMALL
    ]
    if double:
        return Check(
            name="precision",
            rating=Rating.ODD,
            what=f"{len(double)} weights are kept in float64, {megabytes(sum(w.bytes for w in double))}: {few([w.name for w in double])}",
            help="few runtimes have fast kernels for it; `module.float()` before the export halves it",
        )
    kinds: dict[str, int] = defaultdict(int)
    for weight in view.weights:
        kinds[weight.dtype] += weight.bytes
    told = ", ".join(
        f"{dtype} {megabytes(size)}"
        for dtype, size in sorted(kinds.items(), key=lambda item: -item[1])[:4]
    )
    return Check(name="precision", rating=Rating.GOOD, what=told or "no weights")
