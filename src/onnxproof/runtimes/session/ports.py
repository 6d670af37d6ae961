"""What a runtime should check and some do not: names, dtypes and shapes of what a model is given."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import Refused
from onnxproof.onnxmodel import onnx_file

Array = np.ndarray[Any, Any]
_INT32 = np.iinfo(np.int32)


class Ports:
    """The inputs and outputs of a file, in its order."""

    def __init__(self, model: Path, runtime: str) -> None:
        file = onnx_file.read(model)
        self._runtime = runtime
        self.inputs = file.inputs
        self.outputs = file.outputs
        self.external = onnx_file.external_files(file.model)
        self.input_names = [port.name for port in file.inputs]
        self.output_names = [port.name for port in file.outputs]

    def check(self, inputs: Mapping[str, Array]) -> None:
        """Refuse what does not fit the file, before a runtime reshapes it, converts it or reads past its end."""
        unknown = [name for name in inputs if name not in self.input_names]
        missing = [name for name in self.input_names if name not in inputs]
        notes = [f"its inputs are {', '.join(self.input_names)}"]
        if unknown:
            raise Refused("refused", f"the model has no input `{unknown[0]}`", notes=notes)
        if missing:
            raise Refused("refused", f"the input `{missing[0]}` was not given", notes=notes)
        sizes: dict[str, int] = {}
        for port in self.inputs:
            array = np.asarray(inputs[port.name])
            if port.dtype not in ("unknown", array.dtype.name):
                raise Refused(
                    "refused",
                    f"`{port.name}` is {array.dtype.name}, and the model takes {port.dtype}",
                )
            if port.dims is not None and not _fits(array.shape, port.dims, sizes):
                raise Refused(
                    "refused",
                    f"`{port.name}` has the shape {list(array.shape)}, and the model takes {_show_dims(port.dims)}",
                )

    def only(self, *dtypes: str) -> None:
        """Refuse a model with an input or output of any other dtype."""
        for port in (*self.inputs, *self.outputs):
            if port.dtype not in dtypes:
                raise Refused(
                    "unsupported-dtype",
                    f"{self._runtime} can't keep `{port.name}`, which is {port.dtype}",
                    notes=[f"it keeps {', '.join(dtypes)}"],
                )

    def narrow(self, inputs: Mapping[str, Array]) -> None:
        """Refuse integers that a runtime which computes in 32 bits would cut off without a word."""
        for name, array in inputs.items():
            if array.dtype not in (np.int64, np.uint64, np.uint32) or not array.size:
                continue
            if array.min() < _INT32.min or array.max() > _INT32.max:
                raise Refused(
                    "integer-width",
                    f"{self._runtime} computes int64 in 32 bits and would cut `{name}` off without a word",
                    notes=[f"its values reach from {array.min()} to {array.max()}"],
                )


def _fits(
    shape: tuple[int, ...],
    dims: tuple[str | int | None, ...],
    sizes: dict[str, int],
) -> bool:
    """A named dim must have one size wherever it stands."""
    if len(shape) != len(dims):
        return False
    for size, dim in zip(shape, dims, strict=True):
        if isinstance(dim, int) and dim != size:
            return False
        if isinstance(dim, str) and dim and sizes.setdefault(dim, size) != size:
            return False
    return True


def _show_dims(dims: tuple[str | int | None, ...]) -> str:
    return f"[{', '.join(str(dim or '?') for dim in dims)}]"
