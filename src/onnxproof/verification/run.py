"""From a request to the evidence: cases are run on every backend, measured, confirmed and judged.

The steps, in this order:

1. Open the user's data and the reference; pair its inputs and outputs with the file's.
2. Open the file on every backend.
3. Learn the input space: which dims vary together, which inputs are masks.
4. Examine the runtimes themselves (the same answer twice, other threads).
5. Roll a loop out, if the model feeds itself; then run the planned cases, until the budget ends or the verdict is known.
6. Search from the nearest cases; ask the graph in float64 where a case is doubtful, and in half precision where it is meant for such a device.
7. Compare the backends with each other.
8. Mark what proves nothing, and judge.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from onnxproof.errors import BackendError, ModelError, Stopped
from onnxproof.inputs import generators, inference, training_statistics
from onnxproof.inputs.chosen_cases import ChosenCases
from onnxproof.inputs.decision_points import Watch
from onnxproof.inputs.output_sizes import Sizing
from onnxproof.inputs.space import Space
from onnxproof.inputs.user_data import UserData, open_data
from onnxproof.onnxmodel import onnx_file
from onnxproof.reference.protocol import Reference, open_reference
from onnxproof.results import Case, Coverage, CrossCheck, Finding
from onnxproof.results.proof import Proof
from onnxproof.runtimes import Session, current, use_serving
from onnxproof.runtimes.session.execution import Clock
from onnxproof.verification import consensus, preparation, search, target_precision
from onnxproof.verification.assemble import Measured, assemble_proof, mark_void
from onnxproof.verification.budget import Budget, not_reached
from onnxproof.verification.case_reference import LOUD_RERUNS, RERUNS, ReferenceRefused
from onnxproof.verification.case_runner import Trial, TrialOptions, Unconfirmed
from onnxproof.verification.coverage_floor import Floor
from onnxproof.verification.evidence import Evidence, Request
from onnxproof.verification.looping import Looping
from onnxproof.verification.masked import Masks
from onnxproof.verification.masked import finding as masked_findings
from onnxproof.verification.observations import Observations, elements
from onnxproof.verification.open_backends import Fleet, open_without
from onnxproof.verification.pacing import Pacing
from onnxproof.verification.progress import Progress
from onnxproof.verification.quantized import Fidelity, open_fidelity, quality_findings
from onnxproof.verification.recording import Recording
from onnxproof.verification.rollout.driving import Driven

_PASSES_OF_THE_REFERENCE = 4.0
"""Times the reference's own pass that a runtime has at least, whatever the time limit says."""
_PROBED, _STEERED = 48, 40
"""Cases on which the graph's decision points are probed, and tries to steer towards a way that none of them took."""
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
        onnx_file.require_comparable(self._file)
        self._observed = Observations(request.policy)
        self._chosen = ChosenCases(request.only, request.seed)
        self._findings: list[Finding] = []
        self._complete = True
        self._coverage = Coverage()
        self._consensus: CrossCheck | None = None
        self._trial: Trial | None = None
        self._floor = Floor(())
        self._pacing: Pacing | None = None
        self._space: Space | None = None
        self._recording: Recording | None = None

    def run(self) -> Evidence:
        """Take the steps one by one; a file that isn't there is told before anything runs."""
        data = open_data(self._request.subject.data)
        self._request = replace(self._request, subject=replace(self._request.subject, data=data))
        self._data = UserData(data)
        self._reference: Reference = open_reference(self._request.subject, self._clock, self._file)
        self._signature, findings, self._loops = preparation.pair(
            self._reference, self._file, self._request
        )
        self._findings += findings
        begun = self._clock.elapsed
        least_s = _PASSES_OF_THE_REFERENCE * self._budget.pass_s
        serving = replace(current(), time_s=max(current().time_s, least_s))
        with use_serving(serving):
            request, signature = self._request, self._signature
            self._fleet = Fleet(
                request.backends, request.path, signature, self._clock, self._session
            )
        self._budget.extend(self._clock.elapsed - begun)
        self._looping = Looping(
            request, self._reference, self._signature, self._file, self._fleet.active
        )
        with use_serving(serving):
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
            after = f"stopped by the user after {len(self._observed.sizes)} cases"
            raise Stopped(self._proof(f"error[interrupted]: {after}: there is no verdict")) from why
        finally:
            self._findings += self._fleet.findings()
            self._fleet.close()
        return ""

    def _announce(self, case: str, step: str = "cases") -> None:
        if self._request.progress is None:
            return
        done, elapsed = len(self._observed.sizes), self._clock.elapsed
        state = Progress(
            case=case, done=done, elapsed=elapsed, budget=self._request.budget_s, step=step
        )
        self._request.progress(state)

    def _session(self, backend: str) -> Session | None:
        self._announce(f"opening {backend}")
        return open_without(self._request.disabled_optimizers, backend, self._request.path)

    # Step 5

    def _compare_cases(self) -> None:
        """Steps 3 to 6."""
        request = self._request
        sizing = Sizing(self._file, self._signature, self._reference.example())
        space, findings, driven = preparation.learn_space(
            self._reference,
            self._signature,
            self._file,
            request=request,
            budget=self._budget,
            data=self._data.stream(self._signature.inputs),
            loops=self._loops,
        )
        self._space = space
        self._findings += findings
        self._signature = inference.describe_dims(space)
        fidelity = open_fidelity(
            request.subject, self._reference, self._file, self._signature, self._clock
        )
        trial = self._trial = self._open_trial(space, fidelity)
        dims = [dim.name for dim in space.free_dims]
        self._floor = Floor(dims, chosen=bool(request.only))
        if not (request.only or request.disabled_optimizers or request.first):
            self._findings += preparation.examine_runtimes(
                self._fleet.active,
                self._reference,
                self._signature,
                request=request,
                budget=self._budget,
                sizes=sizing.names,
                quantized=self._file.quantized,
            )
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
            if refusal := space.refusal(case) or sizing.refusal(case):
                self._observed.drop(case, refusal)
                return None
            return self._compare(space.fitted(case), trial, pacing)

        if driven is not None:
            self._roll_out(driven, compare)
        if self._looping.states_are_own:  # a call from the reference's states means nothing to it
            self._floor = Floor((), chosen=True)
            return
        data = self._run_planned(space, pacing, compare)
        self._examine_data(data if fidelity is not None else [])
        self._findings += self._chosen.findings(self._observed.sizes)
        if not request.only:
            self._search(trial, pacing, compare)
        own_precision = search.has_own_precision(self._file, self._signature)
        if fidelity is None and own_precision and not self._observed.faulty:
            self._ask_graph(trial)
        half, budget = self._file.half, self._budget
        self._findings += target_precision.ask(
            request, self._reference, self._observed, budget, half, own_precision
        )

    def _roll_out(self, driven: Driven, compare: Callable[[Case], float | None]) -> None:
        """Every side in its own loop; the call that went wrong is a case from then on."""
        announce = partial(self._announce, step="rollouts")
        for case in self._looping.roll_out(driven, self._observed, self._budget, announce):
            compare(case)
        if self._recording is not None:
            self._recording.record_rollouts = self._looping.record
        self._findings += self._looping.findings

    def _open_trial(self, space: Space, fidelity: Fidelity | None) -> Trial:
        masks = Masks(space, self._reference.run)
        self._recording = Recording(self._reference, self._file.op_types, masks, fidelity)
        options = TrialOptions(
            half=self._file.half,
            seed=self._request.seed,
            op_types=self._file.op_types,
            fidelity=fidelity,
            affords=self._budget.affords_reruns,
            masks=masks,
        )
        return Trial(
            self._reference, self._fleet.active, self._signature, self._request.policy, options
        )

    def _run_planned(
        self, space: Space, pacing: Pacing, compare: Callable[[Case], float | None]
    ) -> list[Mapping[str, Any]]:
        """Run the planned cases; returns the first of the user's data among them."""
        probes = Watch(self._file, self._signature, self._clock, space.rules.fit)
        data: list[Mapping[str, Any]] = []
        planned = self._planned(space, probes)
        for case in pacing.paced(planned, quantized=self._file.quantized):
            if case.group == "data" and len(data) < _DATA_EXAMINED:
                data.append(case.inputs)
            if compare(case) is None:
                continue
            self._floor.take(case)
            if (
                len(self._observed.sizes) <= _PROBED
                and case.domain is None
                and not self._fleet.hung
            ):
                probes.look(case)
        self._complete &= not pacing.cut_short and not self._floor.skipped
        self._coverage = probes.coverage()
        return data

    def _planned(self, space: Space, probes: Watch) -> Iterator[Case]:
        """The generators' cases, then those that steer towards decisions which none of them took; or those asked for by name."""
        observed, request = self._observed, self._request

        def every_case() -> Iterator[Case]:
            planned = generators.plan(space, request.first)
            yield from self._data.guard(planned, observed.sizes, observed.dropped)
            if len(observed.sizes) >= _PROBED // 2:
                yield from probes.steer(_STEERED, self._budget.cases(faulty=observed.faulty))

        if not request.only:
            return every_case()
        return self._chosen.among(every_case(), space)

    def _compare(self, case: Case, trial: Trial, pacing: Pacing) -> float | None:
        """Run one case; returns how near it came to an alarm, or None where it was dropped."""
        observed = self._observed
        self._announce(case.name)
        size, begun = elements(case), self._clock.elapsed
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
        outcome.gaps = self._looping.without_unread_states(case, outcome.gaps)
        pacing.took(size, self._clock.elapsed - begun)
        self._fleet.note(outcome.gaps, self._request.policy)
        nearness = observed.add(case, outcome)
        if self._recording is not None:
            self._recording.add(case, outcome, nearness)
        return nearness

    def _examine_data(self, data: list[Mapping[str, Any]]) -> None:
        """Does the user's data look like what the model was trained on, and was all of it compared?"""
        self._findings += training_statistics.doubts(self._request.subject, self._reference, data)
        if not self._request.only:
            self._findings += self._data.findings(self._observed.sizes, self._observed.dropped)

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

    def _ask_graph(self, trial: Trial) -> None:
        self._findings += search.ask_graph_in_float64(
            self._request,
            self._observed,
            trial,
            budget=self._budget,
            signature=self._signature,
            clock=self._clock,
            announce=lambda step: self._announce("", step),
        )

    # Step 7

    def _compare_backends(self) -> None:
        """Several backends on the case that tells them apart: the witness of a fault, or the example."""
        if len(self._fleet.everyone) < 2 or not self._observed.gaps:
            return
        if not self._budget.affords(2):
            self._findings.append(not_reached("the backends were not set beside each other"))
            return
        question = consensus.ask(self._reference, self._observed.witness)
        seen, path, policy = self._observed.gaps, self._request.path, self._request.policy
        limit_s = max(self._budget.end.left, self._budget.pass_s)
        self._consensus = consensus.compare(
            self._fleet.everyone, question, seen, path, self._signature, policy, limit_s=limit_s
        )

    # Step 8

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
            # integers have no NaN: nothing is to be explained where one became a number
            noted=None if self._file.quantized else self._observed.noted,
            differing=tuple(self._observed.differing),
            agreeing=tuple(self._observed.agreeing),
            space=self._space,
            hung=self._fleet.hung,
        )

    def _proof(self, error: str) -> Proof:
        observed = self._observed
        if observed.unconfirmed:
            unconfirmed = self._budget.not_confirmed(observed.unconfirmed[0], RERUNS + LOUD_RERUNS)
            self._findings.append(unconfirmed)
        if self._trial is not None:
            known = self._pacing is not None and self._pacing.verdict_is_known
            self._findings = mark_void(observed, self._trial, self._findings, self._request.policy)
            if not known:  # where the verdict was clear, nothing more had to be compared
                budget_s = self._request.budget_s
                self._findings += self._floor.findings(complete=self._complete, budget_s=budget_s)
        self._findings += [
            *self._reference.truth_findings(),
            *masked_findings(observed.gaps),
            *self._looping.unread_findings,
            *quality_findings(observed.gaps, self._request.policy),
        ]
        measured = Measured(
            request=self._request,
            observed=observed,
            findings=tuple(self._findings),
            reference=self._reference,
            file=self._file,
            signature=self._signature,
            coverage=self._coverage,
            consensus=self._consensus,
            rollouts=self._looping.rollouts,
            complete=self._complete,
            clock=self._clock,
            recording=self._recording,
        )
        return assemble_proof(measured, error)
