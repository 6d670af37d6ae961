"""Two preprocessings on the same raw data: each usual mistake is planted and named; the same arithmetic in another order is no difference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import onnxproof
from onnxproof.cli import main
from onnxproof.preprocessing.comparison import explain
from onnxproof.preprocessing.mistake import TensorPair, nearly_equal
from onnxproof.results import Verdict

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
MEAN, SPREAD = np.array((0.485, 0.456, 0.406)), np.array((0.229, 0.224, 0.225))
SIZE = (32, 32)


def photo(height: int = 90, width: int = 120) -> Array:
    """Waves and grain: what aliases when it is made smaller carelessly."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([127 + 100 * np.sin(y / 9 + k) * np.cos(x / 7 - k) for k in range(3)], -1)
    return np.clip(waves + np.random.default_rng(1).normal(0, 12, waves.shape), 0, 255).astype(
        np.uint8
    )


IMAGE = photo()


def describe(**pair: Any) -> str:
    return explain(TensorPair(**pair)).description


def resized(
    size: tuple[int, int] = SIZE, mode: str = "bilinear", image: Array = IMAGE, **options: Any
) -> Array:
    return (
        F.interpolate(
            torch.as_tensor(image).permute(2, 0, 1)[None].float(), size, mode=mode, **options
        )[0]
        .permute(1, 2, 0)
        .numpy()
    )


def smooth(size: tuple[int, int] = SIZE, image: Array = IMAGE) -> Array:
    return resized(size, image=image, antialias=True, align_corners=False)


def normed(pixels: Array) -> Array:
    return ((pixels / 255 - MEAN) / SPREAD).astype(np.float32).transpose(2, 0, 1)[None]


def own(image: Array) -> Array:
    return normed(smooth(image=image))


def by_pillow(mode: str) -> Array:
    from PIL import Image

    return np.asarray(Image.fromarray(IMAGE).resize(SIZE, getattr(Image.Resampling, mode))).astype(
        np.float32
    )


OWN = "the model's own bilinear with antialiasing"
IMAGES: dict[str, tuple[Callable[[], Array], str]] = {
    "nearest": (lambda: normed(resized(mode="nearest")), f"the deployment resizes nearest, {OWN}"),
    "nearest-exact": (
        lambda: normed(resized(mode="nearest-exact")),
        f"the deployment resizes nearest to the middle of each pixel, {OWN}",
    ),
    "no-antialiasing": (
        lambda: normed(resized(align_corners=False)),
        f"the deployment resizes bilinear, {OWN}",
    ),
    "align-corners": (
        lambda: normed(resized(align_corners=True)),
        f"the deployment resizes bilinear with aligned corners, {OWN}",
    ),
    "bicubic": (
        lambda: normed(resized(mode="bicubic", align_corners=False)),
        f"the deployment resizes bicubic, {OWN}",
    ),
    "bicubic-smooth": (
        lambda: normed(resized(mode="bicubic", align_corners=False, antialias=True)),
        f"the deployment resizes bicubic with antialiasing, {OWN}",
    ),
    "pillow": (
        lambda: normed(by_pillow("BILINEAR")),
        "the deployment rounds to whole levels after it resizes, the model's own does not round",
    ),
    "pillow-bicubic": (
        lambda: normed(by_pillow("BICUBIC")),
        f"the deployment resizes bicubic with antialiasing, {OWN}",
    ),
    "pillow-lanczos": (
        lambda: normed(by_pillow("LANCZOS")),
        f"the deployment resizes Lanczos, {OWN}",
    ),
    "rounded": (
        lambda: normed(np.rint(smooth())),
        "the deployment rounds to whole steps (as of uint8)",
    ),
    "cut-off": (
        lambda: normed(np.floor(smooth())),
        "the deployment cuts off to whole steps (as of uint8)",
    ),
    "short-side-centre": (
        lambda: normed(smooth((36, 48))[2:34, 8:40]),
        "brings the shorter side to 36 and cuts out the centre, the model's own squashes the whole image",
    ),
    "short-side-top-left": (
        lambda: normed(smooth((36, 48))[:32, :32]),
        "brings the shorter side to 36 and cuts out the top left",
    ),
    "centre": (
        lambda: normed(IMAGE[29:61, 44:76].astype(np.float32)),
        "the deployment cuts out the centre without resizing",
    ),
    "letter-box": (
        lambda: normed(np.pad(smooth((24, 32)), ((4, 4), (0, 0), (0, 0)), constant_values=114)),
        "keeps the proportions and puts 114 around",
    ),
    "bgr": (
        lambda: own(IMAGE[..., ::-1].copy()),
        "the channels of the raw input are reversed (RGB and BGR)",
    ),
    "bgr-at-the-end": (lambda: own(IMAGE)[:, ::-1], "the channels are reversed (RGB and BGR)"),
    "bgr-and-nearest": (
        lambda: normed(resized(mode="nearest")[..., ::-1]),
        f"the deployment resizes nearest, {OWN}; the channels are reversed (RGB and BGR)",
    ),
    "nearest-and-unscaled": (
        lambda: resized(mode="nearest").transpose(2, 0, 1)[None],
        "the deployment has no scaling, the model's own the mean and standard deviation of ImageNet",
    ),
    "half": (
        lambda: (smooth() / 127.5 - 1).transpose(2, 0, 1)[None],
        "(a mean and a standard deviation of 0.5 on values of 0 to 1 in the place of the mean and standard deviation of ImageNet on values of 0 to 1)",
    ),
    "sideways": (
        lambda: own(IMAGE.transpose(1, 0, 2).copy()),
        "the axes are exchanged: (0, 1, 3, 2)",
    ),
    "mirrored": (lambda: own(IMAGE)[..., ::-1], "axis 3 runs the other way"),
    "channels-last": (lambda: own(IMAGE).transpose(0, 2, 3, 1), "the layout is (0, 2, 3, 1)"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_mistake_with_an_image_is_named(name: str) -> None:
    make, words = IMAGES[name]
    assert words in describe(own=own(IMAGE), deployed=make(), raw=(IMAGE,), run_own=own)


def test_what_no_mistake_explains_is_not_explained() -> None:
    noisy = own(IMAGE) + RNG.normal(0, 0.1, (1, 3, 32, 32)).astype(np.float32)
    assert describe(own=own(IMAGE), deployed=noisy, raw=(IMAGE,), run_own=own) == ""


STEREO = (
    (np.cumsum(RNG.normal(0, 1, (2, 400)), 1) / 60 * 32767).clip(-32767, 32767).astype(np.int16)
)
MONO = (STEREO.mean(0) / 32768).astype(np.float32)[None]
SPECTRUM = np.exp(RNG.normal(0, 1, (1, 20, 30)).cumsum(2) / 3)
LOGS = np.log(SPECTRUM + 1e-6).astype(np.float32)
SOUNDS: dict[str, tuple[Array, Array, str]] = {
    "first-channel": (
        MONO,
        (STEREO[0] / 32768)[None],
        "the deployment takes the first channel, the model's own the mean of both channels",
    ),
    "mean-of-channels": (
        (STEREO[0] / 32768)[None],
        MONO,
        "the deployment takes the mean of both channels, the model's own the first channel",
    ),
    "16-bits": (MONO, MONO * 32768, "(no scaling in the place of a division by 32768)"),
    "peak": (MONO, MONO / np.abs(MONO).max(), "(normalised by the peak)"),
    "rms": (MONO, MONO / np.sqrt((MONO**2).mean()), "(normalised by the root of the mean square)"),
    "standardised": (
        MONO,
        (MONO - MONO.mean()) / MONO.std(),
        "(normalised to a mean of 0 and a spread of 1)",
    ),
    "pre-emphasis": (
        MONO,
        np.concatenate([MONO[:, :1], MONO[:, 1:] - 0.97 * MONO[:, :-1]], 1),
        "the deployment has a pre-emphasis of 0.97",
    ),
    "no-pre-emphasis": (
        np.concatenate([MONO[:, :1], MONO[:, 1:] - 0.97 * MONO[:, :-1]], 1),
        MONO,
        "the model's own has a pre-emphasis of 0.97",
    ),
    "later": (MONO, np.pad(MONO, ((0, 0), (5, 0)))[:, :400], "everything comes 5 steps later"),
    "earlier": (MONO, np.pad(MONO[:, 7:], ((0, 0), (0, 7))), "everything comes 7 steps earlier"),
    "centred": (
        LOGS,
        np.pad(LOGS, ((0, 0), (0, 0), (2, 2)), mode="edge"),
        "everything comes 2 steps later",
    ),
    "shorter": (MONO, MONO[:, :390], "390 instead of 400 steps"),
    "rate": (
        np.sin(np.linspace(0, 30, 441))[None],
        np.sin(np.linspace(0, 30, 480))[None],
        "as for 48,000 Hz in the place of 44,100 Hz",
    ),
    "base-10": (
        LOGS,
        np.log10(SPECTRUM + 1e-6),
        "(a logarithm to the base 10 in the place of no scaling)",
    ),
    "decibels": (
        LOGS,
        10 * np.log10(SPECTRUM + 1e-6),
        "(decibels of power in the place of no scaling)",
    ),
    "no-logarithm": (LOGS, SPECTRUM + 1e-6, "the logarithm is missing"),
    "epsilon": (LOGS, np.log(SPECTRUM + 1e-2), "+0.01 inside of the logarithm"),
    "floor": (LOGS, np.log(np.maximum(SPECTRUM, 0.5)), "a floor of -0.6931"),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_a_mistake_with_a_sound_is_named(name: str) -> None:
    want, got, words = SOUNDS[name]
    assert words in describe(
        own=want.astype(np.float32), deployed=got.astype(np.float32), raw=(STEREO,)
    )


IDS = np.array([[1, 7, 8, 9, 2, 0, 0, 0], [1, 5, 6, 2, 0, 0, 0, 0]])
LONG = RNG.permutation(90)[:30]
TEXTS: dict[str, tuple[Array, Array, str]] = {
    "offset": (IDS, IDS + 1, "every id is 1 higher"),
    "no-beginning": (
        IDS,
        np.array([[7, 8, 9, 2, 0, 0, 0, 0], [5, 6, 2, 0, 0, 0, 0, 0]]),
        "the deployment lacks the first id (1)",
    ),
    "no-end": (
        IDS,
        np.array([[1, 7, 8, 9, 0, 0, 0, 0], [1, 5, 6, 0, 0, 0, 0, 0]]),
        "the deployment lacks the last id (2)",
    ),
    "neither": (
        IDS,
        np.array([[7, 8, 9], [5, 6, 0]]),
        "the deployment lacks the first and the last id (1, 2)",
    ),
    "end-added": (
        np.array([[1, 7, 8, 9, 0, 0, 0, 0], [1, 5, 6, 0, 0, 0, 0, 0]]),
        IDS,
        "the deployment adds the last id (2)",
    ),
    "padded-left": (
        IDS,
        np.array([[0, 0, 0, 1, 7, 8, 9, 2], [0, 0, 0, 0, 1, 5, 6, 2]]),
        "padding at the beginning in the place of the end",
    ),
    "padded-with-3": (IDS, np.where(IDS == 0, 3, IDS), "padding with 3 in the place of 0"),
    "padded-less": (IDS, IDS[:, :6], "padded to 6 in the place of 8"),
    "other-words": (
        IDS,
        np.where(IDS == 8, 18, IDS),
        "1 of 8 ids stand for others, always the same (8 becomes 18)",
    ),
    "cut-off": (LONG[None], LONG[None, :16], "cut off after 16 ids"),
    "cut-at-the-beginning": (
        LONG[None, :20],
        LONG[None, -20:],
        "the beginning of a long text is cut off, and not its end",
    ),
    "cut-at-the-end": (
        LONG[None, -20:],
        LONG[None, :20],
        "the end of a long text is cut off, and not its beginning",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_mistake_with_a_text_is_named(name: str) -> None:
    want, got, words = TEXTS[name]
    assert words in describe(own=want, deployed=got)


def letters(text: str) -> Array:
    return np.array([[ord(letter) for letter in text]])


@pytest.mark.parametrize(
    ("raw", "change", "words"),
    [
        ("Hello", str.lower, "is made lower case"),
        ("Café", lambda text: text.replace("é", "e"), "loses its accents"),
        (" hi ", str.strip, "is stripped of blanks at its ends"),
    ],
)
def test_letters_are_compared_by_writing_the_text_otherwise(
    raw: str, change: Callable[[str], str], words: str
) -> None:
    def changed(text: str) -> Array:
        return letters(change(text))

    assert f"the text {words} by the deployment" in describe(
        own=letters(raw),
        deployed=changed(raw),
        raw=(raw,),
        run_own=letters,
        run_deployed=changed,
    )
    assert f"the text {words} by the model's own" in describe(
        own=changed(raw),
        deployed=letters(raw),
        raw=(raw,),
        run_own=changed,
        run_deployed=letters,
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_same_arithmetic_in_another_order_is_no_difference(seed: int) -> None:
    raw = np.random.default_rng(seed).integers(0, 256, (24, 30, 3)).astype(np.float32)
    one = (raw / 255 - MEAN.astype(np.float32)) / SPREAD.astype(np.float32)
    two = raw * (1 / (255 * SPREAD)).astype(np.float32) - (MEAN / SPREAD).astype(np.float32)
    assert nearly_equal(one, two) and nearly_equal(one, one.astype(np.float64))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_two_preprocessings_make_can_be_asked_about(seed: int) -> None:
    """Any shape and type, empty and constant ones too: an explanation is found or it is not, and none for noise."""
    rng = np.random.default_rng(seed)
    kinds = [np.float32, np.float64, np.int64, np.uint8, np.bool_]

    def array() -> Array:
        shape = rng.integers(0 if rng.random() < 0.1 else 1, 12, rng.integers(0, 5))
        return (rng.normal(0, 10, shape).clip(0 if rng.random() < 0.3 else -30, 30)).astype(
            kinds[rng.integers(len(kinds))]
        )

    for _ in range(20):
        want = array()
        deployed = want[..., ::-1] if want.ndim and rng.random() < 0.3 else array()
        describe(own=want, deployed=deployed, raw=(array(),), run_own=lambda raw: array())
    noise = rng.normal(0, 1, (2, 3, 16, 16)).astype(np.float32)
    for other in (
        noise + rng.normal(0, 0.05, noise.shape).astype(np.float32),
        rng.permutation(noise.reshape(-1)).reshape(noise.shape),
    ):
        image = rng.integers(0, 256, (40, 30, 3), dtype=np.uint8)
        assert describe(own=noise, deployed=other, raw=(image,)) == ""


FACTORY = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import onnxproof


def preprocess(image):
    image = torch.as_tensor(np.load(image) if isinstance(image, str) else image)
    x = F.interpolate(image.permute(2, 0, 1)[None].float(), (16, 16), mode="bilinear", antialias=True)
    return (x / 255 - 0.45) / 0.22


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()


def build():
    return onnxproof.Subject(module=net(), example_inputs=(np.load("photo.npy"),), preprocess=preprocess)
"""
DEPLOY = """
import numpy as np
import torch
from torch.nn import functional as F


def right(image):
    x = torch.as_tensor(np.load(image) if isinstance(image, str) else image).double().permute(2, 0, 1)[None]
    return (F.interpolate(x, (16, 16), mode="bilinear", antialias=True) * (1 / 255 / 0.22) - 0.45 / 0.22).float().numpy()


def nearest(image):
    x = torch.as_tensor(np.load(image) if isinstance(image, str) else image).permute(2, 0, 1)[None].float()
    return (F.interpolate(x, (16, 16), mode="nearest") / 255 - 0.45) / 0.22


def odd(image):
    return np.sin(3 * right(image))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("model.py", FACTORY), ("deploy.py", DEPLOY)):
        (tmp_path / name).write_text(text)
    np.save(tmp_path / "photo.npy", photo(40, 60))
    (tmp_path / "photos").mkdir()
    np.save(tmp_path / "photos" / "other.npy", photo(50, 44))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    from torch.onnx import export

    namespace: dict[str, Any] = {}
    exec(compile(FACTORY, "model.py", "exec"), namespace)  # noqa: S102 - the text above
    export(
        namespace["net"](),
        (torch.zeros(1, 3, 16, 16),),
        "m.onnx",
        dynamo=True,
        verbose=False,
        external_data=False,
    )
    return tmp_path


def test_a_file_that_exists_is_verified_with_the_pipeline_of_the_deployment(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "verify",
        "model.py:build",
        "m.onnx",
        "--data",
        "photos",
        "--budget",
        "1",
        "--json",
        "p.json",
    ]
    assert main([*words, "--pipeline", "deploy.py:right"]) == 0
    assert "2 raw inputs, the same tensors" in capfd.readouterr().out
    assert main([*words, "--pipeline", "deploy.py:nearest"]) == 1
    stored = json.loads((place / "p.json").read_text())
    assert stored["verdict"] == "diverged"
    cause = stored["causes"][0]
    assert (cause["code"], cause["proven"]) == ("preprocessing", True)
    assert (
        "the deployment resizes nearest, the model's own bilinear with antialiasing"
        in cause["evidence"]
    )
    assert "the answers are" in cause["evidence"]


def test_a_difference_that_nothing_explains_still_decides(place: Path) -> None:
    proof = onnxproof.verify("model.py:build", "m.onnx", budget_s=1, pipeline="deploy.py:odd")
    assert proof.verdict is Verdict.DIVERGED
    assert (proof.causes[0].code, proof.causes[0].proven) == ("preprocessing", False)
    assert "no usual mistake explains it" in proof.causes[0].evidence


def test_a_subject_without_preprocessing_has_nothing_to_be_compared_with(place: Path) -> None:
    with pytest.raises(onnxproof.errors.UsageError, match="does not say how it is preprocessed"):
        onnxproof.verify(
            "model.py:net", "m.onnx", (torch.zeros(1, 3, 16, 16),), pipeline="deploy.py:right"
        )


@pytest.mark.parametrize(
    ("want", "got", "sure"),
    [
        (SOUNDS["rate"][0], SOUNDS["rate"][1], False),
        (IDS, np.where(IDS == 8, 18, IDS), False),
        (IDS, IDS + 1, True),
        (MONO, MONO * 2, True),
    ],
)
def test_what_was_only_seen_is_likely_and_what_was_done_is_proven(
    want: Array, got: Array, sure: bool
) -> None:
    explanation = explain(TensorPair(own=want, deployed=got))
    assert explanation.description
    assert explanation.proven is sure
    assert explanation.residual < 1e-5
