"""Folders of files, exported once for all tests."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from support.tiny_transformers import save_tokenizer, tiny_model


@pytest.fixture(scope="session")
def bart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A saved model with an encoder and a decoder, and its folder of files."""
    return _exported("bart", tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A saved decoder, and its folder."""
    return _exported("llama", tmp_path_factory.mktemp("llama"))


def _exported(kind: str, root: Path) -> tuple[Path, Path]:
    from onnxproof.options import ExportOptions
    from onnxproof.packages.export import export_folder

    saved, folder = root / "saved", root / "onnx"
    tiny_model(kind).save_pretrained(saved)
    save_tokenizer(saved)
    export_folder(saved, folder, ExportOptions())
    return saved, folder
