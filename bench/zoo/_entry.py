"""The architectures of the zoo: small, with random weights, as people write them and as the library transformers does.

An entry is a function that returns (module, example inputs); its docstring says what it is. `opens` names the dims that must
come out open; everything else about dims is left to the exporter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.corpus import give_weights

BATCH, TEXT, IMAGE = ("batch",), ("batch", "sequence"), ("batch", "height", "width")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    family: str
    about: str
    opens: tuple[str, ...]
    build: Callable[[], tuple[nn.Module, Any]]


ENTRIES: dict[str, Entry] = {}


_IMPLEMENTATION: dict[str, str] = {}
"""The attention that models of the library transformers are built with; empty is the library's own choice, as its users get it."""


def entry(
    family: str, opens: tuple[str, ...], *, attention: bool = False
) -> Callable[[Callable[[], tuple[nn.Module, Any]]], Callable[[], tuple[nn.Module, Any]]]:
    """Register an architecture; `attention` also registers it with the library's eager attention."""

    def register(build: Callable[[], tuple[nn.Module, Any]]) -> Callable[[], tuple[nn.Module, Any]]:
        def eager() -> tuple[nn.Module, Any]:
            _IMPLEMENTATION["attn_implementation"] = "eager"
            try:
                return build()
            finally:
                _IMPLEMENTATION.clear()

        name, about = build.__name__, (build.__doc__ or "").strip().rstrip(".")
        ENTRIES[name] = Entry(name=name, family=family, about=about, opens=opens, build=build)
        if attention:
            ENTRIES[f"{name}_eager"] = Entry(
                name=f"{name}_eager",
                family=family,
                about=f"{about}, with eager attention",
                opens=opens,
                build=eager,
            )
        return build

    return register


def configured(model: Any, config: Any) -> Any:
    """A model of the library transformers with the attention that is asked for."""
    return model._from_config(config, **_IMPLEMENTATION)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def ids(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def padded(length: int, kind: torch.dtype = torch.long) -> Tensor:
    """A mask of two rows, the second padded on the right."""
    return (torch.arange(length)[None] < torch.tensor([[length], [length - 3]])).to(kind)


def ready(model: nn.Module) -> nn.Module:
    return give_weights(model, 7).eval()


class Output(nn.Module):
    """A model of the library transformers whose one output is taken by name; the cache is left out."""

    def __init__(self, model: nn.Module, output: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.output, self.fixed = model, output, fixed


class OfText(Output):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return getattr(
            self.model(input_ids=input_ids, attention_mask=attention_mask, **self.fixed),
            self.output,
        )


class OfImages(Output):
    def forward(self, pixel_values: Tensor) -> Tensor:
        return getattr(self.model(pixel_values=pixel_values, **self.fixed), self.output)


class OfSound(Output):
    def forward(self, input_values: Tensor) -> Tensor:
        return getattr(self.model(input_values, **self.fixed), self.output)


def transformers() -> Any:
    import transformers as library

    library.logging.set_verbosity_error()
    return library


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 97,
}
LM = {
    **SMALL,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def text(
    model: str, config: str, output: str = "last_hidden_state", **settings: Any
) -> tuple[nn.Module, Any]:
    library = transformers()
    made = configured(getattr(library, model), getattr(library, config)(**settings))
    fixed = {"use_cache": False} if hasattr(made.config, "use_cache") else {}
    return OfText(ready(made), output, **fixed), {
        "input_ids": ids(settings.get("vocab_size", 97), 2, 9),
        "attention_mask": padded(9),
    }


def images(
    model: str, config: str, output: str = "last_hidden_state", size: int = 32, **settings: Any
) -> tuple[nn.Module, Any]:
    library = transformers()
    return OfImages(
        ready(configured(getattr(library, model), getattr(library, config)(**settings))), output
    ), (normal(2, 3, size, size),)
