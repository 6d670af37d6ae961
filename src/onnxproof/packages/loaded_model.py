"""The reference of a folder: a Hugging Face model, from where it was saved or in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.errors import InputError
from onnxproof.reference import pretrained
from onnxproof.reference.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """The reference of a folder."""

    model: Any
    name: str
    origin: str
    folder: Path | None = None
    """Where it was saved, with its tokenizer; None for a model in memory."""


def load_model(source: Any, folder: Path) -> LoadedModel:
    """The Hugging Face model of a folder, or one in memory; only those say how a folder of files is called."""
    trusted = False
    if isinstance(source, Subject):
        trusted = source.trust_remote_code
        source = source.source if source.module is None else source.module
    if isinstance(source, str | Path) and Path(source).is_dir():
        path = Path(source)
        model = pretrained.load_module(path, trust_remote_code=trusted)
        origin = f"{path} --trust-remote-code" if trusted else str(path)
        return LoadedModel(model=model, name=path.name, origin=origin, folder=path)
    if hasattr(source, "config") and hasattr(source, "get_encoder"):
        return LoadedModel(model=source.eval(), name=type(source).__name__, origin="")
    raise InputError(
        "not-a-transformers-model",
        f"`{folder}` is a folder, and a folder is proven against a Hugging Face model",
        help="give the folder that the model was saved to, or the model itself; for other modules verify the files one by one",
    )
