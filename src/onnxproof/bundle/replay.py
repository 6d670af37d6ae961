"""Replay a bundle on the runtimes of this machine; PyTorch is not needed.

1. Open the bundle, and the model that it was made for.
2. Open the model on every backend.
3. Run the stored cases, and roll the stored rollouts; measure each answer by the stored truth and noise.
4. Compare the backends with each other, and judge.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnxproof.bundle import rolling, signing
from onnxproof.bundle.cases import StoredCase
from onnxproof.bundle.comparison import Comparer, simulation_kind
from onnxproof.bundle.manifest import BundleError
from onnxproof.bundle.read import Bundle, open_bundle
from onnxproof.errors import BackendError, InputError
from onnxproof.numerics.measure import GapLabel
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import Policy, ReplayOptions
from onnxproof.results import CrossCheck, Finding, Gap, Note, Rollout, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes import Session, use_serving
from onnxproof.runtimes.session.execution import Candidate, Clock
from onnxproof.system import temporary
from onnxproof.system.environment import environment
from onnxproof.verification import consensus
from onnxproof.verification.case_runner import Outcome
from onnxproof.verification.notes import Refusal, note_of, refused_gaps
from onnxproof.verification.observations import Observations
from onnxproof.verification.open_backends import Fleet
from onnxproof.verification.progress import Progress, Report
from onnxproof.verification.quantized import Fidelity

_OTHER_MODEL = "other-model"
"""The code of the error, and of the finding where it is allowed."""
_OF_THE_REFERENCE = ("torch", "onnxruntime", "machine", "processor", "system", "time")
"""Facts about where the bundle was made that a reader of the new proof needs."""


def replay(path: Path, options: ReplayOptions, progress: Report | None = None) -> Proof:
    """The proof of the model on these backends, by the bundle's cases.

    Raises:
        BundleError: the bundle is damaged, or the model is another one.
    """
    with open_bundle(path) as bundle, use_serving(options.serving):
        if options.verify is not None:
            signing.check(bundle, options.verify)
        with model_of(bundle, options.model) as file:
            return Replay(bundle, file, options, progress).run(options.backends)


class Replay:
    """One replay: what it opened, what it has observed so far."""

    def __init__(
        self, bundle: Bundle, path: Path, options: ReplayOptions, progress: Report | None
    ) -> None:
        policy = _policy(bundle, options)
        self._bundle = bundle
        self._path = path
        self._policy = policy
        self._backends: tuple[str, ...] = ()
        self._elsewhere = False
        self._rollouts: list[Rollout] = []
        self._options = options
        self._progress = progress
        self._signature = bundle.manifest.signature
        self._clock = Clock()
        self._file = onnx_file.read(path)
        self._findings = _other_model(bundle, self._file, options)
        self._observed = Observations(policy)
        self._fidelity = self._open_fidelity()
        self._comparer = Comparer(
            policy=policy,
            usual_scale=bundle.manifest.usual_scale,
            half=bundle.manifest.half,
            fidelity=self._fidelity,
        )

    def run(
        self, backends: Sequence[str], open_elsewhere: Callable[[str], Session] | None = None
    ) -> Proof:
        """Take the steps one by one; `open_elsewhere` gives sessions that run on another machine, once for every case."""
        _require_known(self._bundle, self._options.only)
        self._backends = tuple(backends)
        self._elsewhere = open_elsewhere is not None
        if open_elsewhere is None:
            fleet = Fleet(backends, self._path, self._signature, self._clock, lambda _: None)
        else:
            fleet = Fleet(
                backends,
                self._path,
                self._signature,
                self._clock,
                open_elsewhere,
                check=lambda _: None,
            )
        telling: StoredCase | None = None
        try:
            for stored in self._bundle.cases(self._options.only):
                self._announce(stored.case.name)
                self._run_case(fleet, stored)
                if telling is None or self._observed.witness is stored.case:
                    telling = stored
                if fleet.done:
                    break
            self._roll_out(fleet)
            cross = self._compare_backends(fleet, telling)
        finally:
            self._findings += fleet.findings()
            fleet.close()
        return self._proof(cross)

    def _open_fidelity(self) -> Fidelity | None:
        kind = simulation_kind(self._bundle.manifest.quantization)
        if kind is None or not self._file.quantized:
            return None
        return Fidelity(self._file, self._signature, self._clock, kind)

    def _announce(self, case: str) -> None:
        if self._progress is None:
            return
        done, elapsed = len(self._observed.sizes), self._clock.elapsed
        self._progress(
            Progress(case=case, done=done, elapsed=elapsed, budget=self._bundle.proof.budget_s)
        )

    # Step 3

    def _run_case(self, fleet: Fleet, stored: StoredCase) -> None:
        outcome = Outcome()
        for candidate in list(fleet.active):
            gaps, notes = self._compare(stored, candidate)
            outcome.gaps += gaps
            outcome.notes += notes
        if not self._elsewhere:
            fleet.note(outcome.gaps, self._policy)
        self._observed.add(stored.case, outcome)

    def _compare(self, stored: StoredCase, candidate: Candidate) -> tuple[list[Gap], list[Note]]:
        case = stored.case
        names = [output.name for output in self._signature.outputs]
        has_empty_input = any(array.size == 0 for array in case.inputs.values())
        try:
            outputs = candidate.run(case.inputs, isolated=has_empty_input and not self._elsewhere)
        except BackendError as why:
            answers = [output.reference for output in stored.outputs]
            refusal = Refusal(case=case, backend=candidate.backend, why=why.what)
            return refused_gaps(refusal, names, answers)
        simulated = None
        if self._fidelity is not None:
            simulated = self._fidelity.simulate(case)
        gaps = []
        notes = []
        for place, output in enumerate(outputs):
            if stored.outputs[place].unread:
                continue
            label = GapLabel(
                case=case.name,
                group=case.group,
                backend=candidate.backend,
                output=names[place],
            )
            gap = self._comparer.compare(stored, place, label, output, simulated)
            gaps.append(gap)
            if output is not None and (gap.domain is not None or gap.odd):
                notes.append(note_of(gap, stored.outputs[place].reference, output))
        return gaps, notes

    def _roll_out(self, fleet: Fleet) -> None:
        """The rollouts of the bundle, each candidate in its own loop."""
        for stored in self._bundle.rollouts(self._options.only):
            self._announce(stored.schedule)
            for candidate in list(fleet.active):
                rollout, gaps = rolling.roll(
                    stored, candidate, self._signature, self._policy, elsewhere=self._elsewhere
                )
                self._rollouts.append(rollout)
                self._observed.add_rollout([replace(gap, confirmed=True) for gap in gaps])

    # Step 4

    def _compare_backends(self, fleet: Fleet, telling: StoredCase | None) -> CrossCheck | None:
        if len(fleet.everyone) < 2 or telling is None or self._elsewhere:
            return None
        reference = [output.reference for output in telling.outputs]
        truth = [
            output.reference if output.truth is None else output.truth for output in telling.outputs
        ]
        question = consensus.Question(case=telling.case, reference=reference, truth=truth)
        return consensus.compare(
            fleet.everyone,
            question,
            self._observed.gaps,
            self._path,
            self._signature,
            self._policy,
        )

    def _proof(self, cross: CrossCheck | None) -> Proof:
        bundle, observed = self._bundle, self._observed
        made = bundle.manifest.environment
        carried = [finding for finding in bundle.proof.findings if finding.voids or finding.doubts]
        findings = (*carried, *self._findings, self._replayed())
        verdict = judging.judge(
            observed.gaps, self._policy, notes=observed.notes, findings=findings
        )
        proof = Proof(
            verdict=verdict,
            subject=bundle.manifest.subject,
            candidate=str(self._named_path()),
            backends=self._backends,
            gaps=tuple(observed.gaps),
            notes=tuple(observed.first_notes()),
            findings=findings,
            signature=self._signature,
            policy=self._policy,
            sizes=dict(observed.sizes),
            cross=cross,
            seed=bundle.proof.seed,
            budget_s=bundle.proof.budget_s,
            chosen=self._options.only,
            environment=environment()
            | {"opset": str(self._file.opset)}
            | {f"reference {name}": made[name] for name in _OF_THE_REFERENCE if name in made},
            hashes={"candidate": onnx_file.fingerprint(self._path), "bundle": bundle.digest},
            seconds={**self._clock.seconds, "total": self._clock.elapsed},
            passes=dict(self._clock.passes),
            half=bundle.manifest.half,
            witness=observed.witness,
            rollouts=tuple(self._rollouts),
        )
        return replace(proof, replay=self._replay_line(proof))

    @property
    def other_model(self) -> bool:
        """Whether the file is another than the one that the bundle was made for."""
        return any(finding.code == _OTHER_MODEL for finding in self._findings)

    def _named_path(self) -> Path:
        """The model as the user knows it: one that the bundle brought lies in a folder that is gone afterwards."""
        if self._options.model is None and self._bundle.manifest.model.included:
            return Path(self._bundle.manifest.model.name)
        return self._path

    def _replayed(self) -> Finding:
        told, all_cases = len(self._observed.sizes), len(self._bundle.manifest.cases)
        before = self._bundle.proof.verdict.value
        return Finding(
            code="replayed",
            what=f"{told} of {all_cases} cases of `{self._bundle.path.name}` were replayed, which was {before} where it was made",
            help="the reference's answers and its noise are those of the bundle",
        )

    def _replay_line(self, proof: Proof) -> str:
        worst = proof.worst
        if worst is None:
            return ""
        model = ""
        if self._options.model is not None:
            model = f" --model {shlex.quote(str(self._options.model))}"
        if self.other_model:
            model += " --allow-other-model"
        where = f"--backend {worst.backend}"
        if self._elsewhere:
            where = "--serve"
        bundle = shlex.quote(str(self._bundle.path))
        return f"onnxproof replay {bundle}{model} --case '{worst.case}' {where}"


def _policy(bundle: Bundle, options: ReplayOptions) -> Policy:
    if options.policy is None:
        return bundle.manifest.policy
    if isinstance(options.policy, Policy):
        return options.policy
    return options.policy(bundle.manifest.policy)


@contextmanager
def model_of(bundle: Bundle, model: Path | None) -> Iterator[Path]:
    """The model's path: the one that was given, the one that the bundle brings, or the one beside it."""
    beside = bundle.path.parent / bundle.manifest.model.name
    if model is not None:
        yield model
    elif bundle.manifest.model.included:
        with temporary.Folder() as folder:
            yield bundle.extract_model(folder)
    elif beside.is_file():
        yield beside
    else:
        raise BundleError(
            "model-missing",
            f"`{bundle.path.name}` does not bring its model, and there is no `{beside.name}` beside it",
            where=str(bundle.path),
            help="give it with `--model PATH`",
        )


def _other_model(bundle: Bundle, file: OnnxFile, options: ReplayOptions) -> list[Finding]:
    """Nothing for the model that was proven; for another one an error, or a finding where it is allowed."""
    if onnx_file.fingerprint(file.path) == bundle.manifest.model.fingerprint:
        return []
    what = f"`{file.path.name}` is not the file that the bundle was made for"
    if not options.allow_other_model:
        raise BundleError(
            _OTHER_MODEL,
            what,
            where=str(file.path),
            notes=[f"its hash should be {bundle.manifest.model.fingerprint}"],
            help="give the file that was proven, or say `--allow-other-model`",
        )
    help = "it is judged by the cases of another file, which may not look where this one is wrong"
    return [Finding(code=_OTHER_MODEL, what=what, help=help)]


def _require_known(bundle: Bundle, only: Sequence[str]) -> None:
    known = [record.name for record in bundle.manifest.cases]
    known += [record.name for record in bundle.manifest.rollouts]
    for name in only:
        if name not in known:
            raise InputError(
                "no-such-case",
                f"the bundle has no case `{name}`",
                where=str(bundle.path),
                notes=[f"it has {', '.join(known[:8])}" + ", ..." * (len(known) > 8)],
            )
