"""Image files as calibration data: pixels as the model takes them, or as a preprocessing of the user's makes them.

A model that takes raw pixels (its preprocessing is inside, or its input is uint8) gets them as they are. Where it takes floats,
somebody must say how pixels become them: a function, or an example whose values give it away. Images are never resized here.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError, UsageError
from onnxproof.inputs import data_stream as user_data
from onnxproof.numerics.array_files import SUFFIXES as ARRAY_SUFFIXES
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.preprocessing.calling import IMAGE_SUFFIXES as SUFFIXES
from onnxproof.preprocessing.calling import Preprocessing, open_image
from onnxproof.quantization.calibration.batches import SIZE
from onnxproof.results import Finding

Array = np.ndarray[Any, Any]
Preprocess = Callable[[Any], Any]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_HELP = "say how pixels become inputs: `--preprocess deploy.py:preprocess`, a function of an image, or let the factory return onnxproof.Subject(..., preprocess=...)"


def are_images(data: Any) -> bool:
    """True for an image file, and for a folder (with its folders) that holds images and no arrays."""
    if not isinstance(data, str | Path):
        return False
    path = Path(data)
    if not path.is_dir():
        return path.suffix.lower() in SUFFIXES
    return bool(_files(path)) and not any(
        child.suffix.lower() in ARRAY_SUFFIXES for child in path.iterdir()
    )


def read(
    data: str | Path,
    ports: Sequence[Port],
    preprocess: Preprocess | None = None,
    example: Mapping[str, Array] | None = None,
) -> tuple[Iterator[dict[str, Array]], list[Finding]]:
    """Batches by the graph's input names, and a finding where the scale of the pixels was guessed."""
    try:
        import PIL.Image  # noqa: F401 - whether it is there decides
    except ImportError as why:
        raise InputError(
            "pillow-missing",
            f"`{data}` holds images, and reading them needs Pillow",
            help="pip install 'onnxproof[images]'",
        ) from why
    path = Path(data)
    files = _files(path) if path.is_dir() else [path]
    if not files or not path.exists():
        raise InputError(
            "no-data", f"`{data}` holds no image", help=f"images end in {', '.join(SUFFIXES)}"
        )
    if preprocess is not None:
        call = Preprocessing(preprocess, first="a Pillow image")
        return _stack(_apply_preprocess(call, file, ports) for file in files), []
    if len(ports) != 1:
        raise InputError(
            "images-need-preprocessing",
            f"the model takes {len(ports)} inputs ({', '.join(port.name for port in ports)}), and an image is one",
            help=_HELP,
        )
    port = ports[0]
    scale, findings = _guess_scale(port, (example or {}).get(port.name))
    return _stack({port.name: _read_pixels(file, port, scale)} for file in files), findings


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
    )


def _apply_preprocess(
    preprocess: Preprocessing, file: Path, ports: Sequence[Port]
) -> dict[str, Array]:
    """What the user's function makes of one image, with a batch axis."""
    result = preprocess((str(file),), f"`{file.name}`")
    if not isinstance(result, Mapping | tuple | list):
        result = (result,)
    _, arrays = next(user_data.stream([result], [port.name for port in ports]))
    return {port.name: _with_batch_axis(arrays[port.name], port) for port in ports}


def _with_batch_axis(array: Array, port: Port) -> Array:
    if port.dims is not None and array.ndim == len(port.dims) - 1:
        return array[None]
    return array


def _guess_scale(port: Port, example: Array | None) -> tuple[float, list[Finding]]:
    """What a pixel is divided by: 1 for integers, and what the example's values show for floats."""
    if np.dtype(port.dtype).kind in "iu":
        return 1.0, []
    if example is None or not example.size:
        raise InputError(
            "images-need-preprocessing",
            f"the model takes floats as `{port.name}`, and a file of pixels does not say how they are normalised",
            help=_HELP,
        )
    low, high = float(example.min()), float(example.max())
    if low < 0 or high > 255 or high == low:
        raise InputError(
            "images-need-preprocessing",
            f"the example of `{port.name}` reaches from {low:.3g} to {high:.3g}: its pixels were normalised, and nobody says how",
            help=_HELP,
        )
    scale, words = 1.0, "left as 0 to 255"
    if high <= 1:
        scale, words = 255.0, "divided by 255"
    return scale, [
        Finding(
            code="pixels-guessed",
            what=f"pixels are {words}, since the example of `{port.name}` reaches from {low:.3g} to {high:.3g}",
            help=_HELP,
        )
    ]


def _read_pixels(file: Path, port: Port, scale: float) -> Array:
    """One image in the layout of the input; a size that does not fit is an error, since resizing is preprocessing."""
    dims = port.dims or ()
    axis = _channel_axis(port)
    channels = 1 if axis is None else int(dims[axis] or 1)
    image = np.asarray(open_image(file).convert(_MODES[channels]))
    if image.ndim == 2 and axis is not None:
        image = image[..., None]
    if axis == 1:
        image = image.transpose(2, 0, 1)
    sizes = zip(dims[1:], image.shape, strict=True)
    if any(isinstance(dim, int) and dim != size for dim, size in sizes):
        raise InputError(
            "image-size",
            f"`{file.name}` is {list(image.shape)}, and `{port.name}` takes {list(dims[1:])}",
            where=str(file),
            help=f"resizing is part of the preprocessing; {_HELP}",
        )
    if scale != 1:
        image = image / np.float32(scale)
    return image.astype(port.dtype)[None]


def _channel_axis(port: Port) -> int | None:
    """Where the channels are: second or last of four dims; None for [batch, height, width]."""
    dims = port.dims or ()
    if len(dims) == 4:
        for axis in (1, 3):
            if dims[axis] in _MODES:
                return axis
    elif len(dims) == 3:
        return None
    raise UsageError(
        "images-do-not-fit",
        f"images don't fit the input `{port.name}`, which takes {list(dims)}",
        help=_HELP,
    )


def _stack(items: Iterator[dict[str, Array]]) -> Iterator[dict[str, Array]]:
    """Neighbours of one shape as one batch: the runtime is quicker over several."""

    def shapes(item: dict[str, Array]) -> list[tuple[int, ...]]:
        return [array.shape[1:] for array in item.values()]

    for _, same_shape in itertools.groupby(items, key=shapes):
        while batch := list(itertools.islice(same_shape, SIZE)):
            yield {name: np.concatenate([item[name] for item in batch]) for name in batch[0]}
