"""A remedy applied: the graph that the proven cause calls for, verified from scratch; several causes one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnxproof.diagnosis import causes
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.diagnose import diagnose, workbench
from onnxproof.diagnosis.locate import Scene
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import onnx_file
from onnxproof.results import Cause, Fix, Location, OutputInfo, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system import temporary
from onnxproof.system.deadline import Deadline

if TYPE_CHECKING:
    from onnxproof.verification.run import Run

_MOST = 4
_BAD = (Verdict.DRIFT, Verdict.DIVERGED)
_RANK = (Verdict.FAITHFUL, Verdict.DRIFT, Verdict.DIVERGED, Verdict.VACUOUS, Verdict.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What came of mending: the graph (or the optimizers to disable), and the verdict on it from scratch."""

    model: onnx.ModelProto | None
    options: tuple[str, ...]
    verdict: Verdict
    causes: tuple[Cause, ...] = ()
    """Every cause that was removed, in the order in which it was found."""
    proof: Proof
    """The proof of the mended file; the given one where there was nothing to mend."""
    better: bool = False
    """True when the verdict is better than before, or the error a tenth of it."""


def mend(run: "Run", proof: Proof) -> Mended:
    """Apply the remedy of the first cause, verify; while the verdict is bad, diagnose the mended file and go on."""
    model: onnx.ModelProto | None = None
    options: tuple[str, ...] = ()
    removed: list[Cause] = []
    first = proof
    with temporary.Folder() as folder:
        for turn in range(_MOST):
            found = next(_remedies(run, proof, Path(folder), Deadline.after(run.budget_s)), None)
            if found is None:
                break
            cause, tried = found
            removed.append(cause)
            model, options = tried.model or model, (*options, *tried.options)
            run = _again(run, model, options, Path(folder) / f"mended-{turn}.onnx")
            proof = run.prove()
            if proof.verdict not in _BAD or options:
                break
            proof = diagnose(proof, run)
    return Mended(
        model=model,
        options=options,
        verdict=proof.verdict,
        causes=_joined(removed, proof),
        proof=proof,
        better=_better(first, proof),
    )


def _again(
    run: "Run", model: onnx.ModelProto | None, options: tuple[str, ...], path: Path
) -> "Run":
    """The same verification of the mended file, with a budget of its own."""
    from onnxproof.verification.run import Run as Again

    if model is not None:
        onnx.save(model, path)
    return Again(
        run.subject,
        path if model is not None else run.path,
        run.backends,
        run.policy,
        budget_s=run.budget_s,
        seed=run.seed,
        disabled_optimizers=options,
        explained=True,
    )


def _joined(found: list[Cause], proof: Proof) -> tuple[Cause, ...]:
    """Causes that were only likely one by one are proven together, when the file without all of them is faithful."""
    if proof.verdict is not Verdict.FAITHFUL:
        return tuple(found)
    return tuple(
        replace(
            cause,
            proven=True,
            fix=replace(cause.fix, verdict=Verdict.FAITHFUL) if cause.fix is not None else None,
        )
        for cause in found
    )


def _better(before: Proof, after: Proof) -> bool:
    if after is before or after.verdict is Verdict.ERROR:
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


def _remedies(
    run: "Run", proof: Proof, folder: Path, deadline: Deadline
) -> Iterator[tuple[Cause, Tried]]:
    """The remedy of the first cause that has one; failing that, of the first of several faults."""
    where, scene = proof.location, proof.scene
    if where is None or scene is None:
        return
    bench = workbench(scene, where, proof, run, deadline)
    for cause in proof.causes:
        tried = _retry(bench, cause) if cause.proven else None
        if tried is not None and (tried.model is not None or tried.options):
            yield cause, tried
            return
    if not any(cause.proven for cause in proof.causes):
        yield from _at_the_front(run, proof, scene, where, folder, deadline)


def _retry(bench: Workbench, cause: Cause) -> Tried | None:
    """The hypothesis behind a cause, tried again to have what it made; a code may be another file's finding."""
    known = causes.codes()
    for code in sorted(known, key=lambda code: code != cause.code):
        tried = known[code].test(bench)
        if isinstance(tried, Tried) and (tried.code or code) == cause.code and tried.proven:
            return tried
    return None


def _at_the_front(
    run: "Run", proof: Proof, scene: Scene, where: Location, folder: Path, deadline: Deadline
) -> Iterator[tuple[Cause, Tried]]:
    """Several faults at once: nothing mends the outputs alone, so the first nodes are tried on their own values, whose truth is known."""
    order = {
        node.name or node.output[0]: place for place, node in enumerate(scene.file.model.graph.node)
    }
    known = sorted(
        (s for s in where.suspects if s.node in order and s.node in scene.counterparts),
        key=lambda s: order[s.node],
    )
    for suspect in known[:_MOST]:
        true = scene.fetch(scene.counterparts[suspect.node].place)
        if true is None:
            continue
        model = onnx.load(scene.path)
        outputs = list(model.graph.output)
        value = model.graph.node[order[suspect.node]].output[0]
        _look_at(model, [onnx.ValueInfoProto(name=value)])
        path = folder / f"front-{order[suspect.node]}.onnx"
        onnx.save(model, path)
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
            where,
            nodes=(suspect.node,),
            suspects=(suspect,),
            module=suspect.module,
            source=suspect.source,
        )
        found = _first(workbench(narrowed, alone, proof, run, deadline))
        if found is not None and found[1].model is not None:
            _look_at(found[1].model, outputs)
            yield found
            return


def _look_at(model: onnx.ModelProto, outputs: list[onnx.ValueInfoProto]) -> None:
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def _first(bench: Workbench) -> tuple[Cause, Tried] | None:
    for code, hypothesis in causes.codes().items():
        try:
            tried = hypothesis.test(bench)
        except (OnnxproofError, ValueError, KeyError, TypeError, IndexError):
            continue
        if isinstance(tried, Tried) and tried.proven and tried.model is not None:
            fix = Fix(kind=tried.fix.kind, what=tried.fix.what) if tried.fix is not None else None
            return Cause(
                code=tried.code or code,
                title=hypothesis.TITLE,
                proven=False,
                evidence=tried.evidence,
                before=bench.noise_ratio(bench.before),
                after=bench.noise_ratio(tried.after),
                fix=fix,
            ), tried
    return None
