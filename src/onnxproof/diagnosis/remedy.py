"""Mending: the graph that a proven cause calls for, verified from scratch; several causes one after the other."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx

from onnxproof.diagnosis import causes, isolated_trials
from onnxproof.diagnosis.causes import Hypothesis
from onnxproof.diagnosis.counterfactuals.workbench import Means, Tried, Workbench
from onnxproof.diagnosis.diagnose import Diagnosis, diagnose, open_workbench
from onnxproof.diagnosis.isolated_trials import Finished
from onnxproof.diagnosis.locate import Located, Scene
from onnxproof.diagnosis.reverify import within_budget_of
from onnxproof.onnxmodel import large_models, onnx_file
from onnxproof.results import Cause, Fix, OutputInfo, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system import temporary, writing
from onnxproof.system.deadline import Deadline
from onnxproof.verification.evidence import Evidence, Request
from onnxproof.verification.run import run

_MOST = 4
_BAD = (Verdict.DRIFT, Verdict.DIVERGED)
_RANK = (Verdict.FAITHFUL, Verdict.DRIFT, Verdict.DIVERGED, Verdict.VACUOUS, Verdict.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What came of mending: the graph (or the optimizers to disable), and the verdict on it from scratch."""

    model: onnx.ModelProto | None = field(repr=False)
    options: tuple[str, ...]
    verdict: Verdict
    causes: tuple[Cause, ...] = ()
    """Every cause that was removed, in the order in which it was found."""
    proof: Proof
    """The proof of the mended file; the given one where there was nothing to mend."""
    better: bool = False
    """True when the verdict is better than before, or the error a tenth of it."""
    path: Path | None = None
    """Where the mended file was written; None where it was not."""

    @property
    def worth_writing(self) -> bool:
        """True for a mended graph that is faithful, or better than before."""
        return self.model is not None and (self.verdict is Verdict.FAITHFUL or self.better)

    def written_to(self, path: Path) -> "Mended":
        """Write the mended graph; it appears whole or not at all."""
        assert self.model is not None, "there is no graph to write"
        with writing.replace_file(path, what="the mended file") as draft:
            large_models.save(self.model, draft)
        return replace(self, path=path)


def mend(evidence: Evidence, diagnosis: Diagnosis, means: Means) -> Mended:
    """Apply the fix of the first cause and verify; while the verdict is bad, diagnose the mended file and go on."""
    model: onnx.ModelProto | None = None
    options: tuple[str, ...] = ()
    removed: list[Cause] = []
    first = diagnosis.added_to(evidence.proof)
    with temporary.Folder() as folder:
        for turn in range(_MOST):
            deadline = Deadline.after(evidence.request.budget_s)
            attempt = _Attempt(evidence, diagnosis, means, Path(folder), deadline)
            fix = next(attempt.fixes(), None)
            if fix is None:
                break
            cause, tried = fix
            removed.append(cause)
            model, options = tried.model or model, (*options, *tried.options)
            path = Path(folder) / f"mended-{turn}.onnx"
            evidence = run(request_of_mended(evidence.request, model, options, path))
            diagnosis = Diagnosis()
            if evidence.proof.verdict not in _BAD or options:
                break
            policy, reverify = evidence.request.policy, within_budget_of(evidence)
            diagnosis = diagnose(evidence, policy, reverify, means)
    proof = diagnosis.added_to(evidence.proof) if removed else first
    return Mended(
        model=model,
        options=options,
        verdict=proof.verdict,
        causes=_proven_together(removed, proof),
        proof=proof,
        better=removed != [] and _is_better(first, proof),
    )


def request_of_mended(
    request: Request, model: onnx.ModelProto | None, options: tuple[str, ...], path: Path
) -> Request:
    """The same verification of the mended file, with a budget of its own."""
    if model is None:
        path = request.path
    else:
        large_models.save(model, path)
    return replace(
        request, path=path, only=(), explained=True, disabled_optimizers=options, progress=None
    )


def _proven_together(removed: list[Cause], proof: Proof) -> tuple[Cause, ...]:
    """Causes that were only likely one by one are proven together, when the file without all of them is faithful."""
    if proof.verdict is not Verdict.FAITHFUL:
        return tuple(removed)
    return tuple(_proven(cause) for cause in removed)


def _proven(cause: Cause) -> Cause:
    if cause.fix is None:
        return replace(cause, proven=True)
    return replace(cause, proven=True, fix=replace(cause.fix, verdict=Verdict.FAITHFUL))


def _is_better(before: Proof, after: Proof) -> bool:
    if after.verdict is Verdict.ERROR:
        return False
    if after.verdict is not before.verdict:
        return _RANK.index(after.verdict) < _RANK.index(before.verdict)
    old, new = before.worst, after.worst
    return (
        old is not None
        and new is not None
        and not new.lost
        and new.noise_ratio < old.noise_ratio / 10
    )


class _Attempt:
    """One turn of mending: the fix of a cause that was proven, tried again to have the model that it made."""

    def __init__(
        self,
        evidence: Evidence,
        diagnosis: Diagnosis,
        means: Means,
        folder: Path,
        deadline: Deadline,
    ) -> None:
        self._evidence, self._diagnosis, self._means = evidence, diagnosis, means
        self._folder, self._deadline = folder, deadline

    def fixes(self) -> Iterator[tuple[Cause, Tried]]:
        """The fix of the first cause that has one; failing that, of the first of several faults."""
        located, scene = self._diagnosis.located, self._diagnosis.scene
        if located is None or scene is None:
            return
        workbench = self._workbench(scene, located)
        for cause in self._diagnosis.causes:
            tried = _retry(workbench, cause) if cause.proven else None
            if tried is not None and (tried.model is not None or tried.options):
                yield cause, tried
                return
        if not any(cause.proven for cause in self._diagnosis.causes):
            yield from self._at_first_suspects(scene, located)

    def _workbench(self, scene: Scene, located: Located) -> Workbench:
        policy = self._evidence.request.policy
        return open_workbench(
            self._evidence, policy, scene, located, means=self._means, deadline=self._deadline
        )

    def _at_first_suspects(self, scene: Scene, located: Located) -> Iterator[tuple[Cause, Tried]]:
        """Several faults at once: nothing mends the outputs alone, so the first nodes are tried on their own values, whose truth is known."""
        location = located.location
        nodes = scene.file.model.graph.node
        order = {node.name or node.output[0]: place for place, node in enumerate(nodes)}
        known = [s for s in location.suspects if s.node in order and s.node in located.counterparts]
        known.sort(key=lambda suspect: order[suspect.node])
        for suspect in known[:_MOST]:
            true = located.fetch(located.counterparts[suspect.node].place)
            if true is None:
                continue
            model = onnx.load(scene.path)
            outputs = list(model.graph.output)
            value = model.graph.node[order[suspect.node]].output[0]
            _set_outputs(model, [onnx.ValueInfoProto(name=value)])
            path = self._folder / f"front-{order[suspect.node]}.onnx"
            large_models.save(model, path)
            port = OutputInfo(name=value, dtype=str(true.dtype), shape=true.shape, onnx_name=value)
            narrowed = replace(
                scene,
                path=path,
                file=onnx_file.read(path),
                signature=replace(scene.signature, outputs=(port,)),
                truth=[true],
                dtypes=[true.dtype],
            )
            alone = replace(
                location,
                nodes=(suspect.node,),
                suspects=(suspect,),
                module=suspect.module,
                source=suspect.source,
            )
            fix = _first_fix(self._workbench(narrowed, replace(located, location=alone)))
            if fix is not None and fix[1].model is not None:
                _set_outputs(fix[1].model, outputs)
                yield fix
                return


def _retry(bench: Workbench, cause: Cause) -> Tried | None:
    """The hypothesis behind a cause, tried again to have what it made; a code may be another file's finding."""
    known = causes.codes()
    matching_first = sorted(known, key=lambda code: code != cause.code)
    hypotheses = {code: known[code] for code in matching_first}
    with closing(_try_in_turn(bench, hypotheses)) as trials:
        for code, tried in trials:
            if (tried.code or code) == cause.code and tried.proven:
                return tried
    return None


def _set_outputs(model: onnx.ModelProto, outputs: list[onnx.ValueInfoProto]) -> None:
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def _first_fix(bench: Workbench) -> tuple[Cause, Tried] | None:
    hypotheses = causes.codes()
    with closing(_try_in_turn(bench, hypotheses)) as trials:
        for code, tried in trials:
            if tried.proven and tried.model is not None:
                return _likely_cause(bench, code, hypotheses[code].TITLE, tried), tried
    return None


def _likely_cause(bench: Workbench, code: str, title: str, tried: Tried) -> Cause:
    fix = Fix(kind=tried.fix.kind, what=tried.fix.what) if tried.fix is not None else None
    return Cause(
        code=tried.code or code,
        title=title,
        proven=False,
        evidence=tried.evidence,
        before=bench.noise_ratio(bench.before),
        after=bench.noise_ratio(tried.error_left),
        fix=fix,
    )


def _try_in_turn(
    bench: Workbench, hypotheses: Mapping[str, Hypothesis]
) -> Generator[tuple[str, Tried], None, None]:
    """What the hypotheses that apply give, each tried in a process that it may end."""
    trials = {code: partial(one.test, bench) for code, one in hypotheses.items()}
    with closing(isolated_trials.run(trials, bench.deadline)) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome, Finished) and isinstance(outcome.value, Tried):
                yield outcome.name, outcome.value
