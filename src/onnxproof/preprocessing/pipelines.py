"""The deployment's own preprocessing against the one that the model was made with, on raw inputs, up to the answers.

A difference is explained by trying the usual slips: each is done to what the model's own makes, and the one that then makes
what the deployment makes is proven.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxproof.errors import InputError, UsageError
from onnxproof.preprocessing import as_arguments
from onnxproof.preprocessing.comparison import explained
from onnxproof.preprocessing.mistake import Both, Explanation, same, scale_of
from onnxproof.reference import subject, tree
from onnxproof.results import Cause, Finding
from onnxproof.runtimes import Session, open_session
from onnxproof.system.user_files import require_regular

if TYPE_CHECKING:
    from onnxproof.reference.torch_session import TorchSession
    from onnxproof.results.proof import Proof

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
_MOST, _SHOWN = 32, 3
"""Raw inputs that are compared, and differences that are explained."""
_ROUNDING = float(np.finfo(np.float32).eps)
_TITLE = "the deployment prepares the input otherwise than the model's own preprocessing"
_HELP = "call the same code in both places, or export the preprocessing inside of the model (leave --pipeline out)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Words for the record; findings and a cause where the two differ."""

    words: str
    findings: tuple[Finding, ...] = ()
    causes: tuple[Cause, ...] = ()

    def join(self, proof: "Proof") -> "Proof":
        """The proof with this in it: a difference decides the verdict, and is its first cause."""
        told = Finding(
            code="pipeline",
            what=f"the deployment's preprocessing beside the model's own: {self.words}",
        )
        joined = replace(
            proof,
            findings=(
                *self.findings,
                *(() if self.findings or proof.export is not None else (told,)),
                *proof.findings,
            ),
            causes=(*self.causes, *proof.causes),
        )
        return joined.judged(proof.policy) if self.findings else joined


def load(source: Any) -> Function:
    """The deployment's function: a callable, or `deploy.py:preprocess`."""
    return source if callable(source) else subject.function(str(source))  # type: ignore[no-any-return]


def demand(found: subject.Subject) -> None:
    """Refuse a subject that does not say how it is preprocessed."""
    if found.preprocess is None:
        raise UsageError(
            "no-preprocessing",
            f"`{found.name}` does not say how it is preprocessed, so a pipeline has nothing to be compared with",
            help="let the factory return onnxproof.Subject(module=..., example_inputs=raw, preprocess=...)",
        )


def compare(found: subject.Subject, deployed: Any, path: Path, backend: str = "ort") -> Compared:
    """Both preprocessings on every raw input, then the module behind the one and the file behind the other."""
    from onnxproof.reference.torch_session import TorchSession

    theirs = load(deployed)
    demand(found)
    session, module = (
        open_session(backend, path),
        TorchSession(found.module, found.args, found.kwargs),
    )
    count, worst, differ = 0, 0.0, _Differences()
    try:
        for label, raw in itertools.islice(_raw(found), _MOST):
            count += 1
            wanted, given = _made(found.preprocess, raw, label), _made(theirs, raw, label)
            apart = _apart(wanted, given)
            if apart is None:
                worst = max(worst, *(_farthest(w, g) for w, g in zip(wanted, given, strict=True)))
                continue
            differ.count += 1
            if differ.count <= _SHOWN:
                differ.add(
                    label,
                    apart,
                    _explained(apart, wanted, given, raw, found.preprocess, theirs),
                    _outputs(module, session, wanted, given),
                )
    finally:
        session.close()
    words = f"{count} raw inputs, {'the same tensors' if not differ.count else f'{differ.count} differ'} (at most {worst:.1g} apart)"
    return Compared(words=words, findings=tuple(differ.findings), causes=tuple(differ.causes[:1]))


@dataclass(slots=True)
class _Differences:
    """What was found so far."""

    count: int = 0
    findings: list[Finding] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)

    def add(self, label: str, apart: "_Apart", found: Explanation, outputs: str) -> None:
        """One raw input on which the two differ."""
        why = found.what
        said = f"{apart.what}{'; ' * bool(apart.what and why)}{why or ('' if apart.what else 'the values differ in no way that is usual')}{apart.size}"
        self.findings.append(
            Finding(
                code="preprocessing",
                what=f"on {label} the deployment's preprocessing makes another tensor: {said}{outputs}",
                help=_HELP,
                counts=True,
            )
        )
        evidence = f"on {label} {said}" + ("; no usual slip explains it" if not why else "")
        if found.sure:
            evidence = f"on {label} the model's own preprocessing, changed so, makes what the deployment makes: {why}"
        before, after = (
            apart.relative / _ROUNDING,
            (found.left if found.sure else apart.relative) / _ROUNDING,
        )
        cause = Cause(
            code="preprocessing",
            title=_TITLE,
            proven=found.sure,
            evidence=f"{evidence}{outputs}",
            before=before,
            after=after,
        )
        self.causes = sorted([*self.causes, cause], key=lambda c: not c.proven)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Apart:
    """How two preprocessings differ, before anybody asks why."""

    place: int | None = None
    what: str = ""
    size: str = ""
    relative: float = 1.0


def _apart(wanted: Sequence[Array], given: Sequence[Array]) -> _Apart | None:
    """What differs; None when nothing does."""
    if len(wanted) != len(given):
        return _Apart(
            what=f"it makes {len(given)} tensors, and the model's own makes {len(wanted)}"
        )
    for place, (want, got) in enumerate(zip(wanted, given, strict=True)):
        if want.shape != got.shape:
            return _Apart(
                place=place,
                what=f"it makes {got.dtype}{list(got.shape)}, and the model's own makes {want.dtype}{list(want.shape)}",
            )
        if not same(want, got):
            far = _farthest(want, got)
            return _Apart(place=place, size=f" (max abs {far:.3g})", relative=far / scale_of(want))
    return None


def _explained(
    apart: _Apart,
    wanted: Sequence[Array],
    given: Sequence[Array],
    raw: tuple[Any, ...],
    own: Function,
    theirs: Function,
) -> Explanation:
    """The slip that explains it, if one does, and what is left."""
    if apart.place is None:
        return Explanation()
    place = apart.place

    def again(function: Function) -> Callable[..., Array]:
        def call(*changed: Any) -> Array:
            try:
                return _made(
                    function,
                    tuple(_like(new, old) for new, old in zip(changed, raw, strict=True)),
                    "changed raw data",
                )[place]
            except (
                UsageError,
                IndexError,
            ):  # raw data that was changed may not suit it: then it is not what happened
                return np.zeros(0)

        return call

    return explained(
        Both(want=wanted[place], got=given[place], raw=raw, own=again(own), theirs=again(theirs))
    )


def _like(new: Any, old: Any) -> Any:
    """A tensor where the raw input was one."""
    return old.new_tensor(new) if hasattr(old, "new_tensor") else new


def _raw(found: subject.Subject) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The raw example, then the user's raw data: the files of a folder by their paths, or whatever an iterable gives."""
    example = found.raw if isinstance(found.raw, tuple) else (found.raw,)
    yield "the example", example
    data = found.data
    if isinstance(data, str | Path):
        place = Path(data)
        files = (
            sorted(item for item in place.iterdir() if item.is_file())
            if place.is_dir()
            else [require_regular(place, InputError)]
        )
        yield from ((f"`{file.name}`", (str(file),)) for file in files)
    elif data is not None:
        yield from (
            (f"data[{index}]", item if isinstance(item, tuple) else (item,))
            for index, item in enumerate(data)
        )


def _made(function: Function, raw: tuple[Any, ...], label: str) -> list[Array]:
    from onnxproof.reference.torch_session import to_numpy

    try:
        positional, named = as_arguments(function(*raw))
    except Exception as why:  # the user's own code
        raise UsageError(
            "preprocess-raised",
            f"`{getattr(function, '__name__', function)}` raised {type(why).__name__} on {label}: {why}",
        ) from why
    made = [
        to_numpy(leaf) if hasattr(leaf, "detach") else np.asarray(leaf)
        for _, leaf in tree.flatten([*positional, *named.values()])
    ]
    return [array.astype(np.float32) if array.dtype.name == "bfloat16" else array for array in made]


def _farthest(want: Array, got: Array) -> float:
    return float(np.abs(want.astype(np.float64) - got.astype(np.float64)).max(initial=0))


def _outputs(
    module: "TorchSession", session: Session, wanted: Sequence[Array], given: Sequence[Array]
) -> str:
    """What that does to the answers, end to end."""
    if len(wanted) != len(given):
        return ""
    reference = module.run(dict(zip(module.input_names, wanted, strict=True)))
    try:
        found = session.run(dict(zip(session.input_names, given, strict=True)))
    except Exception as why:  # any runtime, any error: it is an answer
        return f"; the file refuses it ({type(why).__name__})"
    gaps = [
        _farthest(r, f)
        for r, f in zip(reference, found, strict=False)
        if r is not None and f is not None and r.shape == f.shape
    ]
    return f"; the answers are {max(gaps):.3g} apart" if gaps else "; the answers have other shapes"
