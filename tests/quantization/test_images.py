"""Calibration from a folder of image files: real PNG and JPEG files, read as the model takes them, or a clear word about what is missing."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.errors import InputError, OnnxproofError, UsageError
from onnxproof.exporter import export
from onnxproof.options import Policy
from onnxproof.quantization.qdq import find_pairs
from onnxproof.reference import subject
from onnxproof.results import Verdict

FACTORY = '''
import torch
from torch import nn

import onnxproof


def preprocess(image):
    """Pixels as a camera gives them: 0 to 255, channels last."""
    return (image.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22


def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    return onnxproof.Subject(module=net, example_inputs=(torch.randint(0, 256, (2, 12, 12, 3), dtype=torch.uint8),), preprocess=preprocess)
'''


@pytest.fixture(scope="module")
def digits(tmp_path_factory: Any) -> Path:
    """Scanned digits in a folder for each class, as people keep them: most PNG, some JPEG."""
    place = tmp_path_factory.mktemp("digits")
    scans, labels = load_digits(return_X_y=True)
    for index, (scan, label) in enumerate(zip(scans[:192].reshape(-1, 8, 8), labels, strict=False)):
        folder = place / str(label)
        folder.mkdir(exist_ok=True)
        Image.fromarray((scan * 15.9).astype(np.uint8)).save(
            folder / f"{index:03}.{'jpg' if index % 16 == 0 else 'png'}"
        )
    return place


@pytest.fixture(scope="module")
def reader(tmp_path_factory: Any) -> tuple[nn.Module, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    ).eval(), (torch.rand(2, 1, 8, 8),)


def quantized(source: Any, output: Path, calibration: Path, **options: Any) -> onnxproof.Quantized:
    return onnxproof.quantize(
        source,
        output,
        calibration=str(calibration),
        recipes=(),
        budget=onnxproof.Budget(seconds=20),
        proof_s=1.0,
        policy=Policy(domains=()),
        **options,
    )


def first_range(path: Path) -> tuple[float, float]:
    low, high = find_pairs(onnx.load(path))[0].limits
    return float(low), float(high)


def test_a_folder_of_images_calibrates_a_model_whose_example_tells_the_scale(
    reader: Any, digits: Path, tmp_path: Path
) -> None:
    module, example = reader
    result = quantized(
        module,
        tmp_path / "int8.onnx",
        digits,
        example_inputs=example,
        dynamic_shapes=({0: "batch"},),
    )
    assert result.samples == 192 and result.verdict is Verdict.FAITHFUL
    assert any(
        f.code == "pixels-guessed" and "pixels are divided by 255" in f.what
        for f in result.findings
    )
    assert 0.8 < first_range(result.path)[1] <= 1.01  # the digits' own ink, not 255 of it
    larger = quantized(
        module,
        tmp_path / "raw.onnx",
        digits,
        example_inputs=(example[0] * 255,),
        dynamic_shapes=({0: "batch"},),
    )
    assert 200 < first_range(larger.path)[1] <= 256


def test_a_preprocessing_inside_of_the_model_gets_the_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(FACTORY)
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for index in range(80):
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(
            tmp_path / "photos" / f"{index}.png"
        )
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "quantize",
                "model.py:build",
                "-o",
                "int8.onnx",
                "--calibration",
                "photos",
                "--recipe",
                "none",
                "--time",
                "10",
            ]
        )
        == 0
    )
    assert (
        onnx.load("int8.onnx").graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    )
    low, high = first_range(tmp_path / "int8.onnx")
    assert (low, high) == (
        pytest.approx(-0.45 / 0.22, rel=0.03),
        pytest.approx(0.55 / 0.22, rel=0.03),
    )  # what the preprocessing makes of 0 and 255


def test_a_function_of_the_users_makes_inputs_of_images(
    reader: Any, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, example = reader
    export.write(
        subject.load(module, example, dynamic_shapes=({0: "batch"},)), tmp_path / "float.onnx"
    )
    (tmp_path / "deploy.py").write_text(
        "import numpy as np\n\n\ndef preprocess(image):\n    return (np.asarray(image.resize((8, 8)), np.float32)[None] / 255 - 0.5) / 0.5\n"
    )
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "quantize",
                "float.onnx",
                "-o",
                "int8.onnx",
                "--calibration",
                str(digits),
                "--preprocess",
                "deploy.py:preprocess",
                "--recipe",
                "none",
                "--time",
                "10",
            ]
        )
        == 0
    )
    low, high = first_range(tmp_path / "int8.onnx")
    assert low == pytest.approx(-1, abs=0.02) and high == pytest.approx(1, abs=0.03)


def fails(image: Any) -> Any:
    raise ValueError("too dark")


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, InputError, "a file of pixels does not say how they are normalised"),
        ({"preprocess": fails}, UsageError, "`fails` raised ValueError on `.*`: too dark"),
        (
            {"preprocess": lambda image: np.zeros((1, 9, 9), np.float32)},
            InputError,
            r"has shape \[.*9, 9\] for the input",
        ),
        ({"preprocess": "nowhere.py:f"}, OnnxproofError, "there is no file `nowhere.py`"),
    ],
)
def test_what_is_missing_is_said(
    options: Any, kind: type[OnnxproofError], words: str, reader: Any, digits: Path, tmp_path: Path
) -> None:
    module, example = reader
    export.write(
        subject.load(module, example, dynamic_shapes=({0: "batch"},)), tmp_path / "float.onnx"
    )
    with pytest.raises(kind, match=words):
        quantized(tmp_path / "float.onnx", tmp_path / "int8.onnx", digits, **options)
    assert not (tmp_path / "int8.onnx").exists()


def test_images_that_do_not_fit_are_told_and_never_resized(reader: Any, tmp_path: Path) -> None:
    module, example = reader
    Image.new("L", (9, 8)).save(tmp_path / "wide.png")
    with pytest.raises(
        InputError, match=r"`wide.png` is \[1, 8, 9\], and `input` takes \[1, 8, 8\]"
    ) as caught:
        quantized(
            module,
            tmp_path / "int8.onnx",
            tmp_path,
            example_inputs=example,
            dynamic_shapes=({0: "batch"},),
        )
    assert "resizing is part of the preprocessing" in str(caught.value)
    (tmp_path / "wide.png").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"`wide\.png` can't be read as an image"):
        quantized(
            module,
            tmp_path / "int8.onnx",
            tmp_path,
            example_inputs=example,
            dynamic_shapes=({0: "batch"},),
        )
    with pytest.raises(
        InputError, match=r"reaches from -.* its pixels were normalised, and nobody says how"
    ):
        quantized(
            module,
            tmp_path / "int8.onnx",
            tmp_path,
            example_inputs=(torch.randn(2, 1, 8, 8),),
            dynamic_shapes=({0: "batch"},),
        )
    with pytest.raises(UsageError, match="images don't fit the input"):
        quantized(
            nn.Linear(4, 2),
            tmp_path / "int8.onnx",
            tmp_path,
            example_inputs=(torch.rand(2, 4),),
            dynamic_shapes=({0: "batch"},),
        )


def test_without_pillow_the_command_that_installs_it_is_told(
    reader: Any, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, example = reader
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InputError, match="reading them needs Pillow") as caught:
        quantized(module, tmp_path / "int8.onnx", digits, example_inputs=example)
    assert "pip install 'onnxproof[images]'" in str(caught.value)


def test_a_folder_of_arrays_calibrates_too_and_a_preprocessing_would_do_nothing_there(
    reader: Any, tmp_path: Path
) -> None:
    module, example = reader
    rng = np.random.default_rng(0)
    (tmp_path / "arrays").mkdir()
    for index in range(40):
        np.save(tmp_path / "arrays" / f"{index}.npy", rng.random((1, 8, 8), dtype=np.float32))
        np.savez(
            tmp_path / "arrays" / f"{index}.npz", input=rng.random((1, 1, 8, 8), dtype=np.float32)
        )
    result = quantized(
        module,
        tmp_path / "int8.onnx",
        tmp_path / "arrays",
        example_inputs=example,
        dynamic_shapes=({0: "batch"},),
    )
    assert result.samples == 80
    with pytest.raises(UsageError, match="`preprocess` does nothing"):
        quantized(
            module,
            tmp_path / "b.onnx",
            tmp_path / "arrays",
            example_inputs=example,
            preprocess=fails,
        )
