"""What a re-run with fresh rounding costs, in forward passes: the first of a case, and each further one.

python -m bench.scale.reruns
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from onnxproof.reference.rounding import Jitter
from onnxproof.reference.rounding_errors import RoundingErrors

_TIMES = 3


def main() -> None:
    """Print a row for each model."""
    torch.set_num_threads(1)
    print("| model | a pass | first re-run, passes | further ones, passes | kept |")
    print("| --- | --: | --: | --: | --: |")
    for name, module, args in _models():
        with torch.no_grad():
            print(_row(name, module.eval(), args), flush=True)


def _row(name: str, module: nn.Module, args: tuple[Tensor, ...]) -> str:
    errors = RoundingErrors()

    def rerun(kept: RoundingErrors) -> None:
        with Jitter(1, errors=kept):
            module(*args)

    rerun(errors)
    plain = _seconds(lambda: module(*args))
    first = _seconds(lambda: rerun(RoundingErrors()))
    further = _seconds(lambda: rerun(errors))
    kept_mb = errors.nbytes / (1 << 20)
    return f"| {name} | {plain * 1e3:.1f} ms | {first / plain:.1f} | {further / plain:.1f} | {kept_mb:.0f} MB |"


def _seconds(call: Callable[[], Any]) -> float:
    """The fastest of a few."""
    call()
    durations = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return min(durations)


def _models() -> Iterator[tuple[str, nn.Module, tuple[Tensor, ...]]]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    blocks = [nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(24)]
    transformer = nn.Sequential(*blocks)
    yield "24 small transformer blocks, 2 x 16", transformer, (torch.randn(2, 16, 64),)
    yield "24 small transformer blocks, 2 x 256", transformer, (torch.randn(2, 256, 64),)
    bert = BertModel(BertConfig(num_hidden_layers=4, attn_implementation="eager"))
    for length in (16, 128):
        ids = torch.randint(0, 1000, (1, length))
        yield f"4 layers of BERT-base, 1 x {length}", bert, (ids,)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3)]
    for _ in range(6):
        layers += [nn.Conv2d(64, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU()]
    yield (
        "7 convolutions, 1 x 3 x 112 x 112",
        nn.Sequential(*layers),
        (torch.randn(1, 3, 112, 112),),
    )


if __name__ == "__main__":
    main()
