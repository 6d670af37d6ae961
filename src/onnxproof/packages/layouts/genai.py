"""What onnxruntime-genai's builder writes: a decoder of GroupQueryAttention, and genai_config.json, which says how it is fed."""

import json
from pathlib import Path
from typing import Any

from onnxproof.errors import ModelError
from onnxproof.packages.full_mask import write_with_full_mask
from onnxproof.packages.package import Component, Package, Role
from onnxproof.system.user_files import DOCUMENT_BYTES, require_regular

LOOKS_FOR = ("genai_config.json",)


def read(folder: Path, scratch: Path) -> Package | None:
    """The decoder that the configuration names."""
    path = folder / "genai_config.json"
    if not path.is_file():
        return None
    try:
        require_regular(path, ModelError, most=DOCUMENT_BYTES)
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model, search = settings["model"], settings.get("search", {})
        file = str(model["decoder"]["filename"])
        length = int(model.get("context_length") or search.get("max_length") or 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as why:
        raise ModelError(
            "bad-genai-config",
            f"genai_config.json does not say which file the decoder is: {type(why).__name__}: {why}",
            where=str(path),
            help="it needs model.decoder.filename, as onnxruntime-genai's builder writes it",
        ) from why
    if Path(file).name != file:
        raise ModelError(
            "bad-genai-config",
            f"the decoder `{file}` is no file of this folder",
            where=str(path),
        )
    require_regular(folder / file, ModelError, help="genai_config.json names it as the decoder")
    path = write_with_full_mask(folder / file, scratch)
    return Package(
        folder=folder,
        layout="genai",
        components=(Component(file=file, role=Role.STEP, path=path),),
        buffer=length if search.get("past_present_share_buffer") else 0,
        padding=False,  # GroupQueryAttention counts a row's tokens, and takes no mask
        settings=settings,
    )
