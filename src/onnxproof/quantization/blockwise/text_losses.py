"""What a quantized language model loses, text by text: KL of the next token from the float model's in nats, and the cross-entropy of the tokens that follow."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.paired_metric import CONFIDENCE, Metric, Outcome, compare_paired
from onnxproof.quantization.tuning_state import Budget
from onnxproof.runtimes import ort
from onnxproof.verification.rollout.language import FEWEST_TOKENS, divergence, log_softmax

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageShape:
    """Which output of a graph has the scores of the next token, and which input has the tokens."""

    logits: str
    tokens: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLosses:
    """One number a text: the mean over its places."""

    kl: Array
    cross_entropy: Array
    float_cross_entropy: Array

    @property
    def mean_kl(self) -> float:
        """Nats a token."""
        return float(self.kl.mean())

    @property
    def perplexity(self) -> float:
        """Of the quantized model."""
        return math.exp(float(self.cross_entropy.mean()))

    @property
    def float_perplexity(self) -> float:
        """Of the float model, on the same texts."""
        return math.exp(float(self.float_cross_entropy.mean()))

    def kl_metric(self, confidence: float = CONFIDENCE) -> Metric:
        """The mean KL as a drop with its interval over texts."""
        return compare_paired(np.zeros_like(self.kl), -self.kl, confidence)

    def perplexity_metric(self, confidence: float = CONFIDENCE) -> Metric:
        """The rise of the mean cross-entropy with its paired interval: log(1.02) is 2 % of perplexity."""
        rise = self.cross_entropy - self.float_cross_entropy
        return compare_paired(np.zeros_like(rise), -rise, confidence)


def judge_texts(losses: TextLosses, budget: Budget) -> Outcome:
    """Whether the texts show that the budget holds: the worse of KL and perplexity."""
    outcomes = []
    if budget.max_kl is not None:
        outcomes.append(losses.kl_metric(budget.confidence).outcome(budget.max_kl))
    if budget.max_perplexity is not None:
        most = math.log1p(budget.max_perplexity)
        outcomes.append(losses.perplexity_metric(budget.confidence).outcome(most))
    for worst in (Outcome.BEYOND, Outcome.NOT_SHOWN):
        if worst in outcomes:
            return worst
    return Outcome.SHOWN


def language_shape(model: onnx.ModelProto, samples: Sequence[Batch]) -> LanguageShape | None:
    """How the graph is a language model; None where it is none: it takes integers, texts by places, and gives scores, texts by places by tokens."""
    _, batch = samples[0]
    scores = [value.name for value in model.graph.output if _is_scores(value)]
    tokens = [name for name, array in batch.items() if array.dtype.kind in "iu" and array.ndim == 2]
    if not scores or not tokens:
        return None
    varied = max(tokens, key=lambda name: ("ids" in name, len(np.unique(batch[name]))))
    shape = LanguageShape(logits=scores[0], tokens=varied)
    logits = next(_logits(model, shape, samples[:1]))
    fits = logits.shape[:2] == batch[varied].shape and logits.shape[2] >= FEWEST_TOKENS
    return shape if fits and int(batch[varied].max()) < logits.shape[2] else None


def _is_scores(value: onnx.ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    return kind.elem_type == onnx.TensorProto.FLOAT and len(kind.shape.dim) == 3


def _logits(
    model: onnx.ModelProto, shape: LanguageShape, samples: Sequence[Batch]
) -> Iterator[Array]:
    session = ort.open_model(model, outputs=[shape.logits])
    for _, batch in samples:
        (logits,) = session.run(batch)
        assert logits is not None
        yield logits


class TextJudge:
    """The float model's answers to a few texts, kept to compare others with."""

    def __init__(
        self, model: onnx.ModelProto, shape: LanguageShape, samples: Sequence[Batch]
    ) -> None:
        self.shape, self.samples = shape, samples
        self._reference = list(_logits(model, shape, samples))
        pairs = zip(self._reference, samples, strict=True)
        self._entropies = [
            _cross_entropy(logits, self._tokens(batch)) for logits, (_, batch) in pairs
        ]

    def losses(self, model: onnx.ModelProto) -> TextLosses:
        """Of another graph on the same texts."""
        kl, entropies = [], []
        answers = _logits(model, self.shape, self.samples)
        for wanted, found, (_, batch) in zip(self._reference, answers, self.samples, strict=True):
            kl.append(divergence(wanted, found).mean(1))
            entropies.append(_cross_entropy(found, self._tokens(batch)))
        return TextLosses(
            kl=np.concatenate(kl),
            cross_entropy=np.concatenate(entropies),
            float_cross_entropy=np.concatenate(self._entropies),
        )

    def _tokens(self, batch: Mapping[str, Array]) -> Array:
        return batch[self.shape.tokens]


def _cross_entropy(logits: Array, tokens: Array) -> Array:
    """The mean over places of each text; the last place has no token that follows."""
    scores = log_softmax(logits[:, :-1])
    following = np.take_along_axis(scores, tokens[:, 1:, None].astype(np.int64), axis=2)
    return np.asarray(-following[..., 0].mean(1))
