"""The whole way: subject, cases, runs, gaps, verdict; then, when the verdict is bad, where and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxproof.errors import BackendError, InputError, ModelError, OnnxproofError, Stopped
from onnxproof.inputs import generators, inference, training_statistics
from onnxproof.inputs.decision_points import Watch
from onnxproof.inputs.output_sizes import Sizing
from onnxproof.inputs.roles import confirm_roles
from onnxproof.inputs.search import again, climb, origin
from onnxproof.inputs.shrink import shrink
from onnxproof.inputs.space import Space
from onnxproof.inputs.user_data import UserData, opened
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy, Serving
from onnxproof.preprocessing import pipelines
from onnxproof.reference import pairing, subject
from onnxproof.reference.protocol import Oracle, open_oracle
from onnxproof.results import (
    Case,
    Coverage,
    CrossCheck,
    Domain,
    Dropped,
    Finding,
    Gap,
    Note,
    Signature,
    Verdict,
    judging,
)
from onnxproof.results.proof import Proof
from onnxproof.runtimes import Session, current, parse, served
from onnxproof.runtimes.session.execution import Candidate, Clock
from onnxproof.system.deadline import Deadline
from onnxproof.system.environment import environment
from onnxproof.verification import consensus, runtime_checks, void_outputs
from onnxproof.verification.budget import Budget, not_reached
from onnxproof.verification.case_runner import LOUDER, RERUNS, ReferenceRefused, Trial, Unconfirmed
from onnxproof.verification.coverage_floor import Floor
from onnxproof.verification.masked import Masks
from onnxproof.verification.masked import finding as masked_findings
from onnxproof.verification.open_backends import Fleet
from onnxproof.verification.quantized import open_fidelity

_PATIENCE = 1 / 6
"""Of the budget, after which two cases that differ beyond tolerance are enough: the verdict is known, and the user is waiting."""
_LARGE = 1 << 18
"""Elements of a case from which on its cost is feared to grow with the square."""
_SHARE_FOR_TRUST, _LEAST_FOR_TRUST = 0.1, 3.0
"""Of the budget, and seconds at least: time in which the runtimes themselves are examined."""
_TRUST_PASSES, _ONE_CASE = 3, 2
"""Forward passes of the reference that the first questions to a runtime need (two answers and a truth), and that one case needs."""
_PATIENT = 4.0
"""Times the reference's own pass that a runtime has at least, whatever the time limit says."""
_LEAST_FOR_GRAPH = 1.0
_SHARE_FOR_SEARCH = 0.3
_SEARCHED = ("shapes", "masks", "ids", "distinct", "search")
"""Groups from which a search may start: from extreme values it only climbs to more extreme ones."""
_NATURAL = ("ordinary", "data", "shapes", "lengths")
"""Groups whose values are as they come: among equal or extreme values a wrong node may look right by accident."""
_DOUBTFUL, _SHARE_FOR_GRAPH = 2.0, 0.05
"""Times the noise from which on the graph is asked in float64, and the share of the budget that one answer may take."""
_OTHERS = 5
"""Cases that differ and are kept, so that an explanation can be tried on more than one."""
_NOTES_A_GROUP = 3
_WATCHED = 48
"""Cases on which the graph's decision points are probed, and tries to steer towards a way that none of them took."""
_STEERED = 40
_EXPLAINING = Finding(
    code="explaining",
    what="the explanation is not finished: the verdict stands, and the node and the cause are still looked for",
    help="where this is the last word, the process ended before it was done; `--no-explain` leaves it out",
)
"""In the proof that is handed on before explaining begins, and not in the one after it."""
_DATA_OWED = 8
"""Cases of the user's data that a quantized file is judged by at least, however short the time."""
_DATA_LOOKED_AT = 16
"""Cases of the user's data that are held against the model's own statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a progress bar shows."""

    case: str
    done: int
    elapsed: float
    budget: float
    step: str = "cases"
    proof: Proof | None = None
    """The proof as it stands when explaining begins: whoever wants it safe keeps it now."""


Report = Callable[[Progress], None]


def verify(
    model: Any,
    onnx: str | Path,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    backends: Sequence[str] = ("ort",),
    policy: Policy | None = None,
    budget_s: float = 60.0,
    seed: int = 0,
    explain: bool = True,
    only: Sequence[str] = (),
    serving: Serving | None = None,
    progress: Report | None = None,
    profile: bool = False,
    pipeline: Any = None,
) -> Proof:
    """Prove that an ONNX file says what a PyTorch module says; `profile` also measures the noise along a graph that is faithful.

    `pipeline` is the deployment's own preprocessing, compared with `Subject(preprocess=...)` on raw inputs; the file takes what it makes.

    >>> import torch, onnxproof
    >>> module, x = torch.nn.Linear(4, 2).eval(), torch.randn(3, 4)
    >>> proof = onnxproof.export(module, (x,), "linear.onnx")      # doctest: +SKIP
    >>> onnxproof.verify(module, "linear.onnx", (x,)).verdict      # doctest: +SKIP
    <Verdict.FAITHFUL: 'faithful'>
    """
    found = subject.load(
        model,
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        data=data,
        inside=pipeline is None,
        otherwise=lambda: _example_for(Path(onnx)),
    )
    if pipeline is not None:
        piped, bare = (
            pipelines.compare(found, pipeline, Path(onnx)),
            replace(found, data=None, preprocess=None),
        )
        return piped.add_to(
            verify(
                bare,
                onnx,
                backends=backends,
                policy=policy,
                budget_s=budget_s,
                seed=seed,
                explain=explain,
                only=only,
                serving=serving,
                progress=with_proofs(progress, piped.add_to),
                profile=profile,
            )
        )
    run = Run(
        found,
        Path(onnx),
        tuple(backends),
        policy or Policy(),
        budget_s=budget_s,
        seed=seed,
        only=tuple(only),
        progress=progress,
        explained=explain,
    )
    with served(serving):
        proof = run.prove()
        if explain and (
            proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED) or run.noted is not None
        ):
            proof = _explained(proof, run)
        return _profiled(proof, run) if profile and proof.profile is None and proof.gaps else proof


def with_proofs(progress: Report | None, change: Callable[[Proof], Proof]) -> Report | None:
    """The same observer for whoever adds to a proof: the early one is told with what the final one will have."""
    if progress is None:
        return None
    return lambda state: progress(
        state if state.proof is None else replace(state, proof=change(state.proof))
    )


def _profiled(proof: Proof, run: "Run") -> Proof:
    from onnxproof.diagnosis.diagnose import profiled

    run.tell("nodes")
    return profiled(proof, run)


def _example_for(onnx: Path) -> Any:
    from onnxproof.reference.graph import example_for

    return example_for(onnx)


def _explained(proof: Proof, run: "Run") -> Proof:
    """Where and why; a failure to explain is said, and takes nothing from the verdict."""
    from onnxproof.diagnosis.diagnose import diagnose

    run.tell(
        "looking for the node and the cause",
        replace(proof, findings=(*proof.findings, _EXPLAINING)),
    )
    try:
        return diagnose(proof, run)
    except KeyboardInterrupt as why:
        stopped = Finding(
            code="unexplained",
            what="stopped by the user while the node and the cause were looked for",
            help="the verdict stands",
        )
        raise Stopped(replace(proof, findings=(*proof.findings, stopped))) from why
    except Exception as why:
        failed = Finding(
            code="unexplained",
            what=f"the fault could not be located: {type(why).__name__}: {why}",
            help="please report it, with the replay line",
        )
        return replace(proof, findings=(*proof.findings, failed))


def diff(
    first: str | Path,
    second: str | Path,
    example_inputs: Any = None,
    *,
    data: Any = None,
    backends: Sequence[str] = ("ort",),
    policy: Policy | None = None,
    budget_s: float = 60.0,
    seed: int = 0,
    explain: bool = True,
    only: Sequence[str] = (),
    serving: Serving | None = None,
    progress: Report | None = None,
    profile: bool = False,
) -> Proof:
    """Prove that two ONNX files say the same; the first is the reference, and PyTorch is not needed."""
    if Path(first).suffix != ".onnx":
        raise InputError(
            "not-onnx",
            f"`{first}` is not an .onnx file",
            help="`onnxproof verify` takes a PyTorch reference",
        )
    return verify(
        str(first),
        second,
        example_inputs,
        data=data,
        backends=backends,
        policy=policy,
        budget_s=budget_s,
        seed=seed,
        explain=explain,
        only=only,
        serving=serving,
        progress=progress,
        profile=profile,
    )


class Run:
    """One verification: what it opened, what it has measured so far."""

    def __init__(
        self,
        found: subject.Subject,
        path: Path,
        backends: tuple[str, ...],
        policy: Policy,
        *,
        budget_s: float,
        seed: int,
        only: tuple[str, ...] = (),
        progress: Report | None = None,
        disabled_optimizers: tuple[str, ...] = (),
        explained: bool = False,
    ) -> None:
        self.subject, self.path, self.backends, self.policy = found, path, backends, policy
        self.budget_s, self.seed, self._only, self._progress = budget_s, seed, only, progress
        self._disabled = disabled_optimizers
        self.calibration: Any = None
        """The data that a quantized candidate was calibrated on, for whoever explains."""
        self.clock = Clock()
        self.budget = Budget(budget_s, self.clock, explained=explained)
        self.file = onnx_file.read(path)
        onnx_file.require_tensors(self.file)
        self.gaps: list[Gap] = []
        self.notes: list[Note] = []
        self.findings: list[Finding] = []
        self.dropped: list[Dropped] = []
        self.witness: Case | None = None
        self.noted: Case | None = None
        """The first case with a note that an order of equals, NaN or infinity explains."""
        self.bad: list[Case] = []
        """A few plain cases that differ: what explains the witness must explain these."""
        self._witness_key: tuple[Any, ...] = ()
        self._best: list[tuple[float, Case]] = []
        self._bad: dict[str, Verdict] = {}
        self._largest = (0, 0.0)
        """Elements and seconds of the largest case so far."""
        self.sizes: dict[str, dict[str, int]] = {}
        """The sizes of every case that was compared, for whoever asks which size goes wrong."""
        self.complete = True
        self.unconfirmed: list[str] = []
        """Cases that differ, and for which no time was left to measure the noise again."""
        self.floor = Floor(())
        self._trial: Trial | None = None
        self.coverage = Coverage()
        self.cross: CrossCheck | None = None
        self._begun = 0.0

    def prove(self) -> Proof:
        """Run the cases within the budget and judge; what was measured before an error is kept."""
        error = ""
        self.subject = replace(
            self.subject, data=opened(self.subject.data)
        )  # a file that isn't there is told before anything runs
        self.data = UserData(self.subject.data)
        self.oracle: Oracle = open_oracle(self.subject, self.clock)
        self.signature = self._pair()
        opening = self.clock.elapsed
        patient = replace(
            current(), time_s=max(current().time_s, _PATIENT * self.budget.pass_s)
        )  # a file of a slow module may be slow
        with served(patient):
            self.fleet = Fleet(self.backends, self.path, self.signature, self.clock, self._session)
        self.candidates: list[Candidate] = self.fleet.active
        self.budget.extend(self.clock.elapsed - opening)
        try:
            with served(patient):
                self._cases()
                self._compare_backends()
        except (BackendError, ModelError) as why:
            if isinstance(why, ImportError) or not self.gaps:
                raise
            error = why.render()
        except KeyboardInterrupt as why:
            if not self.gaps:
                raise
            self.complete = False
            raise Stopped(
                self._proof(
                    f"error[interrupted]: stopped by the user after {len(self.sizes)} cases: there is no verdict"
                )
            ) from why
        finally:
            self.findings += self.fleet.findings()
            self.fleet.close()
        return self._proof(error)

    def tell(self, step: str, proof: Proof | None = None) -> None:
        """Say what comes after the cases."""
        if self._progress:
            self._progress(
                Progress(
                    case="",
                    done=len(self.sizes),
                    elapsed=self.clock.elapsed,
                    budget=self.budget_s,
                    step=step,
                    proof=proof,
                )
            )

    def _compare_backends(self) -> None:
        """Several backends on the case that tells them apart: the witness of a fault, or the example."""
        if len(self.fleet.everyone) > 1 and self.gaps:
            if not self.budget.affords(2):
                self.findings.append(not_reached("the backends were not set beside each other"))
                return
            case = self.witness or Case(
                name="example",
                group="ordinary",
                about="the example inputs",
                inputs=self.oracle.example(),
            )
            self.cross = consensus.compare(
                self.fleet.everyone,
                self.oracle,
                case,
                self.gaps,
                self.path,
                self.signature,
                self.policy,
                limit_s=max(self.budget.end.left, self.budget.pass_s),
            )

    def _session(self, backend: str) -> Session | None:
        """A session with some optimizers off, for trying a remedy; None leaves it to the backend."""
        if self._progress:
            self._progress(
                Progress(
                    case=f"opening {backend}",
                    done=0,
                    elapsed=self.clock.elapsed,
                    budget=self.budget_s,
                )
            )
        if not self._disabled or parse(backend)[0] != "ort":
            return None
        from onnxproof.runtimes import ort

        return ort.open(self.path, parse(backend)[1], disabled_optimizers=self._disabled)

    def _pair(self) -> Signature:
        example = self.oracle.example()
        try:
            inputs, outputs = self.oracle.leaves(example)
        except OnnxproofError:
            raise
        except Exception as why:  # the user's own module on the user's own example
            raise InputError(
                "example-refused",
                f"the reference refuses the example inputs: {type(why).__name__}: {why}",
                help="call the module with them by itself; inputs are a tuple, or a dict of keyword inputs",
            ) from why
        merged, findings = pairing.merge(
            inputs,
            outputs,
            self.file,
            tree=self.oracle.tree,
            dynamic_shapes=self.subject.dynamic_shapes,
        )
        self.findings += findings
        return merged

    def _cases(self) -> None:
        space = inference.make_space(
            self.signature,
            self.oracle.example(),
            self.file,
            seed=self.seed,
            domains=self.policy.domains,
            data=self.data.stream(self.signature.inputs),
            parameter=self.oracle.parameter,
        )
        self._sizing = Sizing(self.file, self.signature, self.oracle.example())
        space = confirm_roles(self._learned(space), self.oracle.run)
        self.signature = inference.describe_dims(space)
        quantized = open_fidelity(self.subject, self.oracle, self.file, self.signature, self.clock)
        trial = Trial(
            self.oracle,
            self.candidates,
            self.signature,
            self.policy,
            half=self.file.half,
            seed=self.seed,
            op_types=self.file.op_types,
            fidelity=quantized,
            affords=self.budget.affords_reruns,
            masks=Masks(space, self.oracle.run),
        )
        self._trial, self.floor = (
            trial,
            Floor([dim.name for dim in space.free_dims], chosen=bool(self._only)),
        )
        watch = Watch(self.file, self.signature, self.clock)
        if not self._only and not self._disabled:
            self._examine()
        self._begun = self.budget.elapsed
        served_data: list[Mapping[str, Any]] = []
        for case in self._chosen(self._planned(space, watch)):
            if (self.gaps or self.dropped) and self._enough():  # one case at least
                self.complete = False
                if not self._owes_data(case):
                    break
                if case.group != "data":
                    continue
            elif (
                self.gaps
                and self.floor.skips(case, self._cases_end.left, self._dearest)
                and not self._owes_data(case)
            ):
                continue
            if (
                quantized is not None
                and case.group == "data"
                and len(served_data) < _DATA_LOOKED_AT
            ):
                served_data.append(case.inputs)
            if self._one(trial, case) is not None:
                self.floor.take(case)
                if len(self.sizes) <= _WATCHED and case.domain is None and not self.fleet.hung:
                    watch.look(case)
        self.complete &= not self.floor.skipped
        self.coverage = watch.coverage()
        said = (
            training_statistics.examine(self.subject, self.oracle, served_data)
            if served_data
            else training_statistics.DataCheck(asked=False)
        )
        if said.doubt:
            self.findings.append(
                training_statistics.finding("data-suspicious", "the data", said.doubt)
            )
        self.findings += [] if self._only else self.data.findings(self.sizes, self.dropped)
        if not self._only:
            self._search(trial)
        own = self.file.half is None or all(
            o.dtype == self.file.half for o in self.signature.outputs
        )  # a converted file has rounded weights, and no bias of zero
        if quantized is None and own and not self._bad:
            self._settle(trial)

    def _planned(self, space: Space, watch: Watch) -> Iterator[Case]:
        """The generators' cases, then those that steer towards decisions which none of them took."""
        yield from self.data.guard(generators.plan(space), self.sizes, self.dropped)
        if len(self.sizes) >= _WATCHED // 2:
            yield from watch.steer(_STEERED, self.budget.cases(faulty=bool(self._bad)))

    def _learned(self, space: Space) -> Space:
        """The space with what the reference says about its dims, as long as a pass for it and one case still fit."""
        enough = self.budget.affords(_ONE_CASE + 1)
        if space.signature.dims and not enough:
            self.findings.append(not_reached("which sizes go together was not learned"))
        return (
            inference.learn_dims(space, self._accepts, lambda: self.budget.affords(_ONE_CASE + 1))
            if enough
            else space
        )

    def _examine(self) -> None:
        """The runtimes themselves, where their share of the time is enough for the questions."""
        share = max(min(_LEAST_FOR_TRUST, self.budget_s / 4), self.budget_s * _SHARE_FOR_TRUST)
        if _TRUST_PASSES * self.budget.pass_s > share or not self.budget.affords(
            _TRUST_PASSES + _ONE_CASE
        ):
            self.findings.append(
                not_reached(
                    "the runtimes themselves were not examined (the same answer twice, other threads, an empty batch)"
                )
            )
            return
        self.findings += runtime_checks.examine(
            self.candidates,
            self.oracle,
            self.path,
            self.signature,
            self.policy,
            deadline=self.budget.end.within(share),
            sizes=self._sizing.names,
            quantized=self.file.quantized,
        )

    def _chosen(self, planned: Iterator[Case]) -> Iterator[Case]:
        """All cases, or those that were asked for by name; a found one is made again from its origin."""
        wanted: dict[str, list[str]] = {}
        for name in self._only:
            wanted.setdefault(origin(name), []).append(name)
        for case in planned:
            if not self._only:
                yield case
            for name in wanted.get(case.name, ()):
                yield again(case, name, self.seed)

    def _one(self, trial: Trial, case: Case) -> float | None:
        """Run one case; returns how near it came to an alarm, or None where the reference refuses it."""
        if self._progress:
            self._progress(
                Progress(
                    case=case.name,
                    done=len(self.sizes),
                    elapsed=self.clock.elapsed,
                    budget=self.budget_s,
                )
            )
        elements, start = _elements(case), self.clock.elapsed
        if refusal := self._sizing.refusal(case):
            self.dropped.append(Dropped(case=case.name, reason=refusal))
            return None
        if case.group == "lengths" and self._too_dear(elements):
            self.dropped.append(
                Dropped(
                    case=case.name,
                    reason=f"{elements:,} elements would take too much of the budget",
                )
            )
            return None
        try:
            outcome = trial.run(case)
        except ReferenceRefused as why:
            self.dropped.append(Dropped(case=case.name, reason=str(why)[:200]))
            return None
        except Unconfirmed as why:
            self.unconfirmed.append(case.name)
            self.dropped.append(Dropped(case=case.name, reason=str(why)))
            return None
        self._largest = max(self._largest, (elements, self.clock.elapsed - start))
        self.gaps += outcome.gaps
        self.fleet.note(outcome.gaps, self.policy)
        self.sizes[case.name] = dict(case.sizes)
        self.notes += outcome.notes
        domains = {note.domain for note in outcome.notes} - {Domain.EMPTY, Domain.MASKED}
        if domains and (
            self.noted is None or (Domain.TIES in domains and self.noted.domain is not None)
        ):
            self.noted = case  # ties on finite numbers say more than a NaN that was put in
        return self._remember(case, outcome.gaps)

    def _remember(self, case: Case, gaps: Sequence[Gap]) -> float:
        """Keep the best witness of a fault, and the few cases from which a search may start."""
        counted = [gap for gap in gaps if gap.domain is None]
        if not counted:
            return 0.0
        worst = max(counted, key=lambda gap: judging.severity(gap, self.policy))
        rank, ratio = judging.severity(worst, self.policy)
        if rank > 0:
            self._bad[case.name] = judging.judge_gap(worst, self.policy)
        plain = case.domain is None
        small = _elements(case) < _LARGE
        key = (
            rank,
            plain and not worst.lost,
            worst.status.value == "compared",
            small,
            case.ordinary,
            case.group in _NATURAL,
            min(ratio, 1e6),
        )
        if rank > 0 and plain and small and len(self.bad) < _OTHERS:
            self.bad.append(case)
        if rank > 0 and (self.witness is None or key > self._witness_key):
            self.witness, self._witness_key = case, key
        if plain and not rank and (case.ordinary or case.group in _SEARCHED):
            self._best = sorted([*self._best, (ratio, case)], key=lambda pair: -pair[0])[:4]
        return ratio

    def _search(self, trial: Trial) -> None:
        """Climb towards disagreement from the cases that came nearest, for a share of the time the others took."""
        if self._bad or not self._best:
            return
        walk = climb(self._best, self.seed)
        case = next(walk)
        for _ in range(
            int(len(self.sizes) * _SHARE_FOR_SEARCH)
        ):  # counted, not timed: the same seed gives the same proof
            if self._stop() or self._bad:
                break
            case = walk.send(self._one(trial, case) or 0.0)
        if self.witness is not None and self.witness.group == "search":
            self._shrink(trial, self.witness)

    def _settle(self, trial: Trial) -> None:
        """Ask the graph itself about the cases that are neither noise nor a fault: in float64 a wrong epsilon has nothing to hide behind."""
        doubtful = [
            case
            for ratio, case in self._best
            if ratio * self.policy.noise_limit > _DOUBTFUL and _elements(case) < _LARGE
        ]
        if not doubtful:
            return
        from onnxproof.runtimes import reference

        self.tell("asking the graph in float64")
        try:
            session = reference.open(self.path, "float64")
            session.limit_s = max(self.budget_s * _SHARE_FOR_GRAPH, _LEAST_FOR_GRAPH)
            graph = Candidate(
                "reference:float64", self.path, self.signature, self.clock, session=session
            )
            for case in doubtful:
                if not self.budget.affords(_ONE_CASE) or not self.budget.affords_reruns(RERUNS):
                    self.findings.append(
                        not_reached(
                            "the graph was not asked in float64 about a case that is neither noise nor a fault"
                        )
                    )
                    break
                biases = trial.bias(case, graph)
                self.gaps = [
                    replace(gap, bias=biases.get(gap.output))
                    if gap.case == case.name and gap.domain is None
                    else gap
                    for gap in self.gaps
                ]
                self._remember(case, [gap for gap in self.gaps if gap.case == case.name])
        except (
            OnnxproofError
        ) as why:  # an operator that the evaluator lacks, or too slow: the gaps stand as they are
            self.findings.append(
                Finding(
                    code="graph-not-asked",
                    what=f"the graph could not be evaluated in float64: {why.what}",
                )
            )

    def _shrink(self, trial: Trial, found: Case) -> None:
        """Show a smaller case for one that the search found, if one is as bad."""

        def still_bad(case: Case) -> bool:
            if self._stop():
                return False
            try:
                gaps = trial.run(case).gaps
            except (ReferenceRefused, Unconfirmed):
                return False
            return any(
                judging.judge_gap(gap, self.policy) in (Verdict.DRIFT, Verdict.DIVERGED)
                for gap in gaps
            )

        smaller = shrink(found, self.signature, still_bad)
        if smaller is not found:
            self._witness_key = ()
            self.witness = None
            self._one(
                trial,
                replace(
                    smaller, name=f"{found.name}, shrunk", about=f"{found.about}, made smaller"
                ),
            )

    def _owes_data(self, case: Case) -> bool:
        """True while the quality of a quantized file has not been asked on the user's data: counted, since a busy machine must not change what it is judged by."""
        if not self.file.quantized or self.subject.data is None or self.fleet.done:
            return False
        asked = len({gap.case for gap in self.gaps if gap.group == "data"})
        return asked < _DATA_OWED and case.group in ("ordinary", "data")

    def _stop(self) -> bool:
        return self._known() or self._late

    def _enough(self) -> bool:
        """True when no further case begins: the verdict is known, or the time is over and nothing of the floor is missing or can still be had."""
        if self._known():
            return True
        over = self.budget.elapsed - max(
            self.budget_s, self._begun
        )  # what came before the first case is not the cases' fault
        return (
            self._late
            and not self.data.owed(self.sizes)
            and self.floor.beyond(over, self.budget_s, self._dearest)
        )

    def _known(self) -> bool:
        diverged = sum(verdict is Verdict.DIVERGED for verdict in self._bad.values())
        known = self.fleet.done or self.fleet.hung or bool(self.unconfirmed)
        return known or (
            diverged >= 2 and len(self.backends) == 1 and self.budget.passed(_PATIENCE)
        )

    @property
    def _cases_end(self) -> Deadline:
        return self.budget.cases(faulty=bool(self._bad))

    @property
    def _late(self) -> bool:
        return not (
            self.budget.affords_case(RERUNS if self._trial is None else self._trial.most_reruns)
            and self._cases_end.allows(_ONE_CASE * self.budget.pass_s)
        )

    @property
    def _dearest(self) -> float:
        """Seconds of the largest case so far."""
        return self._largest[1]

    def _too_dear(self, elements: int) -> bool:
        """True when a case much larger than any so far may take a sixth of the budget: what is large may grow with the square."""
        largest, seconds = self._largest
        growth = elements / largest if largest else 0.0
        return (
            growth > 4 and seconds * growth ** (1 if elements < _LARGE else 2) > self.budget_s / 6
        )

    def _accepts(self, case: Case) -> bool:
        try:
            self.oracle.run(case.inputs)
        except Exception:  # any refusal is an answer here
            return False
        return True

    def _weigh(self) -> None:
        """Mark what proves nothing, and say so: outputs of a reference that is random or constant, noise that lets anything pass, too few cases."""
        if self._trial is None:
            return
        doubts, complete = self._trial.doubts, self.complete
        assessed = void_outputs.assess(
            self.gaps,
            self.policy,
            plain=self._trial.plain,
            random=doubts.random,
            constant=self._trial.answers.constant,
        )
        self.gaps = list(assessed.gaps)
        self.findings = void_outputs.uncounted(self.findings, doubts.random)
        self.findings += [*doubts.findings(), *assessed.findings]
        if not self._known():  # where the verdict was clear, nothing more had to be compared
            self.findings += self.floor.findings(complete=complete, budget_s=self.budget_s)

    def _proof(self, error: str) -> Proof:
        if self.unconfirmed:
            self.findings.append(self.budget.not_confirmed(self.unconfirmed[0], RERUNS + LOUDER))
        self._weigh()
        self.findings += masked_findings(self.gaps)
        verdict = (
            Verdict.ERROR
            if error
            else judging.judge(self.gaps, self.policy, notes=self.notes, findings=self.findings)
        )
        self.findings += [
            Finding(
                code="state",
                what=f"the module keeps state between calls: a forward pass changes {what}",
                help="an exported graph keeps none; pass the state in and out",
            )
            for what in self.oracle.findings()
        ]
        proof = Proof(
            verdict=verdict,
            subject=self.subject.name,
            candidate=str(self.path),
            backends=self.backends,
            gaps=tuple(self.gaps),
            coverage=self.coverage,
            sizes=dict(self.sizes),
            notes=tuple(_few(self.notes)),
            findings=tuple(self.findings),
            signature=self.signature,
            policy=self.policy,
            dropped=tuple(self.dropped),
            error=error,
            seed=self.seed,
            budget_s=self.budget_s,
            complete=self.complete,
            environment=environment() | {"opset": str(self.file.opset)},
            hashes={"candidate": onnx_file.fingerprint(self.path)},
            seconds={**self.clock.seconds, "total": self.clock.elapsed},
            passes=dict(self.clock.passes),
            cross=self.cross,
            witness=self.witness,
            chosen=self._only,
            half=self._own_half(),
        )
        return replace(proof, replay=self._replay(proof))

    def _own_half(self) -> str:
        """The half precision that the noise is taken from, as the trials do: where the file is of one and the reference is not."""
        floats = [output.dtype for output in self.signature.outputs if "float" in output.dtype]
        return (
            self.file.half
            if self.file.half is not None and any(dtype != self.file.half for dtype in floats)
            else ""
        )

    def _replay(self, proof: Proof) -> str:
        worst = proof.worst
        if worst is None:
            return ""
        if self.subject.origin:
            verb = "diff" if self.subject.onnx else "verify"
            return f"onnxproof {verb} {self.subject.origin} {self.path} --case '{worst.case}' --backend {worst.backend} --seed {self.seed}"
        return f"onnxproof.verify(model, {str(self.path)!r}, example_inputs, backends=({worst.backend!r},), seed={self.seed}, only=({worst.case!r},))"


def _elements(case: Case) -> int:
    return sum(array.size for array in case.inputs.values())


def _few(notes: Sequence[Note]) -> Iterator[Note]:
    """The first few notes of each kind: the hundredth NaN says nothing new."""
    seen: dict[tuple[str, ...], int] = {}
    for note in notes:
        key = (note.domain.value, note.backend, note.output)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= _NOTES_A_GROUP:
            yield note
