"""Is the calibration data any good? Asked before a model is made of it: each answer is a finding, and the worst are errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.inputs import training_statistics
from onnxproof.inputs.training_statistics import guess
from onnxproof.quantization.calibration.batches import Batch, samples
from onnxproof.quantization.calibration.observe import Pass
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.workbench import Answers
from onnxproof.results import Finding

Array = np.ndarray[Any, Any]
FEW = 16
"""Different samples below which nothing is claimed: on MNIST 4 images kept 19.3 dB where 256 kept 31.9, and 16 kept 32.6."""
STEADY = 32
"""Below this the number of samples is told."""
_CLIPPED = 1e-3
_COUNTED = 20
"""Values beyond a range that make a share of a small tensor more than chance."""
_GROWING = 0.02
_OFF, _OFF_MADE_UP = 8.0, 32.0
"""Inputs that are this many times larger or smaller than they should be are something else; a made-up example (randn where sounds are served) is far off by itself."""
_BETWEEN = 1.5
"""Times that a real example's size may lie outside of the sizes of all samples."""
_MOST_CLASSES = 100
_ONE_CLASS, _GIVEN, _OTHERS = 0.9, 0.6, 0.4
"""Of the samples, those that go to one class at least, of the classes, those that are given at all at most, and those that made-up inputs get besides at least: then
data is one-sided. Nets trained on digits give one class 85 to 100 % of its own images, 1 to 6 classes in all, and 8 or 9 others to the same images shuffled or turned."""
_ACTION = (
    "calibrate with a few hundred inputs exactly as the model is served, after its preprocessing"
)


def examine(
    seen: Pass,
    answers: Answers,
    *,
    expected: Mapping[str, Array] | None = None,
    expected_from: str = "the example inputs",
    kept: Sequence[Batch] = (),
    fits: bool = False,
    elsewhere: Callable[[], Answers] | None = None,
) -> list[Finding]:
    """Everything that can be said from the pass itself, and against inputs that are known to be right.

    `kept` are samples that were kept, `fits` says that the model's own statistics vouch for the data (an example of another scale is then only told), and
    `elsewhere` gives the model's answers on made-up inputs.
    """
    found = [*_amount(seen, kept), *_held_out(seen), *_classes(answers, elsewhere), *_flat(kept)]
    for name, stats in seen.fitted.items():
        if expected is not None and name in expected and expected[name].dtype.kind == "f":
            found += _against_example(
                name,
                stats,
                expected[name],
                expected_from,
                [batch[name] for _, batch in kept if name in batch],
                fits=fits,
            )
    found += [
        Finding(
            code="calibration-not-finite",
            what=f"left out: {words}",
            help="NaN and infinities say nothing about a range",
        )
        for words in seen.broken[:4]
    ]
    return found


def _against_example(
    name: str, stats: Statistics, example: Array, where: str, kept: Sequence[Array], *, fits: bool
) -> list[Finding]:
    """The calibration data beside the example: by its scale, and where the example is no random tensor by the sizes of all samples."""
    made_up = training_statistics.looks_made_up(example)
    found = scale_of(name, stats, example, where, off=_OFF_MADE_UP if made_up else _OFF)
    if not found and not made_up and example.ndim and example.shape[0]:
        sizes, size = (
            training_statistics.rows_rms(kept),
            float(np.median(training_statistics.rows_rms([example]))),
        )
        if (
            sizes.size >= FEW
            and size > 0
            and not sizes.min() / _BETWEEN <= size <= sizes.max() * _BETWEEN
        ):
            middle = float(np.median(sizes))
            found = [
                _scale_finding(
                    name,
                    middle / size,
                    where,
                    f" (rms {middle:.3g} and {size:.3g}, and no sample is as {'small' if middle > size else 'large'})",
                )
            ]
    if fits:  # the example is what is unlike
        return [
            Finding(
                code="example-unlike",
                what=f"{f.what}; the model's own statistics fit the calibration data",
                help="give an example as it is served",
            )
            for f in found
        ]
    return found


def scale_of(
    name: str, stats: Statistics, expected: Array, where: str, off: float = _OFF
) -> list[Finding]:
    """Whether the calibration data is of the size that the inputs should be, with a guess at what was forgotten."""
    other = Statistics()
    other.update(np.asarray(expected, np.float32), where)
    if not stats.count or not other.count or not other.rms:
        return []
    if not stats.rms:
        return [
            Finding(
                code="calibration-constant",
                what=f"the calibration data for `{name}` is all zeros",
                help="was it read as it is served?",
                doubts=True,
            )
        ]
    ratio = stats.rms / other.rms
    return [] if 1 / off < ratio < off else [_scale_finding(name, ratio, where)]


def _scale_finding(name: str, ratio: float, where: str, more: str = "") -> Finding:
    return Finding(
        code="calibration-scale",
        what=f"the calibration data for `{name}` looks {_times(ratio)} than {where}{more}: {guess(ratio)}",
        help="calibrate with inputs exactly as the model is served, after its preprocessing",
        doubts=True,
    )


def _times(ratio: float) -> str:
    return f"{ratio:,.3g} times larger" if ratio > 1 else f"{1 / ratio:,.3g} times smaller"


def distinct(kept: Sequence[Batch]) -> int:
    """How many different samples there are among those that were kept."""
    rows = set()
    for _, batch in kept:
        count = samples(batch)
        cut = [
            array + array.dtype.type(0) if array.dtype.kind == "f" else array
            for array in batch.values()
            if array.ndim and array.shape[0] == count
        ]  # -0 is 0
        rows |= {b"".join(array[row].tobytes() for array in cut) for row in range(count)}
    return len(rows)


def _amount(seen: Pass, kept: Sequence[Batch]) -> list[Finding]:
    found = []
    different = distinct(kept) if kept else seen.samples
    count = min(seen.samples, different) if different < FEW else seen.samples
    said = f"{count} calibration sample{'s' if count > 1 else ''}" + (
        f" (given {seen.samples} times in all)" if count < seen.samples else ""
    )
    if count < STEADY:
        found.append(
            Finding(
                code="few-samples",
                what=f"there {'are' if count > 1 else 'is'} {said}"
                + (": ranges fit them and little else" if count < FEW else ""),
                help="give a few hundred: ranges are steady from about a hundred on",
                doubts=count < FEW,
            )
        )
    last = [growth for _, growth in seen.trail[-max(len(seen.trail) // 4, 1) :]]
    if len(seen.trail) >= 4 and float(np.mean(last)) > _GROWING:
        found.append(
            Finding(
                code="calibration-growing",
                what=f"ranges still grow by {np.mean(last):.1%} with each batch",
                help="more data would still move them",
            )
        )
    return found


def _held_out(seen: Pass) -> list[Finding]:
    """What ranges from four fifths of the data clip on the last fifth."""
    worst, where = 0.0, ""
    for name, stats in seen.held.items():
        fitted = seen.fitted.get(name)
        if fitted is not None and fitted.count and stats.count:
            share = stats.beyond(fitted.low, fitted.high)
            if share > worst and stats.count * share >= _COUNTED:
                worst, where = share, name
    if worst <= _CLIPPED:
        return []
    return [
        Finding(
            code="calibration-clips",
            what=f"ranges from most of the data clip {worst:.2%} of `{where}` on the rest",
            help="the data is too little or too mixed",
        )
    ]


def _classes(answers: Answers, elsewhere: Callable[[], Answers] | None = None) -> list[Finding]:
    """Classes that the float model never gives on the calibration data; nearly all samples of one class is a doubt, unless the model is like that anywhere."""
    if (
        not answers
        or not answers[0]
        or answers[0][0].ndim != 2
        or not 2 < answers[0][0].shape[1] <= _MOST_CLASSES
    ):
        return []
    chosen = np.concatenate([batch[0].argmax(1) for batch in answers])
    size = answers[0][0].shape[1]
    given = np.bincount(chosen, minlength=size)
    missing = np.flatnonzero(given == 0).tolist()
    shown = ", ".join(map(str, missing[:8]))
    top = int(given.argmax())
    if (
        chosen.size >= FEW
        and given[top] >= _ONE_CLASS * chosen.size
        and size - len(missing) <= max(1, _GIVEN * size)
        and _gives_others(top, size, elsewhere)
    ):
        return [
            Finding(
                code="calibration-suspicious",
                what=f"the calibration data looks one-sided: the model gives the class {top} to {given[top]} of {chosen.size} samples",
                help=_ACTION,
                doubts=True,
            )
        ]
    if chosen.size < 3 * size or not missing or len(missing) < max(2, size // 5):
        return []
    return [
        Finding(
            code="calibration-classes",
            what=f"the model gives {len(missing)} of its {size} classes to no calibration sample ({shown})",
            help="calibrate with data of all classes",
        )
    ]


def _gives_others(top: int, size: int, elsewhere: Callable[[], Answers] | None) -> bool:
    """Whether made-up inputs get several other classes: those of an untrained model, and numbers that are no scores of classes, mostly have one largest."""
    return elsewhere is not None and len(
        {int(best) for batch in elsewhere() for best in batch[0].argmax(1)} - {top}
    ) >= max(2, _OTHERS * size)


def _flat(kept: Sequence[Batch]) -> list[Finding]:
    """Samples without any variation inside: zeros, or one colour. An input that is always constant (a first state) is usual; all of them are not."""
    arrays = [
        array.reshape(len(array), -1)
        for _, batch in kept
        for array in batch.values()
        if array.dtype.kind == "f" and array.ndim and array.size > len(array)
    ]
    rows = sum(len(array) for array in arrays)
    flat = sum(int((array == array[:, :1]).all(1).sum()) for array in arrays)
    if not rows or flat < _ONE_CLASS * rows:
        return []
    first = float(arrays[0][0, 0])
    return [
        Finding(
            code="calibration-constant",
            what=f"the calibration data does not vary: all values of {flat} of {rows} samples are equal ({first:.3g} in the first)",
            help="was it read as it is served?",
            doubts=True,
        )
    ]


def refuse_other_scale(seen: Pass, served: Mapping[str, Any]) -> None:
    """Refuse calibration data of another scale than the data that the model is evaluated on."""
    observed = seen.merged()
    for name, array in served.items():
        if array.dtype.kind != "f" or name not in observed:
            continue
        findings = scale_of(name, observed[name], array, "the data it is evaluated on")
        if findings:
            raise InputError(
                "calibration-mismatch",
                findings[0].what,
                notes=["nothing was written"],
                help=findings[0].help,
            )
