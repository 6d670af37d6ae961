"""A preprocessing gets what it expects: by its annotation, or by trying; what it raises is told with its own line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import onnxproof
from onnxproof.cli import main
from onnxproof.errors import UsageError
from onnxproof.preprocessing.calling import Preprocessing

PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
MODEL = """
import numpy as np
import torch
from torch import nn
from onnxproof import Subject


def own(image: np.ndarray):
    return torch.as_tensor(image).permute(2, 0, 1)[None] / 255


class Net(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def build():
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    return Subject(module=Net(), example_inputs=(pixels,), preprocess=own)
"""
DEPLOYED = {
    "image": "from PIL import Image\ndef pre(image: Image.Image):\n    return {convert}(np.asarray(image))",
    "array": "def pre(image: np.ndarray):\n    return {convert}(image)",
    "untold": "def pre(picture):\n    return {convert}(np.asarray(picture.convert('RGB')))",
}
CONVERT = "(lambda a: a.transpose(2, 0, 1)[None].astype(np.float32) / 255)"
SWAPPED = "(lambda a: a[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255)"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    Image.fromarray(PIXELS).save(path)
    return path


def by_image(image: Image.Image) -> Any:
    return np.asarray(image.convert("RGB"))


def by_array(image: np.ndarray[Any, Any]) -> Any:
    return image.astype(np.uint8)


def by_tensor(image: torch.Tensor) -> Any:
    return image.clone()


def by_path(image: str) -> Any:
    return np.asarray(Image.open(image))


def by_pathlib(image: Path) -> Any:
    return np.asarray(Image.open(image.open("rb")))


def by_bytes(image: bytes) -> Any:
    import io

    return np.asarray(Image.open(io.BytesIO(image)))


def untold_image(image):  # type: ignore[no-untyped-def]
    return np.asarray(image.convert("RGB"))


def untold_array(image):  # type: ignore[no-untyped-def]
    return image[..., ::1] + 0


def untold_path(image):  # type: ignore[no-untyped-def]
    with open(image, "rb") as stream:
        return np.asarray(Image.open(stream))


FUNCTIONS = [
    by_image,
    by_array,
    by_tensor,
    by_path,
    by_pathlib,
    by_bytes,
    untold_image,
    untold_array,
    untold_path,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_file_is_handed_over_as_the_function_expects_it(
    function: Callable[..., Any], picture: Path
) -> None:
    call = Preprocessing(function)
    for _ in range(2):  # the form that was taken is kept
        np.testing.assert_array_equal(np.asarray(call((str(picture),), "`cat.png`")), PIXELS)


@pytest.mark.parametrize("function", [by_image, by_array, by_tensor, untold_image])
def test_an_array_is_handed_over_as_the_function_expects_it(
    function: Callable[..., Any],
) -> None:
    np.testing.assert_array_equal(np.asarray(Preprocessing(function)((PIXELS,), "a")), PIXELS)


def test_what_it_raises_is_told_with_its_line_and_with_what_was_tried(picture: Path) -> None:
    def fails(image):  # type: ignore[no-untyped-def]
        return np.asarray(image.resise((2, 2)))

    with pytest.raises(UsageError) as raised:
        Preprocessing(fails)((str(picture),), "`cat.png`")
    message = str(raised.value)
    line = fails.__code__.co_firstlineno + 1
    assert "`fails` raised AttributeError on `cat.png`: 'str' object has no attribute" in message
    assert f"test_calling.py:{line}" in message
    assert "with a Pillow image: AttributeError" in message


def test_a_preprocessing_that_returns_nothing_is_told(picture: Path) -> None:
    def forgets(image: str) -> None:
        Image.open(image)

    with pytest.raises(UsageError, match=r"`forgets` returned None on `cat\.png`"):
        Preprocessing(forgets)((str(picture),), "`cat.png`")


@pytest.mark.parametrize("kind", DEPLOYED)
def test_a_pipeline_is_compared_on_a_folder_of_images(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    picture: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    picture.rename(tmp_path / "photos" / "cat.png")
    (tmp_path / "model.py").write_text(MODEL)
    for name, convert in (("right", CONVERT), ("wrong", SWAPPED)):
        text = "import numpy as np\n" + DEPLOYED[kind].format(convert=convert)
        (tmp_path / f"{name}.py").write_text(text)
    common = ["--budget", "5", "--data", "photos"]
    command = ["export", "model.py:build", "-o", "m.onnx", "--pipeline", "right.py:pre"]
    assert main([*command, *common, "--quiet"]) == 0, capsys.readouterr()
    main(["verify", "model.py:build", "m.onnx", "--pipeline", "wrong.py:pre", *common])
    said = capsys.readouterr().out
    assert "on `cat.png` the deployment's preprocessing makes another tensor" in said
    assert "channels" in said


def test_a_pipeline_that_raises_is_told_at_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "deploy.py").write_text("def pre(image):\n    size = image.sise\n    return size\n")
    module = torch.nn.Identity()
    onnxproof.export(module, (torch.ones(1, 3, 4, 5),), "m.onnx", budget_s=2, explain=False)
    code = main(["verify", "model.py:build", "m.onnx", "--pipeline", "deploy.py:pre"])
    said = capsys.readouterr().err
    assert code == 2 and "error[preprocess-raised]: `pre` raised AttributeError" in said
    assert "deploy.py:2" in said
