"""The input is prepared otherwise.

What it is: the file expects its input in another form than the module does: channels as BGR instead of RGB, channels
last instead of first, values of 0 to 255 instead of 0 to 1, another mean and standard deviation, another part of the
image; samples of 16 bits instead of -1 to 1; ids that are counted from another number. Or the deployment's own
preprocessing, which `--pipeline` names, makes another tensor of the same raw data than the model's own.

Why it happens: preparing an input is written twice, once for training and once for serving, often with another
library; and a file may have it inside, so that it is done twice or not at all.

How to see it: with its input prepared in that way first, the file says what the module says; or the model's own
preprocessing with that one step changed makes what the deployment makes.

How to fix it: prepare the input in one place. The mended file does what is missing by itself; with
`Subject(preprocess=...)` the preprocessing is exported into the file.

Example: a classifier that was trained on RGB and is fed what `cv2.imread` returns: it runs, and is a little worse.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.input_preparation import (
    Asked,
    FirstLayer,
    Port,
    Preparation,
    ports,
)
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, set_attribute
from onnxproof.preprocessing import affine, norms
from onnxproof.results import Fix, Stage

if TYPE_CHECKING:
    from onnxproof.preprocessing.norms import Norm

TITLE = "the input is prepared otherwise"
PRICE = 9
_MOST_TRIALS = 600
"""Runs of the file for one input: the usual norms of images make 240 pairs, each with the channels in either order."""
_EXPLAINS, _SAME = 1e-4, 1e-5
"""Relative error of the first layer's values up to which a preparation explains them, and up to which there is nothing to explain."""
_LAYOUTS = {
    3: ((1, 2, 0), (2, 0, 1)),
    4: ((0, 2, 3, 1), (0, 3, 1, 2)),
    5: ((0, 2, 3, 4, 1), (0, 4, 1, 2, 3)),
}
_RESIZES: dict[str, dict[str, str | float]] = {
    "bilinear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    "bilinear with antialiasing": {
        "mode": "linear",
        "coordinate_transformation_mode": "half_pixel",
        "antialias": 1,
    },
    "bilinear with aligned corners": {
        "mode": "linear",
        "coordinate_transformation_mode": "align_corners",
    },
    "nearest": {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    },
    "nearest to the middle of each pixel": {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_ceil",
    },
    "bicubic": {
        "mode": "cubic",
        "coordinate_transformation_mode": "half_pixel",
        "cubic_coeff_a": -0.75,
    },
    "bicubic with antialiasing": {
        "mode": "cubic",
        "coordinate_transformation_mode": "half_pixel",
        "cubic_coeff_a": -0.5,
        "antialias": 1,
    },
    "bicubic with aligned corners": {
        "mode": "cubic",
        "coordinate_transformation_mode": "align_corners",
        "cubic_coeff_a": -0.75,
    },
}
_ROUNDS, _TINY = 2, 1e-6
_OFFSETS = (1, -1, 2, -2, 3, -3, 4, -4)


def test(bench: Workbench) -> Tried | str:
    """Prepare each image, sound or text in the other usual ways before the file takes it."""
    if bench.where.stage not in (Stage.EXPORT, Stage.GRAPH):
        return "the file itself is right"
    found = list(ports(bench))
    for port in found[:2]:
        first = FirstLayer(bench, port)
        if _same_already(bench, port, first):
            continue
        tried = _prepared(bench, port, first) or (
            _cropped(bench, port, first) or _resized(bench, first) if port.kind == "image" else None
        )
        if tried is not None:
            return tried
    return (
        "no other preparation of an input makes the answers right"
        if found
        else "no input looks like an image, a sound or a text"
    )


def _prepared(bench: Workbench, port: Port, first: FirstLayer) -> Tried | None:
    asked = Asked(bench, port, most=_MOST_TRIALS)
    for preparation in {"image": _of_image, "sound": _of_sound, "text": _of_text}[port.kind](
        bench, port, first
    ):
        if asked.late:
            return None
        after = asked.mends(preparation)
        if after is not None:
            model = bench.edited(lambda graph: None)
            preparation.insert(model, port)
            return Tried(
                proven=True,
                after=after,
                model=model,
                evidence=f"with its input `{port.name}` {preparation}, the file says what the module says",
                fix=Fix(
                    kind="graph",
                    what=f"give the file `{port.name}` {preparation}: the mended file does it by itself",
                ),
            )
    return None


def _of_text(bench: Workbench, port: Port, first: FirstLayer) -> Iterator[Preparation]:
    for offset in _OFFSETS:
        yield Preparation(
            factor=np.ones(1),
            shift=np.array([float(offset)]),
            said="ids that are counted from another number",
        )


def _of_sound(bench: Workbench, port: Port, first: FirstLayer) -> Iterator[Preparation]:
    return _scaled(bench, port, first, (Preparation(),), norms.SOUNDS)


def _of_image(bench: Workbench, port: Port, first: FirstLayer) -> Iterator[Preparation]:
    bare = Preparation(axis=port.axis)
    reverse = (replace(bare, order=(2, 1, 0, 3)[: port.channels]),) if port.channels > 1 else ()
    if bench.found is None:  # the file refuses the module's shape
        for layout in _LAYOUTS[len(bench.scene.case.inputs[port.name].shape)]:
            for turned in (replace(p, layout=layout) for p in (bare, *reverse)):
                yield turned
                yield from _usual(turned, norms.IMAGES, port.channels) if port.scalable else ()
        return
    yield from reverse
    yield from _scaled(bench, port, first, (bare, *reverse), norms.IMAGES) if port.scalable else ()


def _scaled(
    bench: Workbench,
    port: Port,
    first: FirstLayer,
    bases: tuple[Preparation, ...],
    known: "tuple[Norm, ...]",
) -> Iterator[Preparation]:
    """Computed from the first layer with weights where that can be, else every usual one."""
    for base in bases:
        scales = _computed(bench, port, first, base, known)
        if isinstance(scales, Preparation):
            yield scales
        elif not scales:
            yield from _usual(base, known, port.channels)


def _same_already(bench: Workbench, port: Port, first: FirstLayer) -> bool:
    """True when the first layer makes what the module's makes: then nothing is wrong before it."""
    answer = first(np.asarray(bench.scene.case.inputs[port.name]))
    return answer is not None and any(
        _far(answer.reshape(-1), target.reshape(-1)) <= _SAME
        for target in first.targets(answer.size)
    )


def _usual(base: Preparation, known: "tuple[Norm, ...]", channels: int) -> Iterator[Preparation]:
    for own, other in norms.norm_pairs(known, channels):
        factor, shift = norms.input_map(own, other, channels)
        yield replace(base, factor=factor, shift=shift, said=_said(own, other))


def _said(own: "Norm", other: "Norm") -> str:
    return f"the module has {own.name}, the file {other.name}"


def _computed(
    bench: Workbench, port: Port, first: FirstLayer, base: Preparation, known: "tuple[Norm, ...]"
) -> Preparation | str:
    """The factor and the shift of each channel that make the first layer's values the module's; empty where that can't be computed."""
    given = base.apply(np.asarray(bench.scene.case.inputs[port.name]))
    answer, nothing = first(given), first(np.zeros_like(given))
    if answer is None or nothing is None or not bench.located.traced_values:
        return ""
    parts = [
        first(_only(array, port, channel))
        for array in (given, np.ones_like(given))
        for channel in range(port.channels)
    ]
    columns = np.stack([(part - nothing).reshape(-1) for part in parts if part is not None], 1)
    whole = columns[:, : port.channels].sum(1) + nothing.reshape(-1)
    if not np.isfinite(columns).all() or _far(whole, answer.reshape(-1)) > _EXPLAINS:
        return ""  # something on the way is not affine
    for target in first.targets(answer.size):
        found = affine.fit_columns(columns, target.reshape(-1) - nothing.reshape(-1))
        if found is not None and found[1] <= _EXPLAINS:
            factor, shift = _refined(first, base, given, columns, target, found[0])
            return _named(
                base,
                factor,
                shift,
                known,
                certain=port.kind == "image"
                and answer.shape[1] > port.channels
                and not first.normed,
            )
    return "no factor and shift explain it"


def _refined(
    first: FirstLayer, base: Preparation, given: Array, columns: Array, target: Array, found: Array
) -> tuple[Array, Array]:
    """The same once more for what is left: the columns are differences of float32 values, and have lost digits."""
    for _ in range(_ROUNDS):
        factor, shift = np.split(found, 2)
        answer = first(replace(base, order=(), factor=factor, shift=shift).apply(given))
        left = (
            affine.fit_columns(columns, (target - answer.reshape(target.shape)).reshape(-1))
            if answer is not None
            else None
        )
        if left is None:
            break
        found = found + left[0]
    return found[: len(found) // 2], found[len(found) // 2 :]


def _named(
    base: Preparation, factor: Array, shift: Array, known: "tuple[Norm, ...]", *, certain: bool
) -> Preparation | str:
    """The usual preparation that it is; failing that the numbers as they are, unless another fault would look the same."""
    for own, other in norms.norm_pairs(known, len(factor)):
        usual = norms.input_map(own, other, len(factor))
        if norms.same_map((factor, shift), usual):
            return replace(base, factor=usual[0], shift=usual[1], said=_said(own, other))
    factor, shift = (
        np.where(np.abs(factor - 1) < _TINY, 1.0, factor),
        np.where(np.abs(shift) < _TINY * np.abs(shift).max(), 0.0, shift),
    )
    return (
        replace(base, factor=factor, shift=shift)
        if certain
        else "a lost bias, or another norm, would look the same"
    )


def _only(array: Array, port: Port, channel: int) -> Array:
    """One channel, and zeros in the others."""
    if port.channels == 1:
        return array
    made = np.zeros_like(array)
    np.moveaxis(made, port.axis, 0)[channel] = np.moveaxis(array, port.axis, 0)[channel]
    return made


def _far(one: Array, other: Array) -> float:
    return float(np.sqrt(((one - other) ** 2).sum() / max((other**2).sum(), 1e-300)))


def _cropped(bench: Workbench, port: Port, first: FirstLayer) -> Tried | None:
    """Another part of the image: the same size, taken from elsewhere."""
    crops = [crop for node in first.slices if (crop := _crop(bench, node)) is not None]
    for where, share in (
        (("the centre", 0.5), ("the top left", 0.0), ("the bottom right", 1.0)) if crops else ()
    ):
        for up in (False, True):
            model = bench.edited(partial(_moved, crops=crops, share=share, up=up))
            after = bench.distance(model)
            if bench.cured(after):
                names = ", ".join(node.name or node.output[0] for node, *_ in crops)
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    evidence=f"{names} cut{'s' * (len(crops) == 1)} another part out of `{port.name}`; from {where} the answers are right",
                    fix=Fix(kind="graph", what=f"cut the image from {where} in {names}"),
                )
    return None


def _resized(bench: Workbench, first: FirstLayer) -> Tried | None:
    """Another way of resizing, all of its attributes at once: as a library has it."""
    for node in first.resizes[:1]:
        for name, attributes in _RESIZES.items():
            model = bench.with_node(node, partial(_set, attributes=attributes))
            after = bench.distance(model)
            if bench.cured(after):
                where = node.name or node.output[0]
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    code="attribute",
                    evidence=f"{where} (Resize) is right when it resizes {name}: {attributes}",
                    fix=Fix(kind="graph", what=f"let {where} resize {name}"),
                )
    return None


def _set(node: onnx.NodeProto, *, attributes: dict[str, str | float]) -> None:
    for name in (
        "mode",
        "coordinate_transformation_mode",
        "nearest_mode",
        "cubic_coeff_a",
        "antialias",
    ):
        set_attribute(node, name, attributes.get(name))


def _crop(
    bench: Workbench, node: onnx.NodeProto
) -> tuple[onnx.NodeProto, Array, Array, Array] | None:
    """A slice with constant ends and a step of one: node, starts, sizes, and the room there is."""
    constants = {place: value for place, _, value in bench.constants(node)}
    whole, part = bench.value(node.input[0]), bench.value(node.output[0])
    if (
        not {1, 2, 3} <= set(constants)
        or whole is None
        or part is None
        or (4 in constants and (constants[4] != 1).any())
    ):
        return None
    axes = constants[3].reshape(-1)
    sizes, room = (np.array([value.shape[axis] for axis in axes]) for value in (part, whole))
    return (node, constants[1], sizes, room) if (sizes < room).any() else None


def _moved(
    graph: onnx.GraphProto,
    *,
    crops: list[tuple[onnx.NodeProto, Array, Array, Array]],
    share: float,
    up: bool,
) -> None:
    for crop, starts, sizes, room in crops:
        node = next(n for n in graph.node if n.output[0] == crop.output[0])
        begin = np.ceil((room - sizes) * share) if up else np.floor((room - sizes) * share)
        for place, values in ((1, begin), (2, begin + sizes)):
            node.input[place] = f"{node.output[0]}_crop_{place}"
            graph.initializer.append(
                onnx.numpy_helper.from_array(
                    values.astype(starts.dtype).reshape(starts.shape), node.input[place]
                )
            )
