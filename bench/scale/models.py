"""Models of 0.2 million to a billion parameters with random weights, made anew from the same seed in every process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_VOCABULARY = 30_522


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A module with what `verify` is called with."""

    module: nn.Module
    inputs: tuple[Any, ...]
    dynamic_shapes: Any


class _First(nn.Module):
    """A Hugging Face model that takes ids and answers with its first tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids, return_dict=False)[0]  # type: ignore[no-any-return]


def _text(model: nn.Module, *, vocabulary: int, length: int) -> Sample:
    ids = torch.randint(3, vocabulary, (2, length))
    shapes = ({0: "batch", 1: "length"},)
    return Sample(module=_First(model.eval()), inputs=(ids,), dynamic_shapes=shapes)


def mlp() -> Sample:
    """0.2 million parameters: three layers."""
    layers = [nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)]
    module = nn.Sequential(*layers).eval()
    return Sample(module=module, inputs=(torch.randn(8, 64),), dynamic_shapes=({0: "batch"},))


def resnet() -> Sample:
    """ResNet-50: 23 million."""
    from transformers import ResNetConfig, ResNetModel

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ResNetModel(ResNetConfig())

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.model(pixels).pooler_output.flatten(1)  # type: ignore[no-any-return]

    image = torch.randn(1, 3, 224, 224)
    return Sample(module=Pooled().eval(), inputs=(image,), dynamic_shapes=({0: "batch"},))


def bert() -> Sample:
    """BERT-base: 109 million."""
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(), add_pooling_layer=False)
    return _text(model, vocabulary=_VOCABULARY, length=32)


def gpt2() -> Sample:
    """GPT-2 medium: 355 million."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    return _text(GPT2Model(config), vocabulary=50_000, length=32)


def gpt2xl() -> Sample:
    """GPT-2 of 27 wide blocks: 597 million, 2.4 GB of weights, more than a protobuf holds."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=1280, n_layer=27, n_head=20, use_cache=False)
    return _text(GPT2Model(config), vocabulary=50_000, length=16)


def _llama(layers: int) -> Sample:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32_000,
        use_cache=False,
    )
    return _text(LlamaModel(config), vocabulary=32_000, length=16)


def llama() -> Sample:
    """The shape of TinyLlama: 1.03 billion."""
    return _llama(22)


def llama2b() -> Sample:
    """The same twice as deep: 2 billion, 8 GB of weights."""
    return _llama(44)


MODELS: dict[str, Callable[[], Sample]] = {
    "mlp": mlp,
    "resnet": resnet,
    "bert": bert,
    "gpt2": gpt2,
    "gpt2xl": gpt2xl,
    "llama": llama,
    "llama2b": llama2b,
}


def deep(blocks: int) -> Sample:
    """Many nodes, few parameters: narrow blocks of a norm, a matrix and an activation."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(32), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + nn.functional.gelu(self.linear(self.norm(x)))

    module = nn.Sequential(*(Block() for _ in range(blocks))).eval()
    return Sample(module=module, inputs=(torch.randn(4, 32),), dynamic_shapes=({0: "batch"},))


def broad(outputs: int) -> Sample:
    """Many outputs of one small trunk."""

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Linear(32, 64)
            self.heads = nn.ModuleList(nn.Linear(64, 8) for _ in range(outputs))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x = torch.tanh(self.trunk(x))
            return tuple(head(x) for head in self.heads)

    return Sample(
        module=Heads().eval(), inputs=(torch.randn(4, 32),), dynamic_shapes=({0: "batch"},)
    )


def make(name: str) -> Sample:
    """By name; `deep-64` and `broad-16` have their size behind the dash."""
    torch.manual_seed(20)
    kind, _, size = name.partition("-")
    if kind == "deep":
        return deep(int(size))
    if kind == "broad":
        return broad(int(size))
    return MODELS[kind]()
