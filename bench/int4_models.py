"""Small language models for `make bench-int4`, trained here on text that every machine has: the sources of Python's own library.

Three architectures of transformers: GPT-2 on bytes (Gemm, tied embeddings), Llama on bytes (MatMul, gated, grouped queries), Qwen3 on a BPE of
1,024 tokens (tied embeddings that are a third of the weights). Trained weights are kept in `.bench-models/`, which git ignores.
"""

import hashlib
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).parent.parent / ".bench-models"
LENGTH = 96
_TRAINED_ON, _BATCH = 1_500_000, 8
HELD_OUT = 96
"""Sequences that nothing but the comparison sees."""
CALIBRATED_ON = 64
_BPE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One architecture with its tokens and its training."""

    name: str
    build: Callable[[int], torch.nn.Module]
    bpe: bool = False
    steps: int = 300
    rate: float = 4e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model as an ONNX file, with sequences to calibrate on and to judge by."""

    name: str
    path: Path
    calibration: np.ndarray
    held_out: np.ndarray


def _gpt2(tokens: int) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=tokens,
            n_positions=LENGTH,
            n_embd=128,
            n_layer=3,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def _llama(tokens: int) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokens,
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
        )
    )


def _qwen3(tokens: int) -> torch.nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=tokens,
            hidden_size=160,
            intermediate_size=320,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=True,
        )
    )


KINDS = (
    Kind(name="gpt2-bytes", build=_gpt2),
    Kind(name="llama-bytes", build=_llama),
    Kind(name="qwen3-bpe", build=_qwen3, bpe=True),
)


def library_text() -> tuple[str, str]:
    """Text to train on and text to judge by: every tenth file of the library, by its hash, is of the second kind."""
    trained, held = [], []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text("utf-8", errors="replace")
        place = hashlib.sha256(path.name.encode()).digest()[0]
        (held if place % 10 == 0 else trained).append(text)
    return "\n".join(trained)[: 4 * _TRAINED_ON], "\n".join(held)


def _tokens(kind: Kind) -> tuple[np.ndarray, np.ndarray, int]:
    trained, held = library_text()
    if not kind.bpe:
        sides = [
            np.frombuffer(text.encode(), np.uint8).astype(np.int64) for text in (trained, held)
        ]
        return sides[0], sides[1], 256
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([trained[:_TRAINED_ON]], vocab_size=_BPE, show_progress=False)
    sides = [
        np.array(tokenizer.encode(text).ids, np.int64) for text in (trained[:_TRAINED_ON], held)
    ]
    return sides[0], sides[1], _BPE


def _draw(tokens: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    starts = rng.integers(0, len(tokens) - LENGTH - 1, count)
    return np.stack([tokens[start : start + LENGTH] for start in starts])


def _train(kind: Kind, module: torch.nn.Module, tokens: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=kind.rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, kind.rate, total_steps=kind.steps, pct_start=0.1
    )
    for step in range(kind.steps):
        ids = torch.from_numpy(_draw(tokens, _BATCH, rng))
        loss = module(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 249:
            print(f"  {kind.name}: step {step + 1}, loss {loss.item():.3f}", flush=True)


class _Logits(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids=input_ids, use_cache=False).logits


def trained(kind: Kind) -> Trained:
    """The model of a kind; trained once."""
    FOLDER.mkdir(exist_ok=True)
    tokens, held, size = _tokens(kind)
    torch.manual_seed(0)
    module = kind.build(size)
    weights = FOLDER / f"{kind.name}.pt"
    if weights.is_file():
        module.load_state_dict(torch.load(weights, weights_only=True))
    else:
        start = time.perf_counter()
        _train(kind, module, tokens)
        torch.save(module.state_dict(), weights)
        print(f"  {kind.name}: trained in {time.perf_counter() - start:.0f} s", flush=True)
    path = FOLDER / f"{kind.name}.onnx"
    if not path.is_file():
        _export(module.eval(), path)
    rng = np.random.default_rng(1)
    return Trained(
        name=kind.name,
        path=path,
        calibration=_draw(tokens, CALIBRATED_ON, rng),
        held_out=_draw(held, HELD_OUT, rng),
    )


def _export(module: torch.nn.Module, path: Path) -> None:
    example = (torch.zeros(2, LENGTH, dtype=torch.int64),)
    torch.onnx.export(
        _Logits(module),
        example,
        path,
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        input_names=["input_ids"],
        output_names=["logits"],
        external_data=False,
    )


if __name__ == "__main__":
    for each in KINDS:
        print(trained(each).path)
