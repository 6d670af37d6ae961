"""A decoding step with a growing cache: the number of past keys is dynamic, from none at all upwards."""

from pathlib import Path

from bench.architectures import CachedCausalLM
from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="causal-lm", about="logits and the grown key-value cache")


def build(folder: Path) -> Built:
    model = give_weights(CachedCausalLM(), 42)
    inputs = (integers(61, 2, 3), normal(2, 2, 2, 4, 5, 8))
    axes = ({0: "batch", 1: "length"}, {2: "batch", 4: "past"})
    return healthy(folder / "causal_lm_cache.onnx", model, inputs, axes, dynamo=True)
