"""What Optimum writes: one decoder, or an encoder with a decoder in two files or in one merged one."""

from pathlib import Path

from onnxproof.packages.merged import write_branch
from onnxproof.packages.package import Component, Package, Role

LOOKS_FOR = (
    "model.onnx",
    "encoder_model.onnx",
    "decoder_model.onnx",
    "decoder_with_past_model.onnx",
    "decoder_model_merged.onnx",
)


def read(folder: Path, scratch: Path) -> Package | None:
    """A package of the files that are there; where decoders come twice, the merged one comes first: loaders take it."""
    components = [*_encoder(folder), *_decoders(folder, scratch)]
    if not components:
        return None
    return Package(folder=folder, layout="optimum", components=tuple(components))


def _encoder(folder: Path) -> list[Component]:
    path = folder / "encoder_model.onnx"
    if not path.is_file():
        return []
    return [Component(file=path.name, role=Role.ENCODER, path=path)]


def _decoders(folder: Path, scratch: Path) -> list[Component]:
    names = {
        "decoder_model.onnx": Role.FIRST,
        "decoder_with_past_model.onnx": Role.STEP,
        "model.onnx": Role.STEP,
    }
    single = [
        Component(file=name, role=role, path=folder / name)
        for name, role in names.items()
        if (folder / name).is_file()
    ]
    return [*_branches(folder / "decoder_model_merged.onnx", scratch), *single]


def _branches(merged: Path, scratch: Path) -> list[Component]:
    if not merged.is_file():
        return []
    return [
        Component(
            file=merged.name,
            role=role,
            path=write_branch(merged, role is Role.STEP, scratch),
            branch=role.value,
        )
        for role in (Role.FIRST, Role.STEP)
    ]
