"""A cause of a loop is named by what it is about: a state, a position, a mask, a value that was frozen; never only by the operator that shows it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support import looping_models as models
from support.looping_models import Looping
from torch import Tensor, nn

import onnxproof


class Faded(models.Scan):
    """The state is made smaller on its way back."""

    def forward(self, u: Tensor, ssm_state: Tensor, conv_state: Tensor) -> tuple[Tensor, ...]:
        answer, ssm_state, conv_state = super().forward(u, ssm_state, conv_state)
        return answer, ssm_state * 0.9, conv_state


class WrappingDecoder(models.StaticDecoder):
    """Its buffer is written from the start again, once it is full."""

    def slot(self, position: Tensor) -> Tensor:
        return position.remainder(self.most)


class SlotAhead(WrappingDecoder):
    """Tokens are written one slot further on."""

    def slot(self, position: Tensor) -> Tensor:
        return (position + 1).remainder(self.most)


class MaskTopLeft(models.Decoder):
    """The causal mask is aligned to the first key in the place of the last."""

    def allowed(self, mask: Tensor, past: int, length: int) -> Tensor:
        keys, queries = torch.arange(past + length)[None], torch.arange(length)[:, None]
        return (keys <= queries)[None, None] & mask[:, None, None, :].bool()


class Fading(models.Decoder):
    """What is attended to fades beyond 12 tokens."""

    def gains(self, total: int) -> Tensor:
        length = torch.ones(total).sum()
        return self.plain() * (12.0 / torch.clamp(length, min=12.0))

    def plain(self) -> Tensor:
        return 1 + torch.arange(8).to(self.head.weight.dtype) / 8

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new], 2)
        return whole * self.gains(whole.shape[2]), whole


class FadingFrozen(Fading):
    """The fading of a short example."""

    def gains(self, total: int) -> Tensor:
        return self.plain()


def _wrapping() -> Looping:
    right = models.static_decoder()
    module = models.seeded(WrappingDecoder())
    return Looping(
        module=module,
        example=right.example,
        inputs=right.inputs,
        outputs=right.outputs,
        dims=right.dims,
    )


def _fading() -> Looping:
    return models.decoder(models.seeded(Fading()))


@pytest.mark.parametrize(
    ("make", "fault", "code"),
    [
        (models.scan, Faded, "cache"),
        (_wrapping, SlotAhead, "position"),
        (models.decoder, MaskTopLeft, "masking"),
        (_fading, FadingFrozen, "baked-value"),
    ],
)
def test_what_is_proven_has_the_name_of_what_is_wrong(
    make: Callable[[], Looping], fault: Callable[[], nn.Module], code: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    looping = make()
    wrong = models.with_weights_of(looping.module, fault)
    proof = onnxproof.verify(
        looping.module,
        looping.export(tmp_path / "model.onnx", wrong),
        looping.example,
        dynamic_shapes=looping.dims,
        budget_s=40.0,
    )
    assert [cause.code for cause in proof.causes if cause.proven] == [code], proof.causes
