"""What the first BatchNorms of a model see on some data, in units of the statistics that they keep from training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, read
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
_LOOKED_AT = 3
"""BatchNorms that are asked, in the order in which they run: the first ones know the inputs best (not measured)."""
_MOST_CONSTANTS = 1 << 14
"""Elements of a BatchNorm's parameters (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormStatistics:
    """What one BatchNorm sees on some data, in units of its running statistics."""

    name: str
    samples: int
    scale: float
    """Standard deviation over training's: the median over the channels."""
    shift: float
    """Distance of the mean from training's, in training's deviations: the rms over the channels."""
    spread: float
    """Standard deviation over the channels of log(scale)."""
    channels: int


class _Sums:
    """Sums over one BatchNorm's input, channel by channel."""

    def __init__(self, mean: Array, variance: Array) -> None:
        self.mean = mean.astype(np.float64)
        self.deviation = np.sqrt(variance.astype(np.float64))
        self.count = 0
        self.samples = 0
        self.total = np.zeros(mean.size)
        self.squares = np.zeros(mean.size)

    def add(self, values: Array) -> None:
        """Take one batch; channels are the second axis."""
        channels = self.mean.size
        if values.ndim < 2 or values.shape[1] != channels or not values.size:
            return
        channels_first = np.moveaxis(values.astype(np.float64), 1, 0)
        rows = channels_first.reshape(channels, -1)
        rows = (rows - self.mean[:, None]) / self.deviation[:, None]
        self.count += rows.shape[1]
        self.samples += values.shape[0]
        self.total = self.total + rows.sum(1)
        self.squares = self.squares + (rows * rows).sum(1)

    def statistics(self, name: str) -> NormStatistics:
        """What was seen so far."""
        means = self.total / self.count
        variances = self.squares / self.count - means**2
        scales = np.sqrt(np.maximum(variances, 1e-24))
        return NormStatistics(
            name=name,
            samples=self.samples,
            scale=float(np.median(scales)),
            shift=float(np.sqrt(np.mean(means**2))),
            spread=float(np.log(scales).std()),
            channels=means.size,
        )


def norms(
    subject: Subject,
    reference: Reference,
    samples: Sequence[Inputs],
) -> list[NormStatistics]:
    """What the first BatchNorms with trained statistics see on these samples, in the order in which they run; none where a sample can't be run."""
    if not samples:
        return []
    try:
        if subject.onnx is not None:
            sums = _sums_of_file(read(subject.onnx), samples)
        else:
            sums = _sums_of_module(subject.module, reference, samples)
    except Exception:  # the user's own module, watched: one that can't be followed has no say
        return []
    first = list(sums.items())[:_LOOKED_AT]
    return [each.statistics(name) for name, each in first if each.count]


def _trained(
    mean: Array,
    variance: Array,
    weight: Array | None,
    bias: Array | None,
    tracked: int,
) -> bool:
    """True when the statistics come from training: defaults, and statistics that were put in by hand beside default weights, know no data."""
    finite = np.isfinite(mean).all() and np.isfinite(variance).all()
    if not finite or (variance <= 0).any():
        return False
    if (mean == 0).all() and (variance == 1).all():
        return False
    if tracked > 0:
        return True
    scales = weight is not None and not (weight == 1).all()
    shifts = bias is not None and bias.any()
    return bool(scales or shifts)


def _sums_of_module(
    module: Any,
    reference: Any,
    samples: Sequence[Inputs],
) -> dict[str, _Sums]:
    """Every call of `batch_norm` in its first run with these inputs, whoever makes it: a layer, a function, an exported program."""
    from onnxproof.reference.dispatch import Mode, named_arguments

    calls = _BatchNormCalls(module)

    class Watch(Mode):
        def __torch_dispatch__(
            self,
            func: Any,
            types: Any,
            args: Any = (),
            kwargs: Any = None,
        ) -> Any:
            if "batch_norm" in str(func):
                calls.add(named_arguments(func, args, kwargs))
            return func(*args, **(kwargs or {}))

    names = list(reference.example())
    with Watch():
        for sample in samples:
            reference.run(dict(zip(names, sample.values(), strict=True)))
    return calls.sums


class _BatchNormCalls:
    """The calls of `batch_norm` that use trained statistics, by the layer that makes them or else by their number."""

    def __init__(self, module: Any) -> None:
        self.sums: dict[str, _Sums] = {}
        self._layers: dict[int, tuple[str, Any]] = {}
        for name, layer in getattr(module, "named_modules", list)():
            if getattr(layer, "running_mean", None) is not None:
                self._layers[layer.running_mean.data_ptr()] = (name, layer)

    def add(self, arguments: Mapping[str, Any]) -> None:
        """Take one call by its named arguments."""
        from onnxproof.reference.torch_session import to_numpy

        mean = arguments.get("running_mean")
        variance = arguments.get("running_var")
        if mean is None or variance is None or arguments.get("training"):
            return
        unnamed = (str(len(self.sums)), None)
        name, layer = self._layers.get(mean.data_ptr(), unnamed)
        if name not in self.sums:
            sums = self._new_sums(arguments, layer)
            if sums is None:
                return
            self.sums[name] = sums
        self.sums[name].add(to_numpy(arguments["input"]))

    def _new_sums(self, arguments: Mapping[str, Any], layer: Any) -> _Sums | None:
        """Empty sums for a layer; None where its statistics don't come from training."""
        from onnxproof.reference.torch_session import to_numpy

        parameters = {}
        for key in ("running_mean", "running_var", "weight", "bias"):
            if arguments.get(key) is not None:
                parameters[key] = to_numpy(arguments[key])
        mean = parameters["running_mean"].astype(np.float64)
        variance = parameters["running_var"].astype(np.float64)
        tracked = int(getattr(layer, "num_batches_tracked", None) or 0)
        if not _trained(mean, variance, parameters.get("weight"), parameters.get("bias"), tracked):
            return None
        return _Sums(mean, variance + float(arguments.get("eps") or 0.0))


def _sums_of_file(file: OnnxFile, samples: Sequence[Inputs]) -> dict[str, _Sums]:
    """The BatchNormalization nodes of a file in graph order; folded ones are no longer there."""
    import onnx

    from onnxproof.runtimes import ort
    from onnxproof.runtimes.reference import add_outputs

    norms_by_name = _trained_norms(file)
    if not norms_by_name:
        return {}
    inputs = {port.name for port in file.inputs}
    read_values = dict.fromkeys(value for value, _ in norms_by_name.values())
    values = [value for value in read_values if value not in inputs]
    probed = onnx.load(str(file.path))
    add_outputs(probed, values)
    session = ort.open_model(probed, "disabled", outputs=values)
    for sample in samples:
        arrays: dict[str, Any] = dict(sample)  # a norm may read an input itself, which is no output
        if values:
            arrays.update(zip(values, session.run(dict(sample)), strict=True))
        for value, sums in norms_by_name.values():
            sums.add(np.asarray(arrays[value]))
    return {name: sums for name, (_, sums) in norms_by_name.items()}


def _trained_norms(file: OnnxFile) -> dict[str, tuple[str, _Sums]]:
    """The first BatchNormalization nodes with trained statistics: the value that each reads, and empty sums of it."""
    known = constants(file, largest=_MOST_CONSTANTS)
    norms_by_name: dict[str, tuple[str, _Sums]] = {}
    for node in file.model.graph.node:
        parameters = [known[name] for name in node.input[1:5] if name in known]
        if node.op_type != "BatchNormalization" or len(parameters) < 4:
            continue
        if len(norms_by_name) >= _LOOKED_AT:
            break
        weight, bias, mean, variance = parameters
        if _trained(mean, variance, weight, bias, 0):
            eps = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            name = node.name or node.output[0]
            norms_by_name[name] = (node.input[0], _Sums(mean, variance + eps))
    return norms_by_name
