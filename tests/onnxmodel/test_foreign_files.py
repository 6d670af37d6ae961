"""Files that are given as a model and are none: the message says what they are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from onnxproof.errors import ModelError
from onnxproof.onnxmodel import onnx_file


def said(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        onnx_file.read(path)
    assert caught.value.code == "not-onnx"
    return caught.value.render()


def test_weights_are_no_model_and_need_a_factory(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    text = said(tmp_path / "weights.pt")
    assert "not an ONNX model but weights or a pickled module of PyTorch" in text
    assert "onnxproof export file.py:factory -o model.onnx" in text


def test_torchscript_and_an_exported_program_are_to_be_exported(tmp_path: Path) -> None:
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    torch.jit.save(torch.jit.trace(module, x), tmp_path / "script.pt")
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "program.pt2")
    assert "but a TorchScript program" in said(tmp_path / "script.pt")
    text = said(tmp_path / "program.pt2")
    assert "but an exported program of PyTorch (.pt2)" in text
    assert "onnxproof export program.pt2 -o model.onnx" in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS"),
        ("m.tflite", b"\x1c\0\0\0TFL3" + bytes(40), "TensorFlow Lite"),
        ("m.ort", b"\x1c\0\0\0ORTM" + bytes(40), "ONNX Runtime's own format"),
        ("m.h5", b"\x89HDF\r\n\x1a\n" + bytes(40), "Keras"),
        ("m.onnx.gz", b"\x1f\x8b\x08" + bytes(40), "gzip"),
        ("m.onnx", b"<!DOCTYPE html><html><body>Sign in", "HTML"),
        ("m.safetensors", b'\x10\0\0\0\0\0\0\0{"w":{}}', "safetensors"),
        ("old.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
    ],
)
def test_other_formats_are_called_by_their_name(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    text = said(tmp_path / name)
    assert "not an ONNX model but" in text and words in text


def test_arrays_are_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.ones(3))
    np.save(tmp_path / "data.npy", np.ones(3))
    assert "--data" in said(tmp_path / "data.npz") and "--data" in said(tmp_path / "data.npy")


def test_what_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "noise.onnx").write_bytes(bytes(range(200, 256)))
    assert "not an ONNX model, or it is truncated" in said(tmp_path / "noise.onnx")
