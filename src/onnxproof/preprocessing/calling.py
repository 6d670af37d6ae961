"""Call a preprocessing of the user's with what it expects: a path, the bytes of a file, a Pillow image, an array or a tensor.

An annotation decides. Without one the raw input is handed over as it is, then in the other forms that it has, until the function takes
one; that form is kept for all further inputs.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError, UsageError
from onnxproof.numerics.array_files import SUFFIXES as ARRAY_SUFFIXES
from onnxproof.numerics.array_files import read_arrays
from onnxproof.reference.user_code import user_line
from onnxproof.system.user_files import require_regular

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_ANNOTATED = (
    ("Image", "a Pillow image"),
    ("ndarray", "an array"),
    ("NDArray", "an array"),
    ("ArrayLike", "an array"),
    ("Tensor", "a tensor"),
    ("bytes", "bytes"),
    ("Path", "a pathlib.Path"),
    ("str", "a path"),
)
"""Words of an annotation, and the form that each asks for; the first that is found counts."""
_CHANNELS = (1, 3, 4)
_AS_IT_IS = "the raw input"
Array = np.ndarray[Any, Any]


class Preprocessing:
    """A function of the user's, and the form in which it takes its raw input."""

    def __init__(self, function: Callable[..., Any], *, first: str = _AS_IT_IS) -> None:
        """`first` is the form that is tried first, where no annotation decides."""
        self.function = function
        self._first = first
        self.name = getattr(function, "__name__", type(function).__name__)
        self._forms = _annotated_forms(function)
        self._kept: str | None = None

    def __call__(self, raw: tuple[Any, ...], label: str) -> Any:
        """What the function makes of one raw input.

        Raises:
            UsageError: `preprocess-raised`, at the user's own line, with what else was tried; `preprocess-returned`.
        """
        failures: dict[str, Exception] = {}
        for form, arguments in self._attempts(raw):
            try:
                result = self.function(*arguments)
            except Exception as why:  # the user's own code
                failures[form] = why
                continue
            self._kept = form
            self._check(result, label)
            return result
        raise self._raised(failures, raw, label)

    def arguments(self, raw: tuple[Any, ...]) -> tuple[Any, ...]:
        """The raw input in the form that was taken."""
        for form, arguments in self._attempts(raw):
            if self._kept in (None, form):
                return arguments
        return raw

    def _attempts(self, raw: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Forms with the arguments in them: the annotated or kept one alone, or all that the raw input has."""
        annotated = self._forms[: len(raw)]
        if any(annotated):
            padded = [*annotated, *[""] * (len(raw) - len(annotated))]
            yield " and ".join(filter(None, annotated)), tuple(map(_converted, raw, padded))
            return
        forms = {_AS_IT_IS: lambda: raw[0]}
        if len(raw) == 1:
            forms |= _forms(raw[0])
        names = sorted(forms, key=lambda form: form != self._first)
        if self._kept in forms:
            names = [self._kept]
        for form in names:
            if form == _AS_IT_IS:
                yield form, raw
            else:
                yield form, (forms[form](),)

    def _check(self, result: Any, label: str) -> None:
        values = [result]
        if isinstance(result, Mapping):
            values = list(result.values())
        if not values or any(value is None for value in values):
            raise UsageError(
                "preprocess-returned",
                f"`{self.name}` returned {result!r} on {label}",
                where=_defined_at(self.function),
                help="return the model's inputs: an array or a tensor, a tuple of them, or a dict by name",
            )

    def _raised(
        self, failures: Mapping[str, Exception], raw: tuple[Any, ...], label: str
    ) -> UsageError:
        (form, why), *others = failures.items()
        notes = [f"it was called with {', '.join(_described(item) for item in raw)}"]
        if form != _AS_IT_IS:
            notes = [f"it was called with {form}"]
        notes += [f"with {other}: {type(error).__name__}: {error}" for other, error in others]
        return UsageError(
            "preprocess-raised",
            f"`{self.name}` raised {type(why).__name__} on {label}: {why}",
            where=user_line(why, _defined_at(self.function)),
            notes=notes,
            help="say what it takes by an annotation: `str`, `Path`, `PIL.Image.Image`, `np.ndarray` or `torch.Tensor`",
        )


def _annotated_forms(function: Any) -> list[str]:
    """The form of each positional parameter; empty where its annotation says nothing."""
    target = getattr(function, "forward", function)
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    forms = []
    for parameter in parameters:
        words = ""
        if parameter.annotation is not inspect.Parameter.empty:
            words = _annotation_words(parameter.annotation)
        forms.append(next((form for word, form in _ANNOTATED if word in words), ""))
    return forms


def _annotation_words(annotation: Any) -> str:
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation)


def _converted(item: Any, form: str) -> Any:
    """The item in a form; as it is where it has no such form."""
    if not form or (form == "a path" and isinstance(item, str)):
        return item
    return _forms(item).get(form, lambda: item)()


def _forms(item: Any) -> dict[str, Callable[[], Any]]:
    """All other forms that a raw input has, made when they are asked for."""
    if isinstance(item, str | Path):
        return _forms_of_path(Path(item))
    if type(item).__module__.startswith("PIL."):
        return {
            "an array": lambda: np.asarray(item),
            "a tensor": lambda: _as_tensor(np.asarray(item)),
        }
    if hasattr(item, "detach"):
        array = item.detach().cpu().numpy()
        return {"an array": lambda: array} | _image_form(array)
    if isinstance(item, np.ndarray):
        return {"a tensor": lambda: _as_tensor(item)} | _image_form(item)
    return {}


def _image_form(array: Array) -> dict[str, Callable[[], Any]]:
    image = _as_image(array)
    if image is None:
        return {}
    return {"a Pillow image": lambda: image}


def _forms_of_path(path: Path) -> dict[str, Callable[[], Any]]:
    if not path.is_file():  # a text
        return {}
    forms: dict[str, Callable[[], Any]] = {"a path": lambda: str(path)}
    forms["a pathlib.Path"] = lambda: path
    if path.suffix.lower() in IMAGE_SUFFIXES:
        forms["a Pillow image"] = lambda: open_image(path)
    if path.suffix.lower() in (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES):
        forms["an array"] = lambda: _read_array(path)
        forms["a tensor"] = lambda: _as_tensor(_read_array(path))
    forms["bytes"] = path.read_bytes
    return forms


def _read_array(path: Path) -> Array:
    """The pixels of an image, or the first array of a file."""
    if path.suffix.lower() in ARRAY_SUFFIXES:
        return next(iter(read_arrays(path).values()))
    image = open_image(path)
    if image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGB")
    return np.array(image)  # one that may be written into


def open_image(path: Path) -> Any:
    """An image as Pillow opens it, read to its end.

    Raises:
        InputError: `pillow-missing` or `bad-data`.
    """
    require_regular(path, InputError)
    try:
        from PIL import Image
    except ImportError as why:
        raise InputError(
            "pillow-missing",
            f"`{path.name}` is an image, and reading it needs Pillow",
            help="pip install 'onnxproof[images]'",
        ) from why
    try:
        image = Image.open(path)
        image.load()
    except Exception as why:  # damaged files raise half a dozen classes
        raise InputError(
            "bad-data", f"`{path.name}` can't be read as an image: {why}", where=str(path)
        ) from why
    return image


def _as_image(array: Array) -> Any:
    """A Pillow image of bytes in rows, columns and channels; None for anything else, or without Pillow."""
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in _CHANNELS)
    if array.dtype != np.uint8 or not is_image:
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    return Image.fromarray(array)


def _as_tensor(array: Array) -> Any:
    """A tensor that owns its memory; the array itself where torch is not there, or has no such dtype."""
    try:
        import torch

        return torch.from_numpy(np.array(array))
    except (ImportError, TypeError):
        return array


def _described(item: Any) -> str:
    if isinstance(item, str | Path):
        return f"{type(item).__name__} `{item}`"
    if type(item).__module__.startswith("PIL."):
        return f"a Pillow image of mode {item.mode}, {item.width} x {item.height}"
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        dtype = str(item.dtype).removeprefix("torch.")
        return f"a {type(item).__name__} {dtype}{list(item.shape)}"
    return f"a {type(item).__name__}"


def _defined_at(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"
