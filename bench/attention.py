"""Attention as the library transformers builds it, exported as users do, in each of its implementations; and files whose mask is wrong.

    python -m bench.attention                      # every model, healthy and with each planted fault
    python -m bench.attention --only bert,gpt2     # some of them
    python -m bench.attention --healthy            # without the faults

A healthy file must be FAITHFUL, with notes of the domain `masked` at the most where a mask hides everything. A file that
ignores its mask, reads it inverted or off by one must be DIVERGED.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.zoo._entry import LM, SMALL, OfImages, OfSound, OfText, ids, normal, padded, transformers
from onnxproof.exporter.export import quiet

IMPLEMENTATIONS = ("sdpa", "eager")
BUDGET_S = 20.0
_VISION = {name: value for name, value in SMALL.items() if name != "vocab_size"}
_SPEECH = {
    "vocab_size": 97,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_GPT2 = {
    "vocab_size": 97,
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_OPT = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 64,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 32,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
_DISTIL = {
    "vocab_size": 97,
    "dim": 32,
    "hidden_dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 64,
}
_T5 = {
    "vocab_size": 97,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_WHISPER = {**_SPEECH, "num_mel_bins": 8, "max_source_positions": 16}


class OfPairs(nn.Module):
    """An encoder with its decoder: logits alone, the cache is left out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
    ) -> Tensor:
        return self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
        ).logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One architecture: its class and config in the library, the wrapper that picks the output, and its inputs."""

    kind: str
    config: str
    settings: dict[str, Any]
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model
    inputs: str = "text"

    def build(
        self, implementation: str
    ) -> tuple[nn.Module, dict[str, Tensor], dict[str, dict[int, str]]]:
        """The module with the library's own random weights, example inputs, and the names of its open dims."""
        torch.manual_seed(0)
        library = transformers()
        config = getattr(library, self.config)(**self.settings)
        model = getattr(library, self.kind)._from_config(config, attn_implementation=implementation)
        inputs, dims = _INPUTS[self.inputs]()
        return self.wrap(model).eval(), inputs, dims


def _text() -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    inputs = {"input_ids": ids(97, 2, 9), "attention_mask": padded(9)}
    return inputs, {name: {0: "batch", 1: "sequence"} for name in inputs}


def _pairs() -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    inputs, dims = _text()
    return inputs | {"decoder_input_ids": ids(97, 2, 5)}, dims | {
        "decoder_input_ids": {0: "batch", 1: "target"}
    }


def _images() -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    return {"pixel_values": normal(2, 3, 32, 32)}, {"pixel_values": {0: "batch"}}


def _sound() -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    return {"input_values": normal(2, 8, 32)}, {"input_values": {0: "batch"}}


_INPUTS = {"text": _text, "pairs": _pairs, "images": _images, "sound": _sound}


def _logits(model: nn.Module) -> nn.Module:
    return OfText(model, "logits", use_cache=False)


MODELS = {
    "bert": Model(
        kind="BertModel", config="BertConfig", settings={**SMALL, "max_position_embeddings": 64}
    ),
    "roberta": Model(
        kind="RobertaModel",
        config="RobertaConfig",
        settings={**SMALL, "max_position_embeddings": 64, "pad_token_id": 1},
    ),
    "distilbert": Model(kind="DistilBertModel", config="DistilBertConfig", settings=_DISTIL),
    "gpt2": Model(kind="GPT2LMHeadModel", config="GPT2Config", settings=_GPT2, wrap=_logits),
    "opt": Model(kind="OPTForCausalLM", config="OPTConfig", settings=_OPT, wrap=_logits),
    "llama": Model(kind="LlamaForCausalLM", config="LlamaConfig", settings=LM, wrap=_logits),
    "qwen2": Model(kind="Qwen2ForCausalLM", config="Qwen2Config", settings=LM, wrap=_logits),
    "mistral": Model(
        kind="MistralForCausalLM",
        config="MistralConfig",
        settings={**LM, "sliding_window": 4},
        wrap=_logits,
    ),
    "bart": Model(
        kind="BartForConditionalGeneration",
        config="BartConfig",
        settings={**_SPEECH, "max_position_embeddings": 64},
        wrap=OfPairs,
        inputs="pairs",
    ),
    "t5": Model(
        kind="T5ForConditionalGeneration",
        config="T5Config",
        settings=_T5,
        wrap=OfPairs,
        inputs="pairs",
    ),
    "vit": Model(
        kind="ViTModel",
        config="ViTConfig",
        settings={**_VISION, "image_size": 32, "patch_size": 8},
        wrap=lambda model: OfImages(model, "last_hidden_state"),
        inputs="images",
    ),
    "whisper": Model(
        kind="WhisperModel",
        config="WhisperConfig",
        settings=_WHISPER,
        wrap=lambda model: OfSound(model.get_encoder(), "last_hidden_state"),
        inputs="sound",
    ),
}


def _shifted(mask: Tensor) -> Tensor:
    """Each place reads its left neighbour's mask."""
    return torch.cat([torch.ones_like(mask[:, :1]), mask[:, :-1]], 1)


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "ignored": torch.ones_like,
    "inverted": lambda mask: 1 - mask,
    "off by one": _shifted,
}


class WrongMask(nn.Module):
    """A model whose mask is changed on its way in: what is exported from it is the planted fault."""

    def __init__(self, model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=self.change(attention_mask))


class WrongMaskOfPairs(WrongMask):
    """The same for an encoder with its decoder."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Any:
        return self.model(
            input_ids=input_ids,
            attention_mask=self.change(attention_mask),
            decoder_input_ids=decoder_input_ids,
        )


@dataclass(slots=True, kw_only=True)
class Row:
    """One verification."""

    model: str
    attention: str
    fault: str = ""
    verdict: str = "crash"
    ratio: float = 0.0
    """The largest error outside of all notes, in units of the noise."""
    notes: list[str] = field(default_factory=list)
    """The domains that there are notes of."""
    masked: int = 0
    """Cases with a `masked` note."""
    rest: float = 0.0
    """The largest error of what no mask hides, in the cases with a `masked` note."""
    cases: int = 0
    seconds: float = 0.0
    way: str = ""
    """How it was exported, where torch can't by itself."""
    why: str = ""

    @property
    def wrong(self) -> bool:
        """A false alarm or a fault that was missed."""
        return self.verdict != ("diverged" if self.fault else "faithful")


def export(
    module: nn.Module, inputs: dict[str, Tensor], dims: dict[str, dict[int, str]], path: Path
) -> str:
    """As users call it; gives the way round where torch can't (T5's `reshape` after the fused kernel, in torch 2.13: its decomposition has other strides)."""
    with quiet():
        try:
            torch.onnx.export(module, (), path, kwargs=inputs, dynamic_shapes=dims, dynamo=True)
            return ""
        except torch.onnx.errors.OnnxExporterError:
            with sdpa_kernel(SDPBackend.MATH):
                torch.onnx.export(module, (), path, kwargs=inputs, dynamic_shapes=dims, dynamo=True)
            return "captured with the plain kernel: torch can't export the fused one"


def one(name: str, implementation: str, fault: str) -> Row:
    """Export one and verify it, in this process."""
    import onnxproof

    row = Row(model=name, attention=implementation, fault=fault)
    module, inputs, dims = MODELS[name].build(implementation)
    exported = module
    if fault:
        wrapper = WrongMaskOfPairs if "decoder_input_ids" in inputs else WrongMask
        exported = wrapper(module, FAULTS[fault]).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        row.way = export(exported, inputs, dims, path)
        start = time.perf_counter()
        proof = onnxproof.verify(
            module, path, inputs, dynamic_shapes=dims, budget_s=BUDGET_S, explain=False
        )
    row.seconds, row.verdict, row.cases = (
        round(time.perf_counter() - start, 1),
        proof.verdict.value,
        len({gap.case for gap in proof.gaps}),
    )
    row.ratio = max((gap.noise_ratio for gap in proof.gaps if gap.domain is None), default=0.0)
    masked = [gap for gap in proof.gaps if gap.domain is not None and gap.domain.value == "masked"]
    row.masked, row.rest = (
        len({gap.case for gap in masked}),
        max((gap.noise_ratio for gap in masked), default=0.0),
    )
    row.notes = sorted({note.domain.value for note in proof.notes})
    row.why = "" if proof.verdict.value == "faithful" else proof.sentence()
    return row


def several(name: str, implementation: str, faults: Sequence[str], limit: float) -> list[Row]:
    """The files of one model in a process of its own: a crash or a hang is a row, too."""
    command = [sys.executable, "-m", "bench.attention", "--child", name, implementation, *faults]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit * len(faults))
        text, failed = (
            done.stdout,
            Row(model=name, attention=implementation, why=(done.stderr or done.stdout)[-300:]),
        )
    except subprocess.TimeoutExpired as why:
        text, failed = (
            str(why.stdout or ""),
            Row(model=name, attention=implementation, verdict="timeout"),
        )
    rows = [Row(**json.loads(words[4:])) for words in text.splitlines() if words.startswith("ROW ")]
    return rows + [
        replace(failed, fault="" if fault == "none" else fault) for fault in faults[len(rows) :]
    ]


def line(row: Row) -> str:
    """One row of the listing."""
    said = "WRONG" if row.wrong else "ok"
    return (
        f"{row.model:11s} {row.attention:6s} {row.fault or 'healthy':11s} {row.verdict:9s} {row.ratio:10.3g} {row.masked:6d} {row.rest:6.2f} {row.cases:4d} "
        f"{row.seconds:6.1f}s {said:5s} {', '.join(row.notes):14s} {row.why[:160] if row.wrong else row.way}"
    )


def summary(rows: Sequence[Row]) -> str:
    """The totals."""
    sound, planted = [row for row in rows if not row.fault], [row for row in rows if row.fault]
    largest, rest = (
        max((row.ratio for row in sound), default=0.0),
        max((row.rest for row in sound), default=0.0),
    )
    return (
        f"healthy: {sum(row.wrong for row in sound)} false alarms of {len(sound)}; largest {largest:.2f} times the noise, beside what a mask hides {rest:.2f}\n"
        f"planted: {sum(not row.wrong for row in planted)} of {len(planted)} are diverged"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print each as it ends, and say by the exit code whether anything was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--child", nargs="+")
    options = parser.parse_args(arguments)
    if options.child:
        torch.set_num_threads(1)
        for fault in options.child[2:]:
            print(
                "ROW "
                + json.dumps(asdict(one(*options.child[:2], "" if fault == "none" else fault))),
                flush=True,
            )
        return 0
    print(
        f"{'model':11s} {'attn':6s} {'file':11s} {'verdict':9s} {'x noise':>10s} {'masked':>6s} {'rest':>6s} {'n':>4s} {'s':>7s}"
    )
    rows = []
    for name in [name for name in MODELS if not options.only or name in options.only.split(",")]:
        hides = MODELS[name].inputs in ("text", "pairs") and not options.healthy
        for implementation in IMPLEMENTATIONS:
            found = several(
                name, implementation, ["none", *(FAULTS if hides else ())], options.limit
            )
            print("\n".join(map(line, found)), flush=True)
            rows += found
    print(summary(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
