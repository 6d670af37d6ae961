"""The deployment's own preprocessing against the one of the model, on raw inputs, up to the model's outputs.

A difference is explained by trying the usual mistakes: each is made in the model's own preprocessing, and the one that then
computes what the deployment computes is proven.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxproof.errors import InputError, UsageError
from onnxproof.preprocessing import as_arguments
from onnxproof.preprocessing.calling import Preprocessing
from onnxproof.preprocessing.comparison import explain
from onnxproof.preprocessing.mistake import (
    Explanation,
    TensorPair,
    largest_magnitude,
    max_difference,
    nearly_equal,
)
from onnxproof.reference import subject as subjects
from onnxproof.reference import tree
from onnxproof.reference.subject import Subject
from onnxproof.results import Cause, Finding
from onnxproof.runtimes import Session, open_session
from onnxproof.system.user_files import require_regular

if TYPE_CHECKING:
    from onnxproof.reference.torch_session import TorchSession
    from onnxproof.results.proof import Proof

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
_MAX_COMPARED, _MAX_EXPLAINED = 32, 3
"""Raw inputs that are compared, and differences that are explained. Not measured."""
_ROUNDING = float(np.finfo(np.float32).eps)
_TITLE = "the deployment prepares the input otherwise than the model's own preprocessing"
_HELP = "call the same code in both places, or export the preprocessing inside of the model (leave --pipeline out)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineComparison:
    """A summary for the record; findings and a cause if the two preprocessings differ."""

    summary: str
    findings: tuple[Finding, ...] = ()
    causes: tuple[Cause, ...] = ()

    def add_to(self, proof: "Proof") -> "Proof":
        """The proof with this comparison: a difference decides the verdict, and is its first cause."""
        findings = self.findings
        if not findings and proof.export is None:
            what = f"the deployment's preprocessing beside the model's own: {self.summary}"
            findings = (Finding(code="pipeline", what=what),)
        joined = replace(
            proof,
            findings=(*findings, *proof.findings),
            causes=(*self.causes, *proof.causes),
        )
        if self.findings:
            return joined.judged(proof.policy)
        return joined


def load_function(source: Any) -> Function:
    """The deployment's function: a callable, or `deploy.py:preprocess`."""
    if not callable(source):
        source = subjects.function(str(source))
    function: Function = source
    return function


def require_preprocessing(subject: Subject) -> None:
    """Refuse a subject that does not say how it is preprocessed."""
    if subject.preprocess is None:
        raise UsageError(
            "no-preprocessing",
            f"`{subject.name}` does not say how it is preprocessed, so a pipeline has nothing to be compared with",
            help="let the factory return onnxproof.Subject(module=..., example_inputs=raw, preprocess=...)",
        )


def compare(
    subject: Subject,
    deployed: Any,
    path: Path,
    backend: str = "ort",
) -> PipelineComparison:
    """Both preprocessings on every raw input, then the module behind the one and the file behind the other."""
    from onnxproof.reference.torch_session import TorchSession

    require_preprocessing(subject)
    own_function = Preprocessing(subject.preprocess)
    deployed_function = Preprocessing(load_function(deployed))
    session = open_session(backend, path)
    module = TorchSession(subject.module, subject.args, subject.kwargs)
    count = 0
    largest = 0.0
    differences = _Differences()
    try:
        for label, raw in itertools.islice(_raw_inputs(subject), _MAX_COMPARED):
            count += 1
            own = _preprocess(own_function, raw, label)
            prepared = _PreparedInput(
                label=label,
                raw=own_function.arguments(raw),
                own_function=own_function,
                deployed_function=deployed_function,
                own=own,
                deployed=_preprocess(deployed_function, raw, label),
            )
            difference = _find_difference(prepared.own, prepared.deployed)
            if difference is None:
                largest = max(largest, *itertools.starmap(max_difference, prepared.pairs()))
                continue
            differences.count += 1
            if differences.count <= _MAX_EXPLAINED:
                explanation = _explain_difference(difference, prepared)
                outputs = _compare_outputs(module, session, prepared)
                differences.add(label, difference, explanation, outputs)
    finally:
        session.close()
    outcome = "the same tensors"
    if differences.count:
        outcome = f"{differences.count} differ"
    return PipelineComparison(
        summary=f"{count} raw inputs, {outcome} (at most {largest:.1g} apart)",
        findings=tuple(differences.findings),
        causes=tuple(differences.causes[:1]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedInput:
    """One raw input, and the tensors that both preprocessings compute from it."""

    label: str
    raw: tuple[Any, ...]
    own_function: Preprocessing
    deployed_function: Preprocessing
    own: Sequence[Array]
    deployed: Sequence[Array]

    def pairs(self) -> Iterator[tuple[Array, Array]]:
        """The tensors of both, one by one."""
        return zip(self.own, self.deployed, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """How two preprocessings differ, before it is explained."""

    place: int | None = None
    description: str = ""
    size: str = ""
    relative: float = 1.0


@dataclass(slots=True, kw_only=True)
class _Differences:
    """What is reported about the raw inputs on which the two differ."""

    count: int = 0
    findings: list[Finding] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)

    def add(
        self,
        label: str,
        difference: _Difference,
        explanation: Explanation,
        outputs: str,
    ) -> None:
        """Report one raw input on which the two differ."""
        parts = [part for part in (difference.description, explanation.description) if part]
        if not parts:
            parts = ["the values differ in no way that is usual"]
        description = "; ".join(parts) + difference.size
        finding = Finding(
            code="preprocessing",
            what=f"on {label} the deployment's preprocessing makes another tensor: {description}{outputs}",
            help=_HELP,
            counts=True,
        )
        self.findings.append(finding)
        evidence = f"on {label} {description}"
        residual = difference.relative
        if not explanation.description:
            evidence += "; no usual mistake explains it"
        if explanation.proven:
            evidence = f"on {label} the model's own preprocessing, changed so, makes what the deployment makes: {explanation.description}"
            residual = explanation.residual
        cause = Cause(
            code="preprocessing",
            title=_TITLE,
            proven=explanation.proven,
            evidence=f"{evidence}{outputs}",
            before=difference.relative / _ROUNDING,
            after=residual / _ROUNDING,
        )
        self.causes = sorted([*self.causes, cause], key=lambda c: not c.proven)


def _find_difference(own: Sequence[Array], deployed: Sequence[Array]) -> _Difference | None:
    """What differs; None if nothing does."""
    if len(own) != len(deployed):
        return _Difference(
            description=f"it makes {len(deployed)} tensors, and the model's own makes {len(own)}"
        )
    for place, (want, got) in enumerate(zip(own, deployed, strict=True)):
        if want.shape != got.shape:
            own_type = f"{want.dtype}{list(want.shape)}"
            deployed_type = f"{got.dtype}{list(got.shape)}"
            return _Difference(
                place=place,
                description=f"it makes {deployed_type}, and the model's own makes {own_type}",
            )
        if not nearly_equal(want, got):
            gap = max_difference(want, got)
            relative = gap / largest_magnitude(want)
            return _Difference(place=place, size=f" (max abs {gap:.3g})", relative=relative)
    return None


def _explain_difference(difference: _Difference, prepared: _PreparedInput) -> Explanation:
    """The mistake that explains it, if one does, and the residual."""
    place = difference.place
    if place is None:
        return Explanation()

    def rerun(function: Preprocessing) -> Callable[..., Array]:
        def call(*changed: Any) -> Array:
            arguments = tuple(map(_convert_like, changed, prepared.raw))
            try:
                return _preprocess(function, arguments, "changed raw data")[place]
            except (UsageError, IndexError):
                # changed raw data may not suit the function: then this is not what happened
                return np.zeros(0)

        return call

    return explain(
        TensorPair(
            own=prepared.own[place],
            deployed=prepared.deployed[place],
            raw=prepared.raw,
            run_own=rerun(prepared.own_function),
            run_deployed=rerun(prepared.deployed_function),
        )
    )


def _convert_like(changed: Any, original: Any) -> Any:
    """A tensor if the raw input was one."""
    if hasattr(original, "new_tensor"):
        return original.new_tensor(changed)
    return changed


def _raw_inputs(subject: Subject) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The raw example, then the user's raw data: the files of a folder by their paths, or the items of an iterable."""
    yield "the example", _as_tuple(subject.raw)
    data = subject.data
    if isinstance(data, str | Path):
        for file in _data_files(Path(data)):
            yield f"`{file.name}`", (str(file),)
    elif data is not None:
        for index, item in enumerate(data):
            yield f"data[{index}]", _as_tuple(item)


def _as_tuple(item: Any) -> tuple[Any, ...]:
    if isinstance(item, tuple):
        return item
    return (item,)


def _data_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(item for item in path.iterdir() if item.is_file())
    return [require_regular(path, InputError)]


def _preprocess(
    function: Preprocessing,
    raw: tuple[Any, ...],
    label: str,
) -> list[Array]:
    """The tensors that a preprocessing computes from a raw input, as arrays."""
    positional, named = as_arguments(function(raw, label))
    leaves = tree.flatten([*positional, *named.values()])
    return [_as_array(leaf) for _, leaf in leaves]


def _as_array(leaf: Any) -> Array:
    from onnxproof.reference.torch_session import to_numpy

    array = to_numpy(leaf) if hasattr(leaf, "detach") else np.asarray(leaf)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array


def _compare_outputs(
    module: "TorchSession",
    session: Session,
    prepared: _PreparedInput,
) -> str:
    """What the difference does to the outputs, end to end."""
    if len(prepared.own) != len(prepared.deployed):
        return ""
    reference = module.run(dict(zip(module.input_names, prepared.own, strict=True)))
    try:
        candidate = session.run(dict(zip(session.input_names, prepared.deployed, strict=True)))
    except Exception as why:  # any runtime, any error: it is an answer
        return f"; the file refuses it ({type(why).__name__})"
    gaps = [
        max_difference(want, got)
        for want, got in zip(reference, candidate, strict=False)
        if want is not None and got is not None and want.shape == got.shape
    ]
    if not gaps:
        return "; the answers have other shapes"
    return f"; the answers are {max(gaps):.3g} apart"
