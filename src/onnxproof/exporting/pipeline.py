"""The deployment's own preprocessing against the one that the model was made with, on raw inputs, up to the answers.

A difference is named by trying the usual ones: reversed channels, another layout, a factor of 255, another mean or spread.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof import nest, subject
from onnxproof.backends import Session, open_session
from onnxproof.backends.torch import TorchSession, to_numpy
from onnxproof.errors import InputError, UsageError
from onnxproof.preprocessing import as_arguments
from onnxproof.types import Finding

Array = np.ndarray[Any, Any]
_MOST = 32
_CLOSE = 1e-5
"""Share of a tensor's largest value up to which two preprocessings are one: another order of the same float32 arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Words for the record, and a finding where the two differ."""

    words: str
    findings: tuple[Finding, ...] = ()


def load(source: Any) -> Any:
    """The deployment's function: a callable, or `deploy.py:preprocess`."""
    if callable(source):
        return source
    return subject.function(str(source))


def compare(found: subject.Subject, deployed: Any, path: Path, backend: str = "ort") -> Compared:
    """Both preprocessings on every raw input, then the module behind the one and the file behind the other."""
    theirs = load(deployed)
    assert found.preprocess is not None
    session, module = open_session(backend, path), TorchSession(found.module, found.args, found.kwargs)
    count, worst, findings = 0, 0.0, []
    try:
        for label, raw in itertools.islice(_raw(found), _MOST):
            count += 1
            wanted, given = _made(found.preprocess, raw, label), _made(theirs, raw, label)
            difference = _difference(wanted, given)
            outputs = _outputs(module, session, wanted, given) if not difference.startswith("it makes") else ""
            if difference:
                findings.append(Finding(code="preprocessing", what=f"on {label} the deployment's preprocessing makes another tensor: {difference}{outputs}",
                                        help="call the same code in both places, or export the preprocessing inside of the model (leave --pipeline out)", counts=True))
            else:
                worst = max(worst, *(float(np.abs(w.astype(np.float64) - g.astype(np.float64)).max(initial=0)) for w, g in zip(wanted, given, strict=True)))
    finally:
        session.close()
    words = f"{count} raw inputs, {'the same tensors' if not findings else f'{len(findings)} differ'} (at most {worst:.1g} apart)"
    return Compared(words=words, findings=tuple(findings[:3]))


def _raw(found: subject.Subject) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The raw example, then the user's raw data: the files of a folder by their paths, or whatever an iterable gives."""
    example = found.raw if isinstance(found.raw, tuple) else (found.raw,)
    yield "the example", example
    data = found.data
    if isinstance(data, str | Path):
        place = Path(data)
        if not place.exists():
            raise InputError("no-such-file", f"there is no file `{place}`", where=str(place))
        files = sorted(item for item in place.iterdir() if item.is_file()) if place.is_dir() else [place]
        yield from ((f"`{file.name}`", (str(file),)) for file in files)
    elif data is not None:
        yield from ((f"data[{index}]", item if isinstance(item, tuple) else (item,)) for index, item in enumerate(data))


def _made(function: Callable[..., Any], raw: tuple[Any, ...], label: str) -> list[Array]:
    try:
        positional, named = as_arguments(function(*raw))
    except Exception as why:  # the user's own code
        raise UsageError("preprocess-raised", f"`{getattr(function, '__name__', function)}` raised {type(why).__name__} on {label}: {why}") from why
    return [to_numpy(leaf) if hasattr(leaf, "detach") else np.asarray(leaf) for _, leaf in nest.flatten([*positional, *named.values()])]


def _difference(wanted: Sequence[Array], given: Sequence[Array]) -> str:
    """What differs, and the usual mistake that explains it; empty when nothing does."""
    if len(wanted) != len(given):
        return f"it makes {len(given)} tensors, and the model's own makes {len(wanted)}"
    for want, got in zip(wanted, given, strict=True):
        if want.shape != got.shape:
            swapped = next((f"; the layout is {axes}" for axes in itertools.permutations(range(want.ndim)) if got.ndim == want.ndim and _same(want.transpose(axes), got)), "")
            return f"it makes {got.dtype}{list(got.shape)}, and the model's own makes {want.dtype}{list(want.shape)}{swapped}"
        if not _same(want, got):
            return f"{_explain(want.astype(np.float64), got.astype(np.float64))} (max abs {np.abs(want.astype(np.float64) - got.astype(np.float64)).max():.3g})"
    return ""


def _same(want: Array, got: Array) -> bool:
    scale = float(np.abs(want.astype(np.float64)).max(initial=0)) or 1.0
    return want.shape == got.shape and bool(np.abs(want.astype(np.float64) - got.astype(np.float64)).max(initial=0) <= _CLOSE * scale)


def _explain(want: Array, got: Array) -> str:
    for axis in range(want.ndim):
        if want.shape[axis] in (3, 4) and _same(np.flip(want, axis), got):
            return "the channels are reversed (RGB and BGR)"
        if _same(np.flip(want, axis), got):
            return f"axis {axis} runs the other way"
    for axes in itertools.permutations(range(want.ndim)):
        if _same(want.transpose(axes), got):
            return f"the axes are exchanged: {axes}"
    for axis in range(want.ndim):
        if 1 < want.shape[axis] <= 4 and (told := _affine(want, got, axis)):
            return told
    return _affine(want[None], got[None], 0) or "the values differ in no way that is usual (another resize or crop?)"


def _affine(want: Array, got: Array, axis: int) -> str:
    """`got = want * factor + shift` for each channel, if that explains everything."""
    a, b = np.moveaxis(want, axis, 0).reshape(want.shape[axis], -1), np.moveaxis(got, axis, 0).reshape(want.shape[axis], -1)
    spread = a.std(1)
    if a.shape[1] < 3 or not spread.all():
        return ""
    factor = ((a - a.mean(1, keepdims=True)) * (b - b.mean(1, keepdims=True))).mean(1) / spread ** 2
    shift = b.mean(1) - factor * a.mean(1)
    if not _same(b, a * factor[:, None] + shift[:, None]):
        return ""
    rounded = f"factor {np.round(factor, 4).tolist()}, shift {np.round(shift, 4).tolist()}"
    return f"another scale, mean or standard deviation: {rounded}"


def _outputs(module: TorchSession, session: Session, wanted: Sequence[Array], given: Sequence[Array]) -> str:
    """What that does to the answers, end to end."""
    reference = module.run(dict(zip(module.input_names, wanted, strict=True)))
    try:
        found = session.run(dict(zip(session.input_names, given, strict=True)))
    except Exception as why:  # any runtime, any error: it is an answer
        return f"; the file refuses it ({type(why).__name__})"
    gaps = [float(np.abs(r.astype(np.float64) - f.astype(np.float64)).max(initial=0)) for r, f in zip(reference, found, strict=False)
            if r is not None and f is not None and r.shape == f.shape]
    return f"; the answers are {max(gaps):.3g} apart" if gaps else "; the answers have other shapes"
