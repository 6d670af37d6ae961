"""The cause `preprocessing`: files whose input is prepared otherwise than the module's, on several architectures; and faults that only look so."""

import contextlib
import functools
import io
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
import torch
from support.planted_faults import told
from support.planted_models import seeded
from support.preparing_models import (
    IMAGENET,
    Conv,
    Flat,
    Patches,
    Prepare,
    Sound,
    Words,
    bare,
    bgr,
    by_255,
    channels_last,
    crop,
    normed,
    pixels,
    prepared,
    times_255,
)
from torch import Tensor, nn

import onnxproof
from onnxproof import api
from onnxproof.diagnosis import reverify
from onnxproof.errors import InputError
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

BUDGET_S = 60.0
_FOLDER = tempfile.TemporaryDirectory(prefix="onnxproof-tests-")
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
UNIT, BYTES, SMALL = (
    pixels(2, 3, 16, 16, top=1.0),
    pixels(2, 3, 16, 16),
    pixels(2, 3, 8, 8, top=1.0),
)


def written(module: nn.Module, example: Tensor, name: str) -> Path:
    path = Path(_FOLDER.name) / f"{name}.onnx"
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            path,
            dynamo=True,
            dynamic_shapes=({0: "batch"},),
            opset_version=20,
            external_data=False,
            verbose=False,
        )
    return path


def verified(module: nn.Module, path: Path, example: Tensor) -> Proof:
    with mock.patch.object(reverify, "MOST_S", BUDGET_S):
        return api.verify(
            module, path, (example,), dynamic_shapes=({0: "batch"},), budget_s=BUDGET_S
        )


def both(own: Prepare, other: Prepare) -> Prepare:
    return lambda x: own(other(x))


FAULTS: dict[str, tuple[type[nn.Module], Prepare, Prepare, Tensor, str]] = {
    "conv-255-missing": (
        Conv,
        by_255,
        bare,
        BYTES,
        "the module has a division by 255, the file no scaling",
    ),
    "patches-255-twice": (
        Patches,
        bare,
        by_255,
        UNIT,
        "the module has no scaling, the file a division by 255",
    ),
    "flat-255-for-1": (Flat, times_255, bare, SMALL, "times 255"),
    "conv-bgr": (Conv, bare, bgr, UNIT, "channels in the order [2, 1, 0]"),
    "patches-bgr-and-normed": (
        Patches,
        normed(*IMAGENET),
        both(normed(*IMAGENET), bgr),
        UNIT,
        "channels in the order [2, 1, 0]",
    ),
    "conv-bgr-and-255": (
        Conv,
        by_255,
        bgr,
        BYTES,
        "channels in the order [2, 1, 0] (RGB and BGR) and times 0.003922",
    ),
    "conv-imagenet-missing": (
        Conv,
        normed(*IMAGENET),
        bare,
        UNIT,
        "the module has the mean and standard deviation of ImageNet on values of 0 to 1, the file no scaling",
    ),
    "patches-imagenet-twice": (
        Patches,
        bare,
        normed(*IMAGENET),
        UNIT,
        "the file the mean and standard deviation of ImageNet",
    ),
    "conv-half-for-imagenet": (
        Conv,
        normed(*IMAGENET),
        normed(*HALF),
        UNIT,
        "the file a mean and a standard deviation of 0.5",
    ),
    "flat-numbers-of-its-own": (
        Flat,
        normed((0.1, 0.2, 0.3), (0.3, 0.4, 0.6)),
        bare,
        SMALL,
        "times [3.333, 2.5, 1.667] and plus [-0.3333, -0.5, -0.5]",
    ),
    "conv-crop-top-left": (
        Conv,
        crop(2, 2, 12),
        crop(0, 0, 12),
        UNIT,
        "from the centre the answers are right",
    ),
    "patches-crop-centre": (
        Patches,
        crop(0, 0, 8),
        crop(4, 4, 8),
        UNIT,
        "from the top left the answers are right",
    ),
    "sound-16-bits": (
        Sound,
        lambda x: x / 32768,
        bare,
        pixels(2, 64, top=3000.0) - 1500,
        "the module has a division by 32768",
    ),
    "words-from-one": (
        Words,
        lambda x: x + 1,
        bare,
        torch.arange(2, 16).reshape(2, 7),
        "plus 1 (ids that are counted from another number)",
    ),
}


@functools.cache
def examined(name: str) -> Proof:
    kind, own, filed, example, _ = FAULTS[name]
    return verified(prepared(kind, own), written(prepared(kind, filed), example, name), example)


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_first_proven_and_told(name: str) -> None:
    proof = examined(name)
    assert proof.verdict is Verdict.DIVERGED
    cause = proof.causes[0]
    assert (cause.code, cause.proven) == ("preprocessing", True), told(proof)
    assert FAULTS[name][4] in cause.evidence
    assert cause.fix is not None and cause.fix.verdict is Verdict.FAITHFUL, told(proof)


def test_a_layout_that_no_dim_gives_away_is_found() -> None:
    path = written(prepared(Conv, channels_last), pixels(2, 16, 16, 3, top=1.0), "channels-last")
    loaded = onnx.load(path)
    for place, dim in enumerate(loaded.graph.input[0].type.tensor_type.shape.dim):
        dim.dim_param = f"d{place}"
    onnx.save(loaded, path)
    proof = verified(prepared(Conv, bare), path, UNIT)
    assert (proof.causes[0].code, proof.causes[0].proven) == ("preprocessing", True), told(proof)
    assert "axes in the order [0, 2, 3, 1]" in proof.causes[0].evidence
    assert proof.causes[0].fix is not None and proof.causes[0].fix.verdict is Verdict.FAITHFUL


def test_a_layout_that_the_dims_give_away_is_said_at_once() -> None:
    path = written(
        prepared(Conv, channels_last), pixels(2, 16, 16, 3, top=1.0), "channels-last-fixed"
    )
    with pytest.raises(
        InputError,
        match=r"has the dims of `x` in the order \[0, 2, 3, 1\]: channels first on one side, last on the other",
    ):
        verified(prepared(Conv, bare), path, UNIT)


def test_the_mended_file_is_written(tmp_path: Path) -> None:
    from onnxproof.cli import main

    (tmp_path / "model.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\nfrom support.preparing_models import *\n\n\n"
        "def build():\n    return prepared(Conv, normed(*IMAGENET)), (pixels(2, 3, 16, 16, top=1.0),)\n"
    )
    path = written(prepared(Conv, bare), UNIT, "to-be-mended")
    assert (
        main(
            [
                "explain",
                f"{tmp_path / 'model.py'}:build",
                str(path),
                "--dynamic",
                "x:0=batch",
                "--budget",
                "1",
                "--fix",
                "-o",
                str(tmp_path / "fixed.onnx"),
            ]
        )
        == 1
    )
    assert (
        verified(prepared(Conv, normed(*IMAGENET)), tmp_path / "fixed.onnx", UNIT).verdict
        is Verdict.FAITHFUL
    )


class Thin(nn.Module):
    """Fewer channels behind the first layer than before: a shift of the input could stand for its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 2, 3), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)).mean((2, 3)))


def without_bias(weights: dict[str, Any]) -> None:
    weights["first.bias"] = weights["first.bias"] * 0


def transposed(weights: dict[str, Any]) -> None:
    weights["first.weight"] = weights["first.weight"].transpose(2, 3).contiguous()


def doubled(weights: dict[str, Any]) -> None:
    weights["second.weight"] = weights["second.weight"] * 2


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [(Thin, without_bias), (Conv, without_bias), (Conv, transposed), (Conv, doubled)],
)
def test_spoiled_weights_of_the_first_layers_are_not_taken_for_it(
    kind: type[nn.Module], spoil: Any
) -> None:
    module, other = seeded(kind(), 3), seeded(kind(), 3)
    weights = dict(other.state_dict())
    spoil(weights)
    other.load_state_dict(weights)
    proof = verified(module, written(other, UNIT, f"{kind.__name__}-{spoil.__name__}"), UNIT)
    assert proof.verdict is Verdict.DIVERGED
    assert "preprocessing" not in [cause.code for cause in proof.causes], told(proof)
    assert (
        proof.causes
        and proof.causes[0].code in ("weights", "weight-layout")
        and proof.causes[0].proven
    ), told(proof)


@pytest.mark.parametrize(
    ("own", "filed", "words"),
    [
        ("bilinear", "nearest", "(Resize) resizes bilinear"),
        ("nearest", "bicubic", "(Resize) resizes nearest"),
    ],
)
def test_another_way_of_resizing_inside_of_the_file_is_a_matter_of_attributes(
    own: str, filed: str, words: str
) -> None:
    """Several attributes at once: one alone mends nothing."""

    def resized(mode: str) -> Prepare:
        return lambda x: nn.functional.interpolate(
            x, (12, 12), mode=mode, align_corners=None if mode == "nearest" else False
        )

    example = pixels(2, 3, 24, 24, top=1.0)
    proof = verified(
        prepared(Conv, resized(own)),
        written(prepared(Conv, resized(filed)), example, f"{filed}-for-{own}"),
        example,
    )
    assert (proof.causes[0].code, proof.causes[0].proven) == ("attribute", True), told(proof)
    assert words in proof.causes[0].evidence
    assert proof.causes[0].fix is not None and proof.causes[0].fix.verdict is Verdict.FAITHFUL


def test_a_norm_of_the_input_with_another_epsilon_is_not_taken_for_it() -> None:
    module = seeded(
        nn.Sequential(
            nn.BatchNorm2d(3),
            nn.Conv2d(3, 6, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        3,
    )
    path = written(module, UNIT, "input-norm")
    loaded = onnx.load(path)
    norm = next(node for node in loaded.graph.node if node.op_type == "BatchNormalization")
    del norm.attribute[:]
    norm.attribute.append(onnx.helper.make_attribute("epsilon", 0.1))
    onnx.save(loaded, path)
    proof = verified(module, path, UNIT)
    assert (proof.causes[0].code, proof.causes[0].proven) == ("attribute", True), told(proof)


@pytest.mark.parametrize("kind", [Conv, Patches])
def test_a_healthy_file_has_no_cause(kind: type[nn.Module]) -> None:
    proof = verified(
        prepared(kind, normed(*IMAGENET)),
        written(prepared(kind, normed(*IMAGENET)), UNIT, f"healthy-{kind.__name__}"),
        UNIT,
    )
    assert proof.verdict is Verdict.FAITHFUL and not proof.causes, told(proof)


def test_between_two_files_the_usual_ones_are_tried() -> None:
    right, wrong = (
        written(prepared(Conv, p), UNIT, name)
        for p, name in ((normed(*IMAGENET), "diff-right"), (bare, "diff-wrong"))
    )
    with mock.patch.object(reverify, "MOST_S", BUDGET_S):
        proof = onnxproof.diff(right, wrong, {"x": np.asarray(UNIT)}, budget_s=BUDGET_S)
    assert (proof.causes[0].code, proof.causes[0].proven) == ("preprocessing", True), told(proof)
    assert "ImageNet" in proof.causes[0].evidence
