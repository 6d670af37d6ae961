"""The input is prepared otherwise.

What it is: the file expects its input in another form than the module does: channels as BGR instead of RGB, channels
last instead of first, values of 0 to 255 instead of 0 to 1, another mean and standard deviation, another part of the
image; samples of 16 bits instead of -1 to 1; ids that are counted from another number. Or the deployment's own
preprocessing, which `--pipeline` names, makes another tensor of the same raw data than the model's own.

Why it happens: preparing an input is written twice, once for training and once for serving, often with another
library; and a file may have it inside, so that it is done twice or not at all.

How to see it: with its input prepared in that way first, the file matches the module; or the model's own
preprocessing with that one step changed makes what the deployment makes.

How to fix it: prepare the input in one place. The mended file does what is missing by itself; with
`Subject(preprocess=...)` the preprocessing is exported into the file.

Example: a classifier that was trained on RGB and is fed what `cv2.imread` returns: it runs, and is a little worse.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.first_layer import FirstLayer
from onnxproof.diagnosis.counterfactuals.image_sampling import try_crops, try_resizes
from onnxproof.diagnosis.counterfactuals.input_preparation import (
    Port,
    Preparation,
    PreparationTrials,
    ports,
)
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.preprocessing import affine, norms
from onnxproof.preprocessing.norms import Norm
from onnxproof.results import Fix, Stage

TITLE = "the input is prepared otherwise"
PRICE = 9
CODES = ("preprocessing", "attribute")
_MOST_INPUTS = 2
"""Inputs that are tried. Not measured."""
_SAME = 1e-5
"""Relative error of the first layer's values up to which there is nothing to explain. Not measured."""
_LAYOUTS = {
    3: ((1, 2, 0), (2, 0, 1)),
    4: ((0, 2, 3, 1), (0, 3, 1, 2)),
    5: ((0, 2, 3, 4, 1), (0, 4, 1, 2, 3)),
}
_REFINEMENTS = 2
"""Times that a fit is repeated on what is left. Not measured."""
_TINY = 1e-6
"""A factor this near to 1, or a shift this small beside the largest, is rounding. Not measured."""
_REVERSE = (2, 1, 0, 3)
"""BGR for RGB; a fourth channel stays where it is."""
_OFFSETS = (1, -1, 2, -2, 3, -3, 4, -4)


def test(workbench: Workbench) -> Tried | str:
    """Prepare each image, sound or text in the other usual ways before the file takes it."""
    if workbench.location.stage not in (Stage.EXPORT, Stage.GRAPH):
        return "the file itself is right"
    prepared_inputs = list(ports(workbench))
    if not prepared_inputs:
        return "no input looks like an image, a sound or a text"
    for port in prepared_inputs[:_MOST_INPUTS]:
        tried = _try_input(workbench, port)
        if tried is not None:
            return tried
    return "no other preparation of an input makes the answers right"


def _try_input(workbench: Workbench, port: Port) -> Tried | None:
    """Other preparations of one input; of an image also other crops and resizes inside the graph."""
    first = FirstLayer(workbench, port)
    if _is_right_already(workbench, port, first):
        return None
    tried = _try_preparations(workbench, port, first)
    if tried is not None or port.kind != "image":
        return tried
    return try_crops(workbench, port.name, first.slices) or try_resizes(workbench, first.resizes)


def _is_right_already(workbench: Workbench, port: Port, first: FirstLayer) -> bool:
    """True when the first layer gives what the module's gives: then nothing is wrong before it."""
    value = first(np.asarray(workbench.scene.case.inputs[port.name]))
    if value is None:
        return False
    flat = value.reshape(-1)
    targets = first.targets(value.size)
    return any(_distance(flat, target.reshape(-1)) <= _SAME for target in targets)


def _try_preparations(workbench: Workbench, port: Port, first: FirstLayer) -> Tried | None:
    trials = PreparationTrials(workbench, port, most=limits.MOST_TRIALS)
    for preparation in _preparations(workbench, port, first):
        if trials.late:
            return None
        if not trials.fixes_witness(preparation):
            continue
        model = workbench.copy_model()
        preparation.insert(model, port)
        tried = workbench.try_counterfactual(
            trials.counterfactual(preparation),
            f"with its input `{port.name}` {preparation}, the file matches the module",
            model=model,
            fix=Fix(
                kind="graph",
                what=f"give the file `{port.name}` {preparation}: the mended file does it by itself",
            ),
        )
        if tried is not None:
            return tried
    return None


def _preparations(workbench: Workbench, port: Port, first: FirstLayer) -> Iterator[Preparation]:
    if port.kind == "image":
        return _of_image(workbench, port, first)
    if port.kind == "sound":
        return _scalings(workbench, port, first, (Preparation(),), norms.SOUNDS)
    return _of_text()


def _of_text() -> Iterator[Preparation]:
    for offset in _OFFSETS:
        yield Preparation(
            factor=np.ones(1),
            shift=np.array([float(offset)]),
            about="ids that are counted from another number",
        )


def _of_image(workbench: Workbench, port: Port, first: FirstLayer) -> Iterator[Preparation]:
    """Channels reversed, then scaled; axes in another order first where the file refuses the module's shape."""
    bases = [Preparation(axis=port.axis)]
    if port.channels > 1:
        reverse = _REVERSE[: port.channels]
        bases.append(Preparation(axis=port.axis, order=reverse))
    if workbench.candidate_outputs is None:
        yield from _other_layouts(workbench, port, bases)
        return
    yield from bases[1:]
    if port.scalable:
        yield from _scalings(workbench, port, first, tuple(bases), norms.IMAGES)


def _other_layouts(
    workbench: Workbench, port: Port, bases: list[Preparation]
) -> Iterator[Preparation]:
    for layout in _LAYOUTS[len(workbench.scene.case.inputs[port.name].shape)]:
        for base in bases:
            transposed = replace(base, layout=layout)
            yield transposed
            if port.scalable:
                yield from _usual_scalings(transposed, norms.IMAGES, port.channels)


def _scalings(
    workbench: Workbench,
    port: Port,
    first: FirstLayer,
    bases: tuple[Preparation, ...],
    known: tuple[Norm, ...],
) -> Iterator[Preparation]:
    """Computed from the first layer with weights where that can be, else every usual one."""
    for base in bases:
        computed = _compute_scalings(workbench, port, first, base, known)
        if computed is None:
            yield from _usual_scalings(base, known, port.channels)
        else:
            yield from computed


def _usual_scalings(
    base: Preparation, known: tuple[Norm, ...], channels: int
) -> Iterator[Preparation]:
    for own, other in norms.norm_pairs(known, channels):
        factor, shift = norms.input_map(own, other, channels)
        yield replace(base, factor=factor, shift=shift, about=_describe_norms(own, other))


def _describe_norms(own: "Norm", other: "Norm") -> str:
    return f"the module has {own.name}, the file {other.name}"


def _compute_scalings(
    workbench: Workbench,
    port: Port,
    first: FirstLayer,
    base: Preparation,
    known: tuple[Norm, ...],
) -> list[Preparation] | None:
    """The factor and the shift of each channel that make the first layer's values the module's.

    1. Run the layer on nothing and on each channel alone: the columns of a linear system. None where the layer is not
       affine in its input.
    2. Fit the module's own values; empty where no factor and shift explain them.
    3. Refine the fit, and give it the name of a usual norm.
    """
    prepared = base.apply(np.asarray(workbench.scene.case.inputs[port.name]))
    value = first(prepared)
    nothing = first(np.zeros_like(prepared))
    if value is None or nothing is None or not workbench.located.traced_values:
        return None
    columns = _columns(port, first, prepared, nothing)  # 1
    whole = columns[:, : port.channels].sum(1) + nothing.reshape(-1)
    if not np.isfinite(columns).all():
        return None
    if _distance(whole, value.reshape(-1)) > limits.SAME_VALUES:
        return None
    for target in first.targets(value.size):
        fit = affine.fit_columns(columns, target.reshape(-1) - nothing.reshape(-1))  # 2
        if fit is None or fit[1] > limits.SAME_VALUES:
            continue
        factor, shift = _refine(first, base, prepared, columns, target, fit[0])  # 3
        certain = port.kind == "image" and value.shape[1] > port.channels and not first.normed
        return _name_scaling(replace(base, factor=factor, shift=shift), known, certain=certain)
    return []


def _columns(port: Port, first: FirstLayer, prepared: Array, nothing: Array) -> Array:
    """What each channel alone, and each filled with ones, adds to the layer's values."""
    columns = []
    for array in (prepared, np.ones_like(prepared)):
        for channel in range(port.channels):
            part = first(_keep_channel(array, port, channel))
            if part is not None:
                columns.append((part - nothing).reshape(-1))
    return np.stack(columns, 1)


def _refine(
    first: FirstLayer, base: Preparation, prepared: Array, columns: Array, target: Array, fit: Array
) -> tuple[Array, Array]:
    """The same once more for what is left: the columns are differences of float32 values, and have lost digits."""
    for _ in range(_REFINEMENTS):
        factor, shift = np.split(fit, 2)
        scaling = replace(base, order=(), factor=factor, shift=shift)
        value = first(scaling.apply(prepared))
        if value is None:
            break
        left = target - value.reshape(target.shape)
        rest = affine.fit_columns(columns, left.reshape(-1))
        if rest is None:
            break
        fit = fit + rest[0]
    half = len(fit) // 2
    return fit[:half], fit[half:]


def _name_scaling(
    scaling: Preparation, known: tuple[Norm, ...], *, certain: bool
) -> list[Preparation]:
    """The usual preparation that it is; failing that the numbers as they are, unless a lost bias, or another norm, would look the same."""
    factor = scaling.factor
    shift = scaling.shift
    if factor is None or shift is None:
        return []
    for own, other in norms.norm_pairs(known, len(factor)):
        usual = norms.input_map(own, other, len(factor))
        if norms.same_map((factor, shift), usual):
            about = _describe_norms(own, other)
            return [replace(scaling, factor=usual[0], shift=usual[1], about=about)]
    if not certain:
        return []
    factor = np.where(np.abs(factor - 1) < _TINY, 1.0, factor)
    negligible = _TINY * np.abs(shift).max()
    shift = np.where(np.abs(shift) < negligible, 0.0, shift)
    return [replace(scaling, factor=factor, shift=shift)]


def _keep_channel(array: Array, port: Port, channel: int) -> Array:
    """One channel, and zeros in the others."""
    if port.channels == 1:
        return array
    kept = np.zeros_like(array)
    channels_first = np.moveaxis(kept, port.axis, 0)
    channels_first[channel] = np.moveaxis(array, port.axis, 0)[channel]
    return kept


def _distance(one: Array, other: Array) -> float:
    """The relative distance of two vectors."""
    difference = ((one - other) ** 2).sum()
    size = max((other**2).sum(), 1e-300)
    return float(np.sqrt(difference / size))
