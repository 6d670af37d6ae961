"""What a trial costs, sample by sample: KL in nats for language models, the share of noise in the outputs for all others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.text_losses import (
    LanguageShape,
    TextJudge,
    TextLosses,
    language_shape,
)
from onnxproof.quantization.calibration.batches import Batch, count_samples
from onnxproof.quantization.scoring import compute_outputs
from onnxproof.quantization.trial_cache import TrialCache

Array = np.ndarray[Any, Any]


class Judge:
    """The float graph's answers to some samples, kept to compare trials with; what a journal knows is not measured again."""

    def __init__(
        self, model: onnx.ModelProto, samples: Sequence[Batch], journal: TrialCache | None
    ) -> None:
        self.samples = samples
        self.shape: LanguageShape | None = language_shape(model, samples)
        self._journal = journal
        self._texts: TextJudge | None = None
        if self.shape is not None:
            self._texts = TextJudge(model, self.shape, samples)
        else:
            self._outputs = compute_outputs(model, samples)

    @property
    def unit(self) -> str:
        """`nats` of KL a token, or `noise`: the error's energy over that of the outputs."""
        return "noise" if self.shape is None else "nats"

    def costs(self, model: onnx.ModelProto) -> Array:
        """One number a sample."""
        if self._journal is None:
            return self._measure(model)
        numbers = self._journal.recall_costs(
            model, self.samples, lambda: self._measure(model).tolist()
        )
        return np.asarray(numbers)

    def cost(self, model: onnx.ModelProto) -> float:
        """The mean."""
        return float(self.costs(model).mean())

    def texts(self, model: onnx.ModelProto) -> TextLosses | None:
        """KL and cross-entropies; None for what is no language model."""
        if self._texts is None:
            return None
        return self._texts.losses(model)

    def _measure(self, model: onnx.ModelProto) -> Array:
        if self._texts is not None:
            return self._texts.losses(model).kl
        found = compute_outputs(model, self.samples)
        pairs = zip(self._outputs, found, self.samples, strict=True)
        return np.concatenate(
            [_noise(one, other, count_samples(batch)) for one, other, (_, batch) in pairs]
        )


def _noise(wanted: list[Array], found: list[Array], rows: int) -> Array:
    """Sample by sample where the outputs have a row for each, else one number for the batch."""
    signal, error = 0.0, 0.0
    for one, other in zip(wanted, found, strict=True):
        if one.dtype.kind != "f" or not one.size:
            continue
        by_row = one.ndim > 0 and len(one) == rows
        shape = (rows, -1) if by_row else (1, -1)
        change = (other.astype(np.float64) - one).reshape(shape)
        signal = signal + (one.astype(np.float64).reshape(shape) ** 2).sum(1)
        error = error + (change**2).sum(1)
    return np.atleast_1d(np.asarray(error / np.maximum(signal, 1e-30)))
