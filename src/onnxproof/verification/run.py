"""From a request to the evidence: cases are run on every backend, measured, confirmed and judged.

The steps, in this order:

1. Open the user's data and the reference; pair its inputs and outputs with the file's.
2. Open the file on every backend.
3. Learn the input space: which dims vary together, which inputs are masks.
4. Examine the runtimes themselves (the same answer twice, other threads).
5. Run the planned cases, until the budget ends or the verdict is known.
6. Search from the nearest cases; ask the graph in float64 where a case is doubtful.
7. Compare the backends with each other.
8. Mark what proves nothing, and judge.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from onnxproof.errors import BackendError, InputError, ModelError, OnnxproofError, Stopped
from onnxproof.inputs import generators, inference, training_statistics
from onnxproof.inputs.decision_points import Watch
from onnxproof.inputs.output_sizes import Sizing
from onnxproof.inputs.roles import confirm_roles
from onnxproof.inputs.search import again, origin
from onnxproof.inputs.space import Space
from onnxproof.inputs.user_data import UserData, opened
from onnxproof.onnxmodel import onnx_file
from onnxproof.reference import pairing
from onnxproof.reference.protocol import Oracle, open_oracle
from onnxproof.results import Case, Coverage, CrossCheck, Finding, Signature, Verdict, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes import Session, current, parse, served
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system.environment import environment
from onnxproof.verification import consensus, runtime_checks, search, void_outputs
from onnxproof.verification.budget import Budget, not_reached
from onnxproof.verification.case_runner import (
    LOUDER,
    RERUNS,
    ReferenceRefused,
    Trial,
    Unconfirmed,
)
from onnxproof.verification.coverage_floor import Floor
from onnxproof.verification.evidence import Evidence, Request
from onnxproof.verification.masked import Masks
from onnxproof.verification.masked import finding as masked_findings
from onnxproof.verification.observations import Observations, elements
from onnxproof.verification.open_backends import Fleet
from onnxproof.verification.pacing import PASSES_OF_A_CASE, Pacing
from onnxproof.verification.progress import Progress
from onnxproof.verification.quantized import open_fidelity

_SHARE_FOR_RUNTIMES, _LEAST_FOR_RUNTIMES_S = 0.1, 3.0
"""Of the budget, and seconds at least (a quarter of a short budget at most): time in which the runtimes are examined."""
_PASSES_FOR_RUNTIMES = 3
"""Forward passes of the reference that the first questions to a runtime need: two answers and a truth."""
_PASSES_OF_THE_REFERENCE = 4.0
"""Times the reference's own pass that a runtime has at least, whatever the time limit says."""
_PROBED = 48
"""Cases on which the graph's decision points are probed."""
_STEERED = 40
"""Tries to steer towards a way that none of the probed cases took."""
_DATA_EXAMINED = 16
"""Cases of the user's data that are held against the model's own statistics."""
_REASON = 200
"""Characters of the reference's refusal that are kept."""


def run(request: Request) -> Evidence:
    """Run the cases within the budget and judge; what was measured before an error is kept."""
    return _Verification(request).run()


class _Verification:
    """One verification: what it opened, what it has observed so far."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._clock = Clock()
        self._budget = Budget(request.budget_s, self._clock, explained=request.explained)
        self._file = onnx_file.read(request.path)
        onnx_file.require_tensors(self._file)
        self._observed = Observations(request.policy)
        self._findings: list[Finding] = []
        self._complete = True
        self._coverage = Coverage()
        self._consensus: CrossCheck | None = None
        self._trial: Trial | None = None
        self._floor = Floor(())
        self._pacing: Pacing | None = None

    def run(self) -> Evidence:
        """Take the steps one by one; a file that isn't there is told before anything runs."""
        data = opened(self._request.subject.data)
        self._request = replace(self._request, subject=replace(self._request.subject, data=data))
        self._data = UserData(data)
        self._reference: Oracle = open_oracle(self._request.subject, self._clock)
        self._signature = self._pair()
        begun = self._clock.elapsed
        least_s = _PASSES_OF_THE_REFERENCE * self._budget.pass_s
        serving = replace(current(), time_s=max(current().time_s, least_s))
        with served(serving):
            self._fleet = Fleet(
                self._request.backends,
                self._request.path,
                self._signature,
                self._clock,
                self._session,
            )
        self._budget.extend(self._clock.elapsed - begun)
        with served(serving):
            error = self._run_cases()
        return self._evidence(error)

    def _run_cases(self) -> str:
        """Steps 3 to 7; returns the error that ended them, or nothing."""
        try:
            self._compare_cases()
            self._compare_backends()
        except (BackendError, ModelError) as why:
            if isinstance(why, ImportError) or not self._observed.gaps:
                raise
            return why.render()
        except KeyboardInterrupt as why:
            if not self._observed.gaps:
                raise
            self._complete = False
            count = len(self._observed.sizes)
            raise Stopped(
                self._proof(
                    f"error[interrupted]: stopped by the user after {count} cases: there is no verdict"
                )
            ) from why
        finally:
            self._findings += self._fleet.findings()
            self._fleet.close()
        return ""

    def _announce(self, case: str, step: str = "cases") -> None:
        if self._request.progress is None:
            return
        done = len(self._observed.sizes)
        budget_s = self._request.budget_s
        elapsed = self._clock.elapsed
        self._request.progress(
            Progress(case=case, done=done, elapsed=elapsed, budget=budget_s, step=step)
        )

    def _session(self, backend: str) -> Session | None:
        """A session with some optimizers off, for trying a fix; None leaves it to the backend."""
        self._announce(f"opening {backend}")
        disabled = self._request.disabled_optimizers
        key, option = parse(backend)
        if not disabled or key != "ort":
            return None
        from onnxproof.runtimes import ort

        return ort.open(self._request.path, option, disabled_optimizers=disabled)

    # Step 1

    def _pair(self) -> Signature:
        example = self._reference.example()
        try:
            inputs, outputs = self._reference.leaves(example)
        except OnnxproofError:
            raise
        except Exception as why:  # the user's own module on the user's own example
            raise InputError(
                "example-refused",
                f"the reference refuses the example inputs: {type(why).__name__}: {why}",
                help="call the module with them by itself; inputs are a tuple, or a dict of keyword inputs",
            ) from why
        signature, findings = pairing.merge(
            inputs,
            outputs,
            self._file,
            tree=self._reference.tree,
            dynamic_shapes=self._request.subject.dynamic_shapes,
        )
        self._findings += findings
        return signature

    # Step 3

    def _input_space(self) -> Space:
        space = inference.make_space(
            self._signature,
            self._reference.example(),
            self._file,
            seed=self._request.seed,
            domains=self._request.policy.domains,
            data=self._data.stream(self._signature.inputs),
            parameter=self._reference.parameter,
        )
        return confirm_roles(self._with_learned_dims(space), self._reference.run)

    def _with_learned_dims(self, space: Space) -> Space:
        """The space with what the reference says about its dims, as long as a pass for it and one case still fit."""

        def affordable() -> bool:
            return self._budget.affords(PASSES_OF_A_CASE + 1)

        if affordable():
            return inference.learn_dims(space, self._accepts, affordable)
        if space.signature.dims:
            self._findings.append(not_reached("which sizes go together was not learned"))
        return space

    def _accepts(self, case: Case) -> bool:
        try:
            self._reference.run(case.inputs)
        except Exception:  # any refusal is an answer here
            return False
        return True

    # Step 4

    def _examine_runtimes(self, sizing: Sizing) -> None:
        """The runtimes themselves, where their share of the time is enough for the questions."""
        budget_s = self._request.budget_s
        share = max(min(_LEAST_FOR_RUNTIMES_S, budget_s / 4), budget_s * _SHARE_FOR_RUNTIMES)
        needed = _PASSES_FOR_RUNTIMES * self._budget.pass_s
        if needed > share or not self._budget.affords(_PASSES_FOR_RUNTIMES + PASSES_OF_A_CASE):
            what = "the runtimes themselves were not examined (the same answer twice, other threads, an empty batch)"
            self._findings.append(not_reached(what))
            return
        self._findings += runtime_checks.examine(
            self._fleet.active,
            self._reference,
            self._request.path,
            self._signature,
            self._request.policy,
            deadline=self._budget.end.within(share),
            sizes=sizing.names,
            quantized=self._file.quantized,
        )

    # Step 5

    def _compare_cases(self) -> None:
        request = self._request
        sizing = Sizing(self._file, self._signature, self._reference.example())
        space = self._input_space()
        self._signature = inference.describe_dims(space)
        fidelity = open_fidelity(
            request.subject, self._reference, self._file, self._signature, self._clock
        )
        trial = Trial(
            self._reference,
            self._fleet.active,
            self._signature,
            request.policy,
            half=self._file.half,
            seed=request.seed,
            op_types=self._file.op_types,
            fidelity=fidelity,
            affords=self._budget.affords_reruns,
            masks=Masks(space, self._reference.run),
        )
        dims = [dim.name for dim in space.free_dims]
        self._trial, self._floor = trial, Floor(dims, chosen=bool(request.only))
        probes = Watch(self._file, self._signature, self._clock)
        if not request.only and not request.disabled_optimizers:
            self._examine_runtimes(sizing)
        pacing = self._pacing = Pacing(
            request,
            self._observed,
            budget=self._budget,
            fleet=self._fleet,
            floor=self._floor,
            data=self._data,
            trial=trial,
        )

        def compare(case: Case) -> float | None:
            return self._compare(case, trial, sizing, pacing)

        data: list[Mapping[str, Any]] = []
        for case in self._paced(self._chosen(self._planned(space, probes)), pacing):
            if fidelity is not None and case.group == "data" and len(data) < _DATA_EXAMINED:
                data.append(case.inputs)
            if compare(case) is None:
                continue
            self._floor.take(case)
            if self._is_probed(case):
                probes.look(case)
        self._complete &= not self._floor.skipped
        self._coverage = probes.coverage()
        self._examine_data(data)
        if not request.only:
            self._search(trial, pacing, compare)
        if fidelity is None and self._has_own_precision and not self._observed.faulty:
            self._findings += search.ask_graph_in_float64(
                request,
                self._observed,
                trial,
                budget=self._budget,
                signature=self._signature,
                clock=self._clock,
                announce=lambda step: self._announce("", step),
            )

    def _planned(self, space: Space, probes: Watch) -> Iterator[Case]:
        """The generators' cases, then those that steer towards decisions which none of them took."""
        observed = self._observed
        yield from self._data.guard(generators.plan(space), observed.sizes, observed.dropped)
        if len(observed.sizes) >= _PROBED // 2:
            yield from probes.steer(_STEERED, self._budget.cases(faulty=observed.faulty))

    def _chosen(self, planned: Iterator[Case]) -> Iterator[Case]:
        """All cases, or those that were asked for by name; one that a search found is made again from its origin."""
        wanted: dict[str, list[str]] = {}
        for name in self._request.only:
            wanted.setdefault(origin(name), []).append(name)
        for case in planned:
            if not self._request.only:
                yield case
            for name in wanted.get(case.name, ()):
                yield again(case, name, self._request.seed)

    def _paced(self, planned: Iterator[Case], pacing: Pacing) -> Iterator[Case]:
        """The cases that the time allows: one at least, then until enough was compared; the user's data is owed longer."""
        observed = self._observed
        for case in planned:
            owed = pacing.owes_data(case, quantized=self._file.quantized)
            if (observed.gaps or observed.dropped) and pacing.enough:
                self._complete = False
                if not owed:
                    return
                if case.group != "data":
                    continue
            elif observed.gaps and pacing.skips(case) and not owed:
                continue
            yield case

    def _compare(self, case: Case, trial: Trial, sizing: Sizing, pacing: Pacing) -> float | None:
        """Run one case; returns how near it came to an alarm, or None where it was dropped."""
        observed = self._observed
        self._announce(case.name)
        size, begun = elements(case), self._clock.elapsed
        if refusal := sizing.refusal(case):
            observed.drop(case, refusal)
            return None
        if case.group == "lengths" and pacing.is_too_expensive(size):
            observed.drop(case, f"{size:,} elements would take too much of the budget")
            return None
        try:
            outcome = trial.run(case)
        except ReferenceRefused as why:
            observed.drop(case, str(why)[:_REASON])
            return None
        except Unconfirmed as why:
            observed.unconfirmed.append(case.name)
            observed.drop(case, str(why))
            return None
        pacing.took(size, self._clock.elapsed - begun)
        self._fleet.note(outcome.gaps, self._request.policy)
        return observed.add(case, outcome)

    def _is_probed(self, case: Case) -> bool:
        few = len(self._observed.sizes) <= _PROBED
        return few and case.domain is None and not self._fleet.hung

    def _examine_data(self, data: list[Mapping[str, Any]]) -> None:
        """Does the user's data look like what the model was trained on, and was all of it compared?"""
        if data:
            doubt = training_statistics.examine(self._request.subject, self._reference, data).doubt
            if doubt:
                finding = training_statistics.finding("data-suspicious", "the data", doubt)
                self._findings.append(finding)
        if not self._request.only:
            self._findings += self._data.findings(self._observed.sizes, self._observed.dropped)

    @property
    def _has_own_precision(self) -> bool:
        """A file converted to half has rounded weights, and no bias of zero."""
        half = self._file.half
        return half is None or all(output.dtype == half for output in self._signature.outputs)

    # Step 6

    def _search(
        self, trial: Trial, pacing: Pacing, compare: Callable[[Case], float | None]
    ) -> None:
        observed = self._observed
        search.climb_to_disagreement(observed, pacing, self._request.seed, compare)
        if observed.witness is None or observed.witness.group != "search":
            return
        policy = self._request.policy
        smaller = search.smaller_witness(observed.witness, self._signature, trial, pacing, policy)
        if smaller is not None:
            observed.forget_witness()
            compare(smaller)

    # Step 7

    def _compare_backends(self) -> None:
        """Several backends on the case that tells them apart: the witness of a fault, or the example."""
        if len(self._fleet.everyone) < 2 or not self._observed.gaps:
            return
        if not self._budget.affords(2):
            self._findings.append(not_reached("the backends were not set beside each other"))
            return
        example = Case(
            name="example",
            group="ordinary",
            about="the example inputs",
            inputs=self._reference.example(),
        )
        self._consensus = consensus.compare(
            self._fleet.everyone,
            self._reference,
            self._observed.witness or example,
            self._observed.gaps,
            self._request.path,
            self._signature,
            self._request.policy,
            limit_s=max(self._budget.end.left, self._budget.pass_s),
        )

    # Step 8

    def _mark_void(self) -> None:
        """Mark what proves nothing: a random or constant reference, noise that lets anything pass, too few cases."""
        if self._trial is None:
            return
        observed, doubts, complete = self._observed, self._trial.doubts, self._complete
        assessed = void_outputs.assess(
            observed.gaps,
            self._request.policy,
            plain=self._trial.plain,
            random=doubts.random,
            constant=self._trial.answers.constant,
        )
        observed.gaps = list(assessed.gaps)
        self._findings = void_outputs.uncounted(self._findings, doubts.random)
        self._findings += [*doubts.findings(), *assessed.findings]
        known = self._pacing is not None and self._pacing.verdict_is_known
        if not known:  # where the verdict was clear, nothing more had to be compared
            budget_s = self._request.budget_s
            self._findings += self._floor.findings(complete=complete, budget_s=budget_s)

    def _evidence(self, error: str) -> Evidence:
        proof = self._proof(error)
        return Evidence(
            request=self._request,
            proof=proof,
            reference=self._reference,
            file=self._file,
            signature=self._signature,
            clock=self._clock,
            budget=self._budget,
            noted=self._observed.noted,
            differing=tuple(self._observed.differing),
            hung=self._fleet.hung,
        )

    def _proof(self, error: str) -> Proof:
        request, observed = self._request, self._observed
        if observed.unconfirmed:
            unconfirmed = self._budget.not_confirmed(observed.unconfirmed[0], RERUNS + LOUDER)
            self._findings.append(unconfirmed)
        self._mark_void()
        self._findings += masked_findings(observed.gaps)
        verdict = judging.judge(
            observed.gaps, request.policy, notes=observed.notes, findings=self._findings
        )
        if error:
            verdict = Verdict.ERROR
        self._findings += [_state_finding(what) for what in self._reference.findings()]
        proof = Proof(
            verdict=verdict,
            subject=request.subject.name,
            candidate=str(request.path),
            backends=request.backends,
            gaps=tuple(observed.gaps),
            coverage=self._coverage,
            sizes=dict(observed.sizes),
            notes=tuple(observed.first_notes()),
            findings=tuple(self._findings),
            signature=self._signature,
            policy=request.policy,
            dropped=tuple(observed.dropped),
            error=error,
            seed=request.seed,
            budget_s=request.budget_s,
            complete=self._complete,
            environment=environment() | {"opset": str(self._file.opset)},
            hashes={"candidate": onnx_file.fingerprint(request.path)},
            seconds={**self._clock.seconds, "total": self._clock.elapsed},
            passes=dict(self._clock.passes),
            cross=self._consensus,
            witness=observed.witness,
            chosen=request.only,
            half=self._half_of_the_file(),
        )
        return replace(proof, replay=_replay_line(request, proof))

    def _half_of_the_file(self) -> str:
        """The half precision that the noise is taken from: the file is of one, and the reference is not."""
        half = self._file.half
        floats = [output.dtype for output in self._signature.outputs if "float" in output.dtype]
        if half is None or all(dtype == half for dtype in floats):
            return ""
        return half


def _state_finding(what: str) -> Finding:
    return Finding(
        code="state",
        what=f"the module keeps state between calls: a forward pass changes {what}",
        help="an exported graph keeps none; pass the state in and out",
    )


def _replay_line(request: Request, proof: Proof) -> str:
    """The command, or the call, that runs the worst case again."""
    worst = proof.worst
    if worst is None:
        return ""
    path, seed = request.path, request.seed
    if not request.subject.origin:
        return (
            f"onnxproof.verify(model, {str(path)!r}, example_inputs, "
            f"backends=({worst.backend!r},), seed={seed}, only=({worst.case!r},))"
        )
    command = "diff" if request.subject.onnx else "verify"
    return (
        f"onnxproof {command} {request.subject.origin} {path} "
        f"--case '{worst.case}' --backend {worst.backend} --seed {seed}"
    )
