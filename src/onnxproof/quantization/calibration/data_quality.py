"""Is the calibration data any good? Asked before a model is made of it: each answer is a finding, and the worst are errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.inputs import training_statistics
from onnxproof.inputs.training_statistics import guess
from onnxproof.quantization.calibration.batches import Batch, count_samples
from onnxproof.quantization.calibration.calibration_pass import Pass
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.scoring import Outputs
from onnxproof.results import Finding

Array = np.ndarray[Any, Any]
FEW = 16
"""Different samples below which nothing is claimed: on MNIST 4 images kept 19.3 dB where 256 kept 31.9, and 16 kept 32.6."""
STEADY = 32
"""Below this the number of samples is a finding (not measured)."""
_CLIPPED = 1e-3
"""Share of a value's held-out elements beyond its range from which on it is a finding (not measured)."""
_COUNTED = 20
"""Values beyond a range that make a share of a small tensor more than chance (not measured)."""
_GROWING = 0.02
"""Mean growth of the ranges with each batch from which on more data would move them (not measured)."""
_OFF = 8.0
_OFF_MADE_UP = 32.0
"""Inputs that are this many times larger or smaller than they should be are something else; a made-up example (randn where sounds are served) is far off by itself."""
_BETWEEN = 1.5
"""Times that a real example's size may lie outside of the sizes of all samples."""
_MOST_CLASSES = 100
"""Outputs with more columns are not taken for scores of classes (not measured)."""
_ONE_CLASS = 0.9
_GIVEN = 0.6
_OTHERS = 0.4
"""Of the samples, those that go to one class at least, of the classes, those that are given at all at most, and those that made-up inputs get besides at least: then
data is one-sided. Nets trained on digits give one class 85 to 100 % of its own images, 1 to 6 classes in all, and 8 or 9 others to the same images shuffled or turned."""
_ACTION = (
    "calibrate with a few hundred inputs exactly as the model is served, after its preprocessing"
)


def examine(
    seen: Pass,
    outputs: Outputs,
    *,
    expected: Mapping[str, Array] | None = None,
    expected_from: str = "the example inputs",
    kept: Sequence[Batch] = (),
    fits: bool = False,
    elsewhere: Callable[[], Outputs] | None = None,
) -> list[Finding]:
    """Everything that can be said from the pass itself, and against inputs that are known to be right.

    `kept` are samples that were kept, `fits` says that the model's own statistics fit the data (an example of another scale is then no
    doubt), and `elsewhere` gives the model's outputs on made-up inputs.
    """
    findings = [
        *_check_count(seen, kept),
        *_check_growth(seen),
        *_check_held_out(seen),
        *_check_classes(outputs, elsewhere),
        *_check_variation(kept),
    ]
    for name, stats in seen.fitted.items():
        example = (expected or {}).get(name)
        if example is None or example.dtype.kind != "f":
            continue
        arrays = [batch[name] for _, batch in kept if name in batch]
        against_example = _check_example(name, stats, example, expected_from, arrays)
        if fits:
            against_example = [_blame_example(finding) for finding in against_example]
        findings += against_example
    findings += [
        Finding(
            code="calibration-not-finite",
            what=f"left out: {words}",
            help="NaN and infinities say nothing about a range",
        )
        for words in seen.broken[:4]
    ]
    return findings


def _blame_example(finding: Finding) -> Finding:
    """Where the model's own statistics fit the calibration data, the example is what is unlike."""
    return Finding(
        code="example-unlike",
        what=f"{finding.what}; the model's own statistics fit the calibration data",
        help="give an example as it is served",
    )


def _check_example(
    name: str, stats: Statistics, example: Array, where: str, kept: Sequence[Array]
) -> list[Finding]:
    """The calibration data beside the example: by its scale, and where the example is no random tensor by the sizes of all samples."""
    if training_statistics.looks_made_up(example):
        return check_scale(name, stats, example, where, off=_OFF_MADE_UP)
    findings = check_scale(name, stats, example, where)
    if findings or not example.ndim or not example.shape[0]:
        return findings
    sizes = training_statistics.rows_rms(kept)
    size = float(np.median(training_statistics.rows_rms([example])))
    if sizes.size < FEW or not size > 0:
        return []
    if sizes.min() / _BETWEEN <= size <= sizes.max() * _BETWEEN:
        return []
    middle = float(np.median(sizes))
    word = "small" if middle > size else "large"
    detail = f" (rms {middle:.3g} and {size:.3g}, and no sample is as {word})"
    return [_scale_finding(name, middle / size, where, detail)]


def check_scale(
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
    if 1 / off < ratio < off:
        return []
    return [_scale_finding(name, ratio, where)]


def _scale_finding(name: str, ratio: float, where: str, more: str = "") -> Finding:
    times = f"{ratio:,.3g} times larger" if ratio > 1 else f"{1 / ratio:,.3g} times smaller"
    return Finding(
        code="calibration-scale",
        what=f"the calibration data for `{name}` looks {times} than {where}{more}: {guess(ratio)}",
        help="calibrate with inputs exactly as the model is served, after its preprocessing",
        doubts=True,
    )


def count_distinct(kept: Sequence[Batch]) -> int:
    """How many different samples there are among those that were kept."""
    rows = set()
    for _, batch in kept:
        count = count_samples(batch)
        arrays = [
            _without_negative_zero(array)
            for array in batch.values()
            if array.ndim and array.shape[0] == count
        ]
        rows |= {b"".join(array[row].tobytes() for array in arrays) for row in range(count)}
    return len(rows)


def _without_negative_zero(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    return np.asarray(array + array.dtype.type(0))


def _check_count(seen: Pass, kept: Sequence[Batch]) -> list[Finding]:
    distinct = count_distinct(kept) if kept else seen.samples
    count = seen.samples
    if distinct < FEW:
        count = min(seen.samples, distinct)
    if count >= STEADY:
        return []
    what = f"there are {count} calibration samples"
    if count <= 1:
        what = f"there is {count} calibration sample"
    if count < seen.samples:
        what += f" (given {seen.samples} times in all)"
    if count < FEW:
        what += ": ranges fit them and little else"
    return [
        Finding(
            code="few-samples",
            what=what,
            help="give a few hundred: ranges are steady from about a hundred on",
            doubts=count < FEW,
        )
    ]


def _check_growth(seen: Pass) -> list[Finding]:
    """Whether the last quarter of the pass still moved the ranges."""
    if len(seen.trail) < 4:
        return []
    last_quarter = [growth for _, growth in seen.trail[-(len(seen.trail) // 4) :]]
    mean = float(np.mean(last_quarter))
    if not mean > _GROWING:
        return []
    return [
        Finding(
            code="calibration-growing",
            what=f"ranges still grow by {mean:.1%} with each batch",
            help="more data would still move them",
        )
    ]


def _check_held_out(seen: Pass) -> list[Finding]:
    """What ranges from four fifths of the data clip on the last fifth."""
    worst, where = 0.0, ""
    for name, stats in seen.held.items():
        fitted = seen.fitted.get(name)
        if fitted is None or not fitted.count or not stats.count:
            continue
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


def _check_classes(
    outputs: Outputs, elsewhere: Callable[[], Outputs] | None = None
) -> list[Finding]:
    """Classes that the float model never gives on the calibration data; nearly all samples of one class is a doubt, unless the model is like that anywhere."""
    if not outputs or not outputs[0]:
        return []
    first = outputs[0][0]
    if first.ndim != 2 or not 2 < first.shape[1] <= _MOST_CLASSES:
        return []
    size = first.shape[1]
    counts = np.bincount(np.concatenate([batch[0].argmax(1) for batch in outputs]), minlength=size)
    if _is_one_sided(counts) and _gives_others(int(counts.argmax()), size, elsewhere):
        return [
            Finding(
                code="calibration-suspicious",
                what=f"the calibration data looks one-sided: the model gives the class {counts.argmax()} to {counts.max()} of {counts.sum()} samples",
                help=_ACTION,
                doubts=True,
            )
        ]
    missing = np.flatnonzero(counts == 0).tolist()
    if counts.sum() < 3 * size or len(missing) < max(2, size // 5):
        return []
    shown = ", ".join(map(str, missing[:8]))
    return [
        Finding(
            code="calibration-classes",
            what=f"the model gives {len(missing)} of its {size} classes to no calibration sample ({shown})",
            help="calibrate with data of all classes",
        )
    ]


def _is_one_sided(counts: Array) -> bool:
    """Whether nearly all samples go to one class, and few classes are given at all."""
    samples = counts.sum()
    classes_given = int((counts > 0).sum())
    return bool(
        samples >= FEW
        and counts.max() >= _ONE_CLASS * samples
        and classes_given <= max(1, _GIVEN * counts.size)
    )


def _gives_others(top: int, size: int, elsewhere: Callable[[], Outputs] | None) -> bool:
    """Whether made-up inputs get several other classes: those of an untrained model, and numbers that are no scores of classes, mostly have one largest."""
    if elsewhere is None:
        return False
    classes = {int(best) for batch in elsewhere() for best in batch[0].argmax(1)}
    return len(classes - {top}) >= max(2, _OTHERS * size)


def _check_variation(kept: Sequence[Batch]) -> list[Finding]:
    """Samples without any variation inside: zeros, or one colour. An input that is always constant (a first state) is usual; all of them are not."""
    arrays = [
        array.reshape(len(array), -1)
        for _, batch in kept
        for array in batch.values()
        if array.dtype.kind == "f" and array.ndim and array.size > len(array)
    ]
    rows = sum(len(array) for array in arrays)
    constant = sum(int((array == array[:, :1]).all(1).sum()) for array in arrays)
    if not rows or constant < _ONE_CLASS * rows:
        return []
    first = float(arrays[0][0, 0])
    return [
        Finding(
            code="calibration-constant",
            what=f"the calibration data does not vary: all values of {constant} of {rows} samples are equal ({first:.3g} in the first)",
            help="was it read as it is served?",
            doubts=True,
        )
    ]


def refuse_other_scale(seen: Pass, served: Mapping[str, Any]) -> None:
    """Refuse calibration data of another scale than the data that the model is evaluated on."""
    observed = seen.merged_statistics()
    for name, array in served.items():
        if array.dtype.kind != "f" or name not in observed:
            continue
        findings = check_scale(name, observed[name], array, "the data it is evaluated on")
        if findings:
            raise InputError(
                "calibration-mismatch",
                findings[0].what,
                notes=["nothing was written"],
                help=findings[0].help,
            )
