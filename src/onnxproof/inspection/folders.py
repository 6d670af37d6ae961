"""A folder of ONNX files looked over as one: the checks of every file under its name."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.errors import InputError, ModelError

if TYPE_CHECKING:
    from onnxproof.inspection import Inspection


def inspect_folder(
    folder: Path, reference: Any, inspect: "Callable[[Path], Inspection]"
) -> "Inspection":
    """All files in one inspection; sizes and operators are added up.

    Raises:
        ModelError: `not-a-package`, where the folder holds no .onnx file.
        InputError: `reference-of-a-folder`, since a module's weights are compared with one file's.
    """
    paths = sorted(folder.glob("*.onnx"))
    if not paths:
        raise ModelError(
            "not-a-package",
            f"`{folder}` holds no .onnx file",
            where=str(folder),
            help="give one .onnx file, or the folder that holds them (often `onnx/`)",
        )
    if reference is not None:
        raise InputError(
            "reference-of-a-folder",
            "a reference is compared with one file, and this is a folder of them",
            where=str(folder),
            help=f"`onnxproof verify MODEL {folder}` proves every file",
        )
    return _added_up(folder, [_named_by_file(inspect(path), path.name) for path in paths])


def _named_by_file(inspection: "Inspection", file: str) -> "Inspection":
    """The checks and the weights of one file under its name."""
    return replace(
        inspection,
        checks=tuple(replace(check, name=f"{file}: {check.name}") for check in inspection.checks),
        heaviest=tuple(
            replace(weight, name=f"{file}: {weight.name}") for weight in inspection.heaviest
        ),
    )


def _added_up(folder: Path, files: "Sequence[Inspection]") -> "Inspection":
    operators: Counter[str] = Counter()
    for file in files:
        operators.update(file.operators)
    weights = sorted(
        (weight for file in files for weight in file.heaviest), key=lambda weight: -weight.bytes
    )
    return replace(
        files[0],
        path=str(folder),
        opset=max(file.opset for file in files),
        file_bytes=sum(file.file_bytes for file in files),
        weight_bytes=sum(file.weight_bytes for file in files),
        parameters=sum(file.parameters for file in files),
        nodes=sum(file.nodes for file in files),
        checks=tuple(check for file in files for check in file.checks),
        operators=dict(operators.most_common()),
        heaviest=tuple(weights[: len(files[0].heaviest)]),
    )
