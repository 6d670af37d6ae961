"""The samples that a quantized file is judged by: the first of the user's data, or one case where there is none."""

import itertools
from collections.abc import Mapping
from typing import Any

from onnxproof.inputs import data_stream
from onnxproof.reference.subject import Subject
from onnxproof.results import Signature

_ITEMS = 16


def first_samples(
    subject: Subject | None, signature: Signature, otherwise: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """By the reference's names; an iterator was used up by the proof."""
    data = subject.data if subject is not None else None
    if data is None or hasattr(data, "__next__"):
        return [otherwise]
    names = [info.name for info in signature.inputs]
    stream = itertools.islice(data_stream.stream(data, names), _ITEMS)
    return [arrays for _, arrays in stream] or [otherwise]
