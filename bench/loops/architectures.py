"""Looping architectures, exported with their states and proven by rollouts; with `--loader` also run by Optimum.

python -m bench.loops.architectures                            # all of them
python -m bench.loops.architectures --only llama,t5
python -m bench.loops.architectures --loader VENV/bin/python   # a Python with optimum-onnx: it generates from our folders,
                                                               # and exports folders of its own, which are verified
"""

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.loops.case import Input, Interface, seeded
from bench.loops.streams import Mamba, Predictor, state

_TEXT = {
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_DECODER = _TEXT | {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_PAIR = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
}
FOLDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", _DECODER),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _DECODER),
    "mistral": ("MistralConfig", "MistralForCausalLM", _DECODER | {"sliding_window": 12}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", _DECODER | {"head_dim": 8}),
    "phi": ("PhiConfig", "PhiForCausalLM", _DECODER),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": 96,
            "n_positions": 128,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "bart": ("BartConfig", "BartForConditionalGeneration", _TEXT | _PAIR),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "vocab_size": 96,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
    ),
    "whisper": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {name: value for name, value in _TEXT.items() if "max_position" not in name}
        | _PAIR
        | {
            "max_source_positions": 20,
            "max_target_positions": 128,
            "num_mel_bins": 8,
            "suppress_tokens": [],
            "begin_suppress_tokens": [],
        },
    ),
}
"""Configuration, class and arguments of models that are folders."""


class Conformer(nn.Module):
    """A streaming layer with chunks of any length: attention to the last 12 frames, then a causal convolution."""

    context, taps, width = 12, 5, 16
    calls = Interface(
        inputs=(
            Input(name="frames", kind="frames", shape=("B", "T", 16)),
            state("attention_cache_in", "B", 12, 16),
            state("conv_cache_in", "B", 16, 4),
            state("seen_in", 1, dtype=torch.int64),
        ),
        outputs=("encoded", "attention_cache_out", "conv_cache_out", "seen_out"),
        loop={
            "attention_cache_out": "attention_cache_in",
            "conv_cache_out": "conv_cache_in",
            "seen_out": "seen_in",
        },
    )

    def __init__(self) -> None:
        super().__init__()
        d = self.width
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.norm, self.norm_conv = nn.LayerNorm(d), nn.LayerNorm(d)
        self.gate = nn.Linear(d, 2 * d)
        self.depthwise = nn.Conv1d(d, d, self.taps, groups=d)

    def forward(
        self,
        frames: Tensor,
        attention_cache_in: Tensor,
        conv_cache_in: Tensor,
        seen_in: Tensor,
    ) -> tuple[Tensor, ...]:
        """Encoded frames and the next caches."""
        length = frames.shape[1]
        normed = self.norm(frames)
        whole = torch.cat([attention_cache_in, normed], 1)
        keys = torch.arange(self.context + length)[None]
        queries = self.context + torch.arange(length)[:, None]
        there = keys >= self.context - seen_in
        allowed = (keys <= queries) & (queries - keys <= self.context) & there
        scores = self.q(normed) @ self.k(whole).transpose(1, 2) / math.sqrt(self.width)
        mixed = torch.where(allowed, scores, -1e9).softmax(-1) @ self.v(whole)
        x = frames + self.o(mixed)
        a, b = self.gate(self.norm_conv(x)).chunk(2, -1)
        gated = (a * torch.sigmoid(b)).transpose(1, 2)
        buffer = torch.cat([conv_cache_in, gated], 2)
        x = x + nn.functional.silu(self.depthwise(buffer)).transpose(1, 2)
        kept = buffer[:, :, -(self.taps - 1) :]
        return x, whole[:, -self.context :], kept, seen_in + length


class Transducer(nn.Module):
    """Predictor and joiner of a transducer: (token, encoded [rows, width], h_in, c_in) -> logits, h_out, c_out."""

    calls = Interface(
        inputs=(
            Input(name="token", kind="tokens", shape=("B", 1)),
            Input(name="encoded", kind="frames", shape=("B", 12)),
            state("h_in", 1, "B", 16),
            state("c_in", 1, "B", 16),
        ),
        outputs=("logits", "h_out", "c_out"),
        loop={"h_out": "h_in", "c_out": "c_in"},
        chunk=1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.predictor, self.encoder = Predictor(), nn.Linear(12, 64)

    def forward(self, token: Tensor, encoded: Tensor, h_in: Tensor, c_in: Tensor) -> Any:
        """The joined logits."""
        logits, h, c = self.predictor(token, h_in, c_in)
        return torch.tanh(logits + self.encoder(encoded)[:, None]), h, c


MODULES: dict[str, Callable[[], nn.Module]] = {
    "mamba": Mamba,
    "conformer": Conformer,
    "transducer": Transducer,
}


def tiny_model(name: str) -> Any:
    """A model of the library transformers with random weights that matter."""
    import transformers

    config, kind, arguments = FOLDERS[name]
    torch.manual_seed(1)
    model = getattr(transformers, kind)(getattr(transformers, config)(**arguments)).eval()
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if weight.dim() < 2:
                continue
            table = any(word in label for word in ("embed", "shared", "wte", "wpe"))
            scale = 1.0 if table else 1 / math.sqrt(weight[0].numel())
            weight.copy_(torch.randn(weight.shape) * scale)
    model.tie_weights()
    return model


def prove_folder(name: str, root: Path, loader: str) -> Iterator[str]:
    """Export with the cache, verify; let Optimum generate from it, and verify what Optimum exports."""
    import onnxproof
    from onnxproof.options import ExportOptions
    from onnxproof.packages.export import export_folder

    saved, folder, theirs = root / "saved", root / "onnx", root / "theirs"
    tiny_model(name).save_pretrained(saved)
    export_folder(saved, folder, ExportOptions())
    yield f"ours: {describe(onnxproof.verify(saved, folder, explain=False))}"
    if not loader:
        return
    script = Path(__file__).with_name("optimum_side.py")
    command = [loader, "-W", "ignore", str(script), str(saved), str(folder), str(theirs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    yield f"Optimum on ours: {lines[-1] if lines else done.stderr[-300:]}"
    if lines and json.loads(lines[-1]).get("exported") == "yes":
        yield f"Optimum's own: {describe(onnxproof.verify(saved, theirs, explain=False))}"


def prove_module(name: str, root: Path) -> Iterator[str]:
    """Export the module as it is, and verify."""
    import onnxproof

    module = seeded(MODULES[name](), 3)
    calls: Interface = MODULES[name].calls  # type: ignore[attr-defined]
    proof = onnxproof.export(
        module,
        calls.first_call(),
        root / "model.onnx",
        dynamic_shapes=tuple(each.dims for each in calls.inputs),
    )
    yield f"ours: {describe(proof)}"


def describe(proof: Any) -> str:
    """The verdict, and what was rolled."""
    padded = [
        r for r in proof.rollouts if any(w in r.schedule for w in ("left", "right", "source"))
    ]
    steps = sum(rollout.steps for rollout in proof.rollouts)
    bad = [rollout.schedule for rollout in proof.rollouts if rollout.first_bad_step is not None]
    codes = sorted({finding.code for finding in proof.findings})
    return (
        f"{proof.verdict.value}, {len(proof.rollouts)} rollouts ({len(padded)} padded), {steps} calls"
        f"{', wrong: ' + ', '.join(bad) if bad else ''}, findings {codes}"
    )


def main() -> None:
    """Prove what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--loader", default="")
    options = parser.parse_args()
    chosen = [word for word in options.only.split(",") if word]
    for name in (*FOLDERS, *MODULES):
        if chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            begun = time.process_time()
            root = Path(folder)
            if name in FOLDERS:
                lines = prove_folder(name, root, options.loader)
            else:
                lines = prove_module(name, root)
            try:
                for line in lines:
                    print(f"{name:12} {line}", flush=True)
            except Exception as why:  # the next architecture is still asked
                print(f"{name:12} {type(why).__name__}: {why}"[:600], flush=True)
            print(f"{name:12} {time.process_time() - begun:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
