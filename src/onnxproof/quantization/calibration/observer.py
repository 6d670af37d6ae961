"""The float graph with its inner values as outputs: the graph itself takes extremes and picks elements, so only a few thousand numbers leave it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.onnxmodel import large_models
from onnxproof.quantization.calibration.statistics import SAMPLED, Statistics
from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
_PREFIX = "onnxproof.watch."
_TURN = "onnxproof.turn"
"""The input that says which batch it is: the first of every n elements that are picked moves from batch to batch."""
_PARTS = ("low", "high", "picked", "stride")


class Observer:
    """The float graph with its inner values as outputs."""

    def __init__(self, model: onnx.ModelProto, names: list[str] | None = None) -> None:
        index = Index(model)
        self.names = index.float_values() if names is None else names
        self.axes = {name: index.channel_axis(name) for name in self.names}
        self.hash = large_models.digest(model)
        watched = copy_model(model)
        self._inner = [name for name in self.names if name not in index.inputs]
        ranks = _ranks(model)
        for place, name in enumerate(self._inner):
            self.axes[name] = _add_reductions(
                watched, place, name, self.axes[name], ranks.get(name)
            )
        turn = onnx.helper.make_tensor_value_info(_TURN, onnx.TensorProto.INT64, [1])
        watched.graph.input.append(turn)
        self._outputs = [value.name for value in model.graph.output]
        added = [f"{_PREFIX}{place}.{part}" for place in range(len(self._inner)) for part in _PARTS]
        add_outputs(watched, added)
        self._session = ort.open_model(watched, "basic", outputs=[*added, *self._outputs])

    def observe_batch(
        self, batch: Mapping[str, Array], into: dict[str, Statistics], label: str, turn: int
    ) -> str:
        """Add one batch to the statistics; gives the name of a value that was not finite, if one was."""
        results = self._session.run({**batch, _TURN: np.asarray([turn])})
        for name in self.names:
            if name not in into:
                into[name] = Statistics(axis=self.axes[name])
            if name in batch:
                into[name].update(batch[name], label, turn)
        for place, name in enumerate(self._inner):
            first = len(_PARTS) * place
            _add_results(into[name], results[first : first + len(_PARTS)], label)
        outputs = zip(self._outputs, results[len(_PARTS) * len(self._inner) :], strict=True)
        return next((name for name, array in outputs if _has_not_finite(array)), "")


def _add_results(stats: Statistics, results: Sequence[Array | None], label: str) -> None:
    """Add what the graph has reduced one value to: extremes, picked elements and their stride."""
    lows, highs, picked, stride = results
    if lows is None or highs is None or picked is None or stride is None or not picked.size:
        return
    if (
        lows.ndim == 2
    ):  # the runtime is quick over the pixels of an image, and numpy over the few rows that are left
        lows, highs = lows.min(0), highs.max(0)
    stats.take(lows, highs, picked, int(stride[0]), label)


def _has_not_finite(array: Array | None) -> bool:
    return array is not None and array.dtype.kind == "f" and not np.isfinite(array).all()


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*model.graph.value_info, *model.graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def _add_reductions(
    model: onnx.ModelProto, place: int, value: str, axis: int | None, rank: int | None
) -> int | None:
    """Let the graph itself take the extremes and every n-th element of a value: only a few thousand numbers leave it. Gives the channels' axis."""
    prefix = f"{_PREFIX}{place}."
    if rank is None or rank < 2:
        axis = None
    constants = {"one": [1], "flat": [-1], "zero": [0], "most": [SAMPLED], "end": [2**62]}
    attributes: dict[str, Any] = {"keepdims": 0}
    inputs = [value]
    if axis is not None and rank is not None:
        axes = _reduced_axes(axis, rank)
        constants["axes"] = axes
        if _opset(model) < 18:
            attributes["axes"] = axes
        else:
            inputs.append(f"{prefix}axes")
    for name, numbers in constants.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.asarray(numbers, np.int64), prefix + name)
        )

    def add(op_type: str, inputs: list[str], output: str, **attributes: Any) -> None:
        node = onnx.helper.make_node(op_type, inputs, [prefix + output], **attributes)
        model.graph.node.append(node)

    add("ReduceMin", inputs, "low", **attributes)
    add("ReduceMax", inputs, "high", **attributes)
    add("Size", [value], "size")
    add("Div", [prefix + "size", prefix + "most"], "share")
    add("Max", [prefix + "share", prefix + "one"], "stride")
    add("Mod", [_TURN, prefix + "stride"], "start")
    add("Reshape", [value, prefix + "flat"], "line")
    slice_inputs = [prefix + part for part in ("line", "start", "end", "zero", "stride")]
    add("Slice", slice_inputs, "picked")
    return axis


def _reduced_axes(axis: int, rank: int) -> list[int]:
    """The axes that the runtime reduces: of images only the pixels (numpy reduces the batch), else all but the channels."""
    if axis != 1:
        return [*range(rank - 1)]
    if rank == 2:
        return [0]
    return [*range(2, rank)]


def _opset(model: onnx.ModelProto) -> int:
    versions = (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    return int(next(versions))
