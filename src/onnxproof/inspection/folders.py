"""A folder of ONNX files looked over as one: the checks of every file under its name."""

from collections import Counter
from collections.abc import Callable
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
    seen = [inspect(path) for path in paths]
    operators: Counter[str] = Counter()
    for one in seen:
        operators.update(one.operators)
    heaviest = [
        replace(weight, name=f"{path.name}: {weight.name}")
        for path, one in zip(paths, seen, strict=True)
        for weight in one.heaviest
    ]
    heaviest.sort(key=lambda weight: -weight.bytes)
    return replace(
        seen[0],
        path=str(folder),
        opset=max(one.opset for one in seen),
        file_bytes=sum(one.file_bytes for one in seen),
        weight_bytes=sum(one.weight_bytes for one in seen),
        parameters=sum(one.parameters for one in seen),
        nodes=sum(one.nodes for one in seen),
        checks=tuple(
            replace(check, name=f"{path.name}: {check.name}")
            for path, one in zip(paths, seen, strict=True)
            for check in one.checks
        ),
        operators=dict(operators.most_common()),
        heaviest=tuple(heaviest[: len(seen[0].heaviest)]),
    )
