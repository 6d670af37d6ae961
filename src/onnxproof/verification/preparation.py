"""Before the cases: pair the two models, learn the input space, examine the runtimes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onnxproof.errors import InputError, OnnxproofError
from onnxproof.inputs import inference, rules
from onnxproof.inputs.roles import confirm_roles
from onnxproof.inputs.space import Space
from onnxproof.inputs.texts import with_decisions
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference import pairing
from onnxproof.reference.protocol import Reference
from onnxproof.reference.user_code import user_line
from onnxproof.results import Case, Finding, Signature
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification import fixed_batch, runtime_checks
from onnxproof.verification.budget import Budget, not_reached
from onnxproof.verification.evidence import Request
from onnxproof.verification.pacing import PASSES_OF_A_CASE
from onnxproof.verification.rollout import finding as loop_finding
from onnxproof.verification.rollout.driving import Driven
from onnxproof.verification.rollout.loop import Loop

_SHARE_FOR_RUNTIMES, _LEAST_FOR_RUNTIMES_S = 0.1, 3.0
"""Of the budget, and seconds at least (a quarter of a short budget at most): time in which the runtimes are examined."""
_PASSES_FOR_RUNTIMES = 3
"""Forward passes of the reference that the first questions to a runtime need: two answers and a truth."""

_PASSES_FOR_LOOPS = 12
"""Forward passes of the reference that it takes to confirm a loop."""


def pair(
    reference: Reference, file: OnnxFile, request: Request
) -> tuple[Signature, list[Finding], list[Loop]]:
    """How the inputs and outputs of the reference go with the file's, and the loops that it may have; what the user said of inputs holds from here on."""
    example = reference.example()
    try:
        inputs, outputs = reference.leaves(example)
    except OnnxproofError:
        raise
    except Exception as why:  # the user's own module on the user's own example
        raise InputError(
            "example-refused",
            f"the reference refuses the example inputs: {type(why).__name__}: {why}",
            where=user_line(why, ""),
            help="call the module with them by itself; inputs are a tuple, or a dict of keyword inputs",
        ) from why
    loops: list[Loop] = []
    if request.loop is not None:
        given = None if isinstance(request.loop, str) else request.loop
        loops = loop_finding.find(inputs, outputs, file, given)
    likely = loops[:1] if loops and not loops[0].is_guessed else []
    signature, findings = pairing.merge(
        inputs,
        outputs,
        file,
        tree=reference.tree,
        dynamic_shapes=request.subject.dynamic_shapes,
        states=[name for loop in likely for name in loop.inputs],
    )
    reference.rules = rules.resolve(
        request.subject.inputs, request.subject.dims, signature, example
    )
    try:
        reference.rules.check(example)
    except rules.RuledOut as why:
        raise InputError(
            "example-ruled-out",
            f"the example is not what was said of the inputs: {why}",
            help="give another example, or another `--values`, `--range` or `--avoid`",
        ) from why
    return signature, [*request.subject.findings, *findings], loops


def learn_space(
    reference: Reference,
    signature: Signature,
    file: OnnxFile,
    *,
    request: Request,
    budget: Budget,
    data: Iterable[tuple[str, Mapping[str, Any]]],
    loops: Sequence[Loop] = (),
) -> tuple[Space, list[Finding], Driven | None]:
    """The input space: which dims vary together, and which inputs really are masks, both tried on the reference."""
    space = inference.make_space(
        signature,
        reference.example(),
        file,
        seed=request.seed,
        domains=request.policy.domains,
        data=data,
        parameter=reference.parameter,
        rules=reference.rules,
    )
    space = with_decisions(space, reference.decisions())

    example = Case(name="example", group="ordinary", about="", inputs=reference.example())
    if refusal := space.refusal(example):
        raise InputError(
            "example-ruled-out",
            f"the example is not what was said of the dims: {refusal}",
            help="give another example, or another `--dim`",
        )

    def affordable() -> bool:
        """Whether a pass for a dim and one case still fit."""
        return budget.affords(PASSES_OF_A_CASE + 1)

    def accepts(case: Case) -> bool:
        try:
            reference.run(case.inputs)
        except Exception:  # any refusal is an answer here
            return False
        return True

    findings = []
    driven = None
    if loops and budget.affords(_PASSES_FOR_LOOPS):
        driven, reason = loop_finding.choose(loops, space, reference)
        if driven is not None:
            space = driven.space
        elif reason:
            findings.append(_not_rolled(reason))
    if affordable():
        space = inference.learn_dims(space, accepts, affordable)
    elif space.signature.dims:
        findings.append(not_reached("which sizes go together was not learned"))
    if request.subject.dynamic_shapes is None and not request.only and affordable():
        findings += fixed_batch.examine(reference, signature)
    space = inference.fit_ids(confirm_roles(space, reference.run), accepts)
    return space, findings, loop_finding.adapt(driven, space)


def _not_rolled(reason: str) -> Finding:
    return Finding(
        code="loop-not-rolled",
        what=f"outputs of the model seem to feed its inputs, and that was not rolled out: {reason}",
        help="`--loop OUT=IN` says which, `--no-loop` that there are none",
    )


def examine_runtimes(
    candidates: Sequence[Candidate],
    reference: Reference,
    signature: Signature,
    *,
    request: Request,
    budget: Budget,
    sizes: Any,
    quantized: bool,
) -> list[Finding]:
    """The runtimes themselves, where their share of the time is enough for the questions."""
    budget_s = request.budget_s
    share = max(min(_LEAST_FOR_RUNTIMES_S, budget_s / 4), budget_s * _SHARE_FOR_RUNTIMES)
    needed = _PASSES_FOR_RUNTIMES * budget.pass_s
    if needed > share or not budget.affords(_PASSES_FOR_RUNTIMES + PASSES_OF_A_CASE):
        what = "the runtimes themselves were not examined (the same answer twice, other threads, an empty batch)"
        return [not_reached(what)]
    return runtime_checks.examine(
        candidates,
        reference,
        request.path,
        signature,
        request.policy,
        deadline=budget.end.within(share),
        sizes=sizes,
        quantized=quantized,
    )
