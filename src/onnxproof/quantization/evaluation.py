"""The task's own metric, sample by sample, so that a drop can be distinguished from noise."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import InputError, OnnxproofError, UsageError
from onnxproof.inputs import data_stream as user_data
from onnxproof.numerics.array_files import read_arrays
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.quantization.calibration.batches import Batch, split_batches
from onnxproof.quantization.paired_metric import CONFIDENCE, Metric, Outcome, compare_paired
from onnxproof.runtimes import ort

Array = np.ndarray[Any, Any]
Predict = Callable[..., list[Array]]
_LABELS = ("labels", "label", "y", "targets")
"""Names under which labels are looked for in a file."""


class Evaluator:
    """What is to be kept: a function of `predict`, or inputs with labels (then top-1 accuracy)."""

    def __init__(
        self, source: Any, ports: tuple[Port, ...], confidence: float = CONFIDENCE
    ) -> None:
        self._ports = ports
        self._confidence = confidence
        self._function = load_function(source)
        self._labelled: tuple[dict[str, Array], Array] | None = None
        if self._function is None:
            self._labelled = _load_labelled(source, ports)
        self._float_scores: Array | None = None

    def inputs(self) -> list[Batch]:
        """The inputs that are evaluated on, where they are known."""
        if self._labelled is None:
            return []
        return list(split_batches(self._labelled[0], self._ports))

    def scores(self, model: onnx.ModelProto) -> Array:
        """One score a sample, or a single one."""
        predict = _make_predict(model)
        if self._labelled is not None:
            inputs, labels = self._labelled
            batches = split_batches(inputs, self._ports)
            outputs = np.concatenate([predict(batch)[0] for _, batch in batches])
            return np.asarray(outputs.argmax(-1) == labels, np.float64)
        assert self._function is not None
        return call_function(self._function, predict)

    def compare(self, plain: onnx.ModelProto, quantized: onnx.ModelProto) -> Metric:
        """Both on the same samples."""
        before, after = self._scores_of_float(plain), self.scores(quantized)
        if after.shape != before.shape:
            raise InputError(
                "evaluator-shape",
                f"the evaluator gave {before.size} scores for the float model and {after.size} for the quantized one",
            )
        return compare_paired(before, after, self._confidence)

    def could_show(self, plain: onnx.ModelProto, most: float) -> bool:
        """False when the samples are too few to show a budget even for a model that changes no answer."""
        before = self._scores_of_float(plain)
        return compare_paired(before, before, self._confidence).outcome(most) is Outcome.SHOWN

    def _scores_of_float(self, plain: onnx.ModelProto) -> Array:
        if self._float_scores is None:
            self._float_scores = self.scores(plain)
        return self._float_scores


def _make_predict(model: onnx.ModelProto) -> Predict:
    """The function that an evaluator calls: arrays in order or by name, or one dict of them, to the outputs as a list."""
    session = ort.open_model(model)
    return predict_by_name(list(session.input_names), session.run)


def predict_by_name(
    names: Sequence[str], run: Callable[[dict[str, Array]], Sequence[Array | None]]
) -> Predict:
    """The same of anything that runs named arrays."""

    def predict(*arrays: Any, **named: Any) -> list[Array]:
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            inputs = dict(arrays[0])
        else:
            inputs = dict(zip(names, arrays, strict=False)) | named
        converted = {name: as_array(value) for name, value in inputs.items()}
        return [array for array in run(converted) if array is not None]

    return predict


def as_array(value: Any) -> Array:
    """What an evaluator hands in, as an array."""
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach()
    return np.asarray(value)


def call_function(function: Callable[[Predict], Any], predict: Predict) -> Array:
    """The scores that the user's function gives: one a sample, or a single one."""
    try:
        scores = np.atleast_1d(np.asarray(function(predict), np.float64)).reshape(-1)
    except OnnxproofError:
        raise
    except Exception as why:  # the user's own code: the message gives whatever it raises
        raise InputError(
            "evaluator-raised",
            f"the evaluator raised {type(why).__name__}: {why}",
            help="it is called with `predict`, which takes arrays (or a dict of them) and gives the outputs as a list",
        ) from why
    if not scores.size or not np.isfinite(scores).all():
        raise InputError(
            "evaluator-nan",
            f"the evaluator gave {'NaN or infinity' if scores.size else 'nothing'}",
            help="return one score for each sample, or one number",
        )
    return scores


def load_function(source: Any) -> Callable[[Predict], Any] | None:
    """The function behind `eval.py:accuracy`, or one that was given; None for anything else."""
    if isinstance(source, str) and ":" in source and not source.endswith(".npz"):
        return _import_function(source)
    if callable(source):
        return source  # type: ignore[no-any-return]
    return None


def _import_function(source: str) -> Callable[[Predict], Any]:
    from onnxproof.reference.user_code import import_file, import_module

    place, _, name = source.rpartition(":")
    is_file = place.endswith(".py")
    module = import_file(Path(place)) if is_file else import_module(place, source)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError("no-evaluator", f"`{place}` has no function `{name}`", where=source)
    return function  # type: ignore[no-any-return]


def _load_labelled(source: Any, ports: tuple[Port, ...]) -> tuple[dict[str, Array], Array]:
    """Inputs and labels: a pair, or an .npz that holds `labels` (or `y`) beside the inputs."""
    names = [port.name for port in ports]
    if isinstance(source, str | Path):
        inputs, labels = _read_labelled(source, names)
    elif isinstance(source, tuple) and len(source) == 2:
        arrays = source[0]
        if not isinstance(arrays, Mapping):
            arrays = dict(zip(names, [arrays], strict=False))
        inputs = user_data._named(dict(arrays), names, "evaluate")
        labels = np.asarray(source[1])
    else:
        raise UsageError(
            "bad-evaluator",
            f"evaluate is a {type(source).__name__}",
            help="give a function of predict, (inputs, labels), or an .npz with labels",
        )
    rows = {array.shape[0] for array in inputs.values() if array.ndim}
    if rows != {labels.size}:
        raise InputError(
            "labels-length",
            f"there are {labels.size} labels for {' or '.join(map(str, sorted(rows)))} inputs",
            help="each sample needs one label",
        )
    return inputs, labels.reshape(-1)


def _read_labelled(source: str | Path, names: list[str]) -> tuple[dict[str, Array], Array]:
    arrays = read_arrays(user_data.data_files(Path(source))[0])
    key = next((key for key in _LABELS if key in arrays), None)
    if key is None:
        raise InputError(
            "no-labels",
            f"`{source}` has no array named `labels`",
            notes=[f"it has {', '.join(arrays)}"],
        )
    labels = np.asarray(arrays.pop(key))
    return user_data._named(arrays, names, str(source)), labels
