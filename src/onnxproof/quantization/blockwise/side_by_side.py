"""What a language model writes, float and quantized, side by side: both go on from the same beginning, always with the token that they find likeliest.

A sequence keeps the length that the data has, so that graphs of one fixed length work too: what a causal model says at a place does not depend on what stands behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.text_losses import LanguageShape, language_shape
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.results.blocks import TextPair
from onnxproof.runtimes import ort

Array = np.ndarray[Any, Any]
Decode = Callable[[Sequence[int]], str]
_TEXTS = 4
_PROMPT, _WRITTEN = 24, 32
"""Tokens that both begin with, at most half of the sequence, and tokens that they write."""


def numbers(ids: Sequence[int]) -> str:
    """Token ids as they are, where no tokenizer is known."""
    return " ".join(map(str, ids))


def decoder(tokenizer: Path | None) -> Decode:
    """Words where there is a tokenizer that can be read, else numbers."""
    if tokenizer is None:
        return numbers
    try:
        from tokenizers import Tokenizer

        known = Tokenizer.from_file(str(tokenizer))
    except Exception:  # tokenizers raises Exception itself; the texts are shown as numbers then
        return numbers
    return lambda ids: str(known.decode(list(ids), skip_special_tokens=False))


def write_both(
    plain: onnx.ModelProto, quantized: onnx.ModelProto, samples: Sequence[Batch], decode: Decode
) -> tuple[TextPair, ...]:
    """A few texts; none for what is no language model, or too short."""
    shape = language_shape(plain, samples) if samples else None
    if shape is None:
        return ()
    batch = {name: array[:_TEXTS] for name, array in samples[0][1].items()}
    length = batch[shape.tokens].shape[1]
    begin = min(_PROMPT, length // 2)
    end = min(begin + _WRITTEN, length)
    if not 0 < begin < end:
        return ()
    sides = [_continue(model, shape, batch, begin, end) for model in (plain, quantized)]
    prompts = batch[shape.tokens][:, :begin].tolist()
    texts = zip(prompts, *(side.tolist() for side in sides), strict=True)
    return tuple(_pair(prompt, one, other, decode) for prompt, one, other in texts)


def _continue(
    model: onnx.ModelProto, shape: LanguageShape, batch: Mapping[str, Array], begin: int, end: int
) -> Array:
    """The tokens that a model writes at these places."""
    session = ort.open_model(model, outputs=[shape.logits])
    tokens = batch[shape.tokens].copy()
    for place in range(begin, end):
        (logits,) = session.run({**batch, shape.tokens: tokens})
        assert logits is not None
        tokens[:, place] = logits[:, place - 1].argmax(-1)
    return np.asarray(tokens[:, begin:end])


def _pair(
    prompt: Sequence[int], reference: Sequence[int], candidate: Sequence[int], decode: Decode
) -> TextPair:
    pairs = enumerate(zip(reference, candidate, strict=True))
    apart = next((place for place, (one, other) in pairs if one != other), None)
    return TextPair(
        prompt=decode(prompt),
        reference=decode(reference),
        candidate=decode(candidate),
        same=decode(reference[:apart]) if apart is not None else decode(reference),
        tokens=len(reference),
        first_apart=apart,
    )
