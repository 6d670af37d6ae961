"""The task's own metric, sample by sample, so that a drop can be told from noise."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import InputError, OnnxproofError, UsageError
from onnxproof.inputs import data_stream as user_data
from onnxproof.numerics.array_files import read_arrays
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.quantization.calibration.batches import Batch, cut
from onnxproof.quantization.paired_metric import CONFIDENCE, Metric, Outcome, paired
from onnxproof.runtimes import ort

Array = np.ndarray[Any, Any]
Predict = Callable[..., list[Array]]


class Evaluator:
    """What is to be kept: a function of `predict`, or inputs with labels (then top-1 accuracy)."""

    def __init__(
        self, source: Any, ports: tuple[Port, ...], confidence: float = CONFIDENCE
    ) -> None:
        self._ports, self._confidence = ports, confidence
        self._function = _loaded(source)
        self._labelled = None if self._function is not None else _labelled(source, ports)
        self._float: Array | None = None

    def inputs(self) -> list[Batch]:
        """The inputs that are evaluated on, where they are known."""
        return [] if self._labelled is None else list(cut(self._labelled[0], self._ports))

    def scores(self, model: onnx.ModelProto) -> Array:
        """One score a sample, or a single one."""
        session = ort.open(model.SerializeToString())
        names = list(session.input_names)

        def predict(*given: Any, **named: Any) -> list[Array]:
            fed = (
                dict(given[0])
                if len(given) == 1 and isinstance(given[0], Mapping)
                else dict(zip(names, given, strict=False)) | named
            )
            fed = {
                name: np.asarray(array.detach() if hasattr(array, "detach") else array)
                for name, array in fed.items()
            }
            return [array for array in session.run(fed) if array is not None]

        if self._labelled is not None:
            inputs, labels = self._labelled
            outputs = np.concatenate([predict(batch)[0] for _, batch in cut(inputs, self._ports)])
            return np.asarray(outputs.argmax(-1) == labels, np.float64)
        assert self._function is not None
        return _called(self._function, predict)

    def compare(self, plain: onnx.ModelProto, quantized: onnx.ModelProto) -> Metric:
        """Both on the same samples."""
        before, after = self._before(plain), self.scores(quantized)
        if after.shape != before.shape:
            raise InputError(
                "evaluator-shape",
                f"the evaluator gave {before.size} scores for the float model and {after.size} for the quantized one",
            )
        return paired(before, after, self._confidence)

    def could_show(self, plain: onnx.ModelProto, most: float) -> bool:
        """False when the samples are too few to show a budget even for a model that changes no answer."""
        before = self._before(plain)
        return paired(before, before, self._confidence).outcome(most) is Outcome.SHOWN

    def _before(self, plain: onnx.ModelProto) -> Array:
        if self._float is None:
            self._float = self.scores(plain)
        return self._float


def _called(function: Callable[[Predict], Any], predict: Predict) -> Array:
    try:
        found = np.atleast_1d(np.asarray(function(predict), np.float64)).reshape(-1)
    except OnnxproofError:
        raise
    except Exception as why:  # the user's own code: whatever it raises is told in its words
        raise InputError(
            "evaluator-raised",
            f"the evaluator raised {type(why).__name__}: {why}",
            help="it is called with `predict`, which takes arrays (or a dict of them) and gives the outputs as a list",
        ) from why
    if not found.size or not np.isfinite(found).all():
        raise InputError(
            "evaluator-nan",
            f"the evaluator gave {'nothing' if not found.size else 'NaN or infinity'}",
            help="return one score for each sample, or one number",
        )
    return found


def _loaded(source: Any) -> Callable[[Predict], Any] | None:
    """The function behind `eval.py:accuracy`, or one that was given."""
    if isinstance(source, str) and ":" in source and not source.endswith(".npz"):
        from onnxproof.reference.subject import _import_file, _import_module

        place, _, name = source.rpartition(":")
        module = (
            _import_file(Path(place)) if place.endswith(".py") else _import_module(place, source)
        )
        if not callable(getattr(module, name, None)):
            raise UsageError("no-evaluator", f"`{place}` has no function `{name}`", where=source)
        return getattr(module, name)  # type: ignore[no-any-return]
    return source if callable(source) else None


def _labelled(source: Any, ports: tuple[Port, ...]) -> tuple[dict[str, Array], Array]:
    """Inputs and labels: a pair, or an .npz that holds `labels` (or `y`) beside the inputs."""
    names = [port.name for port in ports]
    if isinstance(source, str | Path):
        arrays = read_arrays(user_data.data_files(Path(source))[0])
        key = next((k for k in ("labels", "label", "y", "targets") if k in arrays), None)
        if key is None:
            raise InputError(
                "no-labels",
                f"`{source}` has no array named `labels`",
                notes=[f"it has {', '.join(arrays)}"],
            )
        labels = np.asarray(arrays.pop(key))
        inputs = user_data._named(arrays, names, str(source))
    elif isinstance(source, tuple) and len(source) == 2:
        given = (
            source[0]
            if isinstance(source[0], Mapping)
            else dict(zip(names, [source[0]], strict=False))
        )
        inputs, labels = user_data._named(dict(given), names, "evaluate"), np.asarray(source[1])
    else:
        raise UsageError(
            "bad-evaluator",
            f"evaluate is a {type(source).__name__}",
            help="give a function of predict, (inputs, labels), or an .npz with labels",
        )
    rows = {a.shape[0] for a in inputs.values() if a.ndim}
    if rows != {labels.size}:
        raise InputError(
            "labels-length",
            f"there are {labels.size} labels for {' or '.join(map(str, sorted(rows)))} inputs",
            help="each sample needs one label",
        )
    return inputs, labels.reshape(-1)
