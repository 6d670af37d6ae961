"""Every sentence that depends on something: one result of which it is true and is printed, and one of which it would be false and is not.

`test_no_sentence_is_left_out` reads the writers' own source: a new sentence needs a line in the table below.
"""

import ast
import io
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.made_proofs import crossed, full, gap

from onnxproof.errors import VerdictError
from onnxproof.options import Policy
from onnxproof.quantization.kernel_report import KernelCounts
from onnxproof.quantization.paired_metric import Metric, Outcome
from onnxproof.quantization.result import Quantized
from onnxproof.quantization.scoring import Score
from onnxproof.quantization.stage_errors import StageError
from onnxproof.quantization.tuning_state import Budget, Point, Step
from onnxproof.report import consensus_table, github, quantized, rows, terminal
from onnxproof.report.writers import html, junit, markdown, sarif
from onnxproof.results import (
    CalibrationRange,
    Cause,
    Coverage,
    DimInfo,
    Domain,
    Dropped,
    ExportedDim,
    ExportRecord,
    Finding,
    Fix,
    Gap,
    Location,
    NoiseKind,
    Note,
    Part,
    Share,
    Signature,
    Source,
    Stage,
    Status,
    Verdict,
    Void,
)
from onnxproof.results.proof import JUDGED_AGAIN, Proof

SOURCE = Path(__file__).parents[2] / "src" / "onnxproof"


def small(case: str = "example", ratio: float = 1.0, **other: Any) -> Gap:
    return gap(
        case, str(other.pop("group", "ordinary")), str(other.pop("backend", "ort")), ratio, **other
    )


def rounded(level: float = 40.0, **other: Any) -> Gap:
    """A gap of a quantized candidate."""
    return small(
        ratio=0.1,
        **{
            "noise_kind": NoiseKind.SIMULATED,
            "sqnr_db": level,
            "channel_db": level - 5,
            "clipped": 0.0,
            "top1": 1.0,
            "ordinary": True,
            "allowance": 900.0,
            **other,
        },
    )


def proof(*gaps: Gap, verdict: Verdict = Verdict.FAITHFUL, **other: Any) -> Proof:
    """A proof with these gaps and nothing else to tell."""
    nothing: dict[str, Any] = {
        "location": None,
        "causes": (),
        "notes": (),
        "findings": (),
        "dropped": (),
        "error": "",
        "policy": Policy(),
        "complete": True,
        "backends": ("ort",),
        "cross": None,
        "waterfall": (),
        "ranges": (),
        "tried": (),
        "untried": (),
        "half": "",
        "export": None,
        "coverage": Coverage(),
        "replay": "",
        "budget_s": 10.0,
        "seconds": {"total": 2.0, "ort": 1.0},
    }
    return replace(full(), verdict=verdict, gaps=gaps, **{**nothing, **other})


SOUND = proof(small())
WRONG = proof(small("batch=2", 5e4, allowance=300.0), verdict=Verdict.DIVERGED)
DRIFTING = proof(small("batch=2", 40.0), verdict=Verdict.DRIFT)


def folder(*, judged: bool = True) -> Proof:
    """A proof of a folder of one file."""
    part = Part(
        file="model.onnx",
        role="step",
        verdict=Verdict.FAITHFUL,
        sentence="it matches",
        cases=3,
        judged=judged,
    )
    return replace(SOUND, parts=(part,))


INT8 = proof(rounded(case="data-0", group="data"))
BOTH_INT8 = proof(rounded(case="data-0", group="data", noise_kind=NoiseKind.TWIN, clipped=0.4))
BOTH_APART = proof(
    rounded(30.0, case="data-0", group="data", noise_kind=NoiseKind.TWIN, clipped=0.4),
    verdict=Verdict.DRIFT,
)
TANKED = proof(rounded(3.0, case="data-0", group="data"), verdict=Verdict.DIVERGED)
DOUBT = Finding(
    code="few-samples", what="there is 1 calibration sample", help="give a few hundred", doubts=True
)
DOUBTED = replace(INT8, verdict=Verdict.DRIFT, findings=(DOUBT,))
CAUSE = Cause(
    code="attribute",
    title="another epsilon",
    proven=True,
    evidence="1e-6",
    before=331.0,
    after=1.2,
    fix=Fix(kind="graph", what="set it", verdict=Verdict.FAITHFUL),
)
PLACE = Location(
    stage=Stage.EXPORT,
    nodes=("norm",),
    module="norm",
    source=Source(file="model.py", line=3, text="x"),
    evidence="wrong while its inputs are right",
)
NOTE = Note(
    domain=Domain.NAN,
    case="c",
    backend="ort",
    output="y",
    what="NaN",
    reference="nan",
    candidate="0",
)


def drawn(draw: Callable[[Console], None]) -> str:
    stream = io.StringIO()
    draw(Console(file=stream, width=200, highlight=False))
    return stream.getvalue()


def shown(made: Proof, *, verbose: bool = False) -> str:
    return drawn(lambda out: terminal.show(made, out, verbose=verbose))


def explained(made: Proof) -> str:
    return drawn(lambda out: terminal.explain(made, out))


def exported(**dim: Any) -> str:
    return shown(
        replace(SOUND, export=ExportRecord(dims=(ExportedDim(input="x", axis=0, size=4, **dim),)))
    )


def opened(**dim: Any) -> str:
    inputs = full().signature
    return shown(
        replace(
            SOUND,
            signature=Signature(
                inputs=inputs.inputs,
                outputs=inputs.outputs,
                dims=(DimInfo(name="batch", example=3, **dim),),
            ),
        ),
        verbose=True,
    )


METRIC = Metric(before=0.9, after=0.89, drop=0.01, low=-0.001, high=0.02, samples=100, changed=3)
LIST = (Step(name="smooth", what="weights", before_db=30.0, after_db=33.0, kept=True),)


def result(made: Proof = INT8, **other: Any) -> str:
    whole = Quantized(
        **{
            "path": Path("q.onnx"),
            "scheme": "u8s8",
            "proof": made,
            "score": Score(sqnr_db=40.0, agreement=0.99),
            "metric": None,
            "budget": Budget(),
            "met": True,
            "outcome": Outcome.SHOWN,
            "samples": 200,
            "steps": LIST,
            "front": (Point(name="a", sqnr_db=40.0, latency_s=1e-3, size=10, best=True),) * 2,
            "ledger": (StageError(stage="ONNX, float", sqnr_db=math.inf, steps=0.0),),
            "census": KernelCounts(integer={"QLinearConv": 2}),
            "findings": made.findings,
            "float_size": 100,
            "size": 30,
            "float_latency_s": 2e-3,
            "latency_s": 1e-3,
            **other,
        }
    )
    return drawn(lambda out: quantized.show(whole, out))


def missed(outcome: Outcome, **metric: Any) -> str:
    return result(
        met=False, outcome=outcome, metric=replace(METRIC, **metric), budget=Budget(max_drop=0.015)
    )


CROSSED = crossed()
TOGETHER = (
    "\n".join(consensus_table.words(replace(CROSSED.cross, disagree=())))
    if CROSSED.cross is not None
    else ""
)
TIMED = replace(WRONG, complete=False, seconds={"total": 9.9})
SEARCHED = replace(
    WRONG,
    tried=("a: no",),
    untried=("b: no time was left to try it", "c: no time was left to try it"),
)
SATURATED = proof(rounded(case="data-0", group="data", unsaturated_db=60.0), verdict=Verdict.DRIFT)
CLIPPED = proof(rounded(case="data-0", group="data", clipped=0.2), verdict=Verdict.DRIFT)
BIASED = proof(small(ratio=5.0, bias=4.0), verdict=Verdict.DRIFT)
LOST = proof(small(lost=2), verdict=Verdict.DIVERGED)
COUNTED = Finding(code="nan-dropped", what="ort drops NaN", counts=True)


def void(what: str) -> Proof:
    return proof(
        small(), verdict=Verdict.VACUOUS, findings=(Finding(code="nothing", what=what, voids=True),)
    )


def waterfall(*codes: str) -> str:
    return shown(
        replace(
            TANKED,
            waterfall=tuple(Share(code=code, db=3.0, share=0.5, after_db=30.0) for code in codes),
        )
    )


SENTENCES: list[tuple[str, str, Callable[[], str], Callable[[], str]]] = [
    # proof.py: the verdict in one sentence
    (
        "proof",
        "nothing was compared, so nothing is proven",
        lambda: proof(verdict=Verdict.VACUOUS).sentence(),
        SOUND.sentence,
    ),
    (
        "proof",
        "the proof could not be completed: ",
        lambda: proof(small(), verdict=Verdict.ERROR, error="error[x]: y").sentence(),
        SOUND.sentence,
    ),
    ("proof", "at most 1.0 times the rounding noise", SOUND.sentence, WRONG.sentence),
    (
        "proof",
        "and every difference is a note",
        lambda: proof(small(domain=Domain.TIES)).sentence(),
        SOUND.sentence,
    ),
    (
        "proof",
        "; only chosen cases were run",
        lambda: replace(SOUND, chosen=("example",)).sentence(),
        SOUND.sentence,
    ),
    (
        "proof",
        "; not all cases were run, since the budget of 10 s ended",
        lambda: replace(SOUND, complete=False).sentence(),
        SOUND.sentence,
    ),
    (
        "proof",
        "nothing is proven: the reference draws",
        lambda: void("the reference draws random numbers").sentence(),
        void("not enough was compared").sentence,
    ),
    (
        "proof",
        "not enough was compared: the example is missing",
        lambda: void("not enough was compared: the example is missing").sentence(),
        SOUND.sentence,
    ),
    ("proof", " times the rounding noise", SOUND.sentence, INT8.sentence),
    ("proof", " of float16 itself", replace(SOUND, half="float16").sentence, SOUND.sentence),
    ("proof", " differs from ", WRONG.sentence, SOUND.sentence),
    (
        "proof",
        "differs from",
        replace(SOUND, verdict=Verdict.DIVERGED, findings=(COUNTED,)).sentence,
        DRIFTING.sentence,
    ),
    ("proof", "drifts from", DRIFTING.sentence, WRONG.sentence),
    ("proof", " times the rounding noise (max abs ", WRONG.sentence, BIASED.sentence),
    (
        "proof",
        " times the rounding noise, and the graph itself, in float64, ",
        BIASED.sentence,
        WRONG.sentence,
    ),
    ("proof", " times (max abs ", BIASED.sentence, WRONG.sentence),
    ("proof", "allclose fails", WRONG.sentence, DRIFTING.sentence),
    ("proof", "allclose passes", DRIFTING.sentence, WRONG.sentence),
    (
        "proof",
        " elements are NaN or infinite where the reference is finite",
        LOST.sentence,
        WRONG.sentence,
    ),
    (
        "proof",
        "integers differ",
        proof(small(mismatches=3, ratio=1e6), verdict=Verdict.DIVERGED).sentence,
        WRONG.sentence,
    ),
    ("proof", "the runtime adds ", INT8.sentence, SOUND.sentence),
    ("proof", " times what the graph's own quantization costs", INT8.sentence, SOUND.sentence),
    ("proof", " of the inputs clipped", CLIPPED.sentence, INT8.sentence),
    ("proof", " dB lost to 16-bit ranges that clip", SATURATED.sentence, INT8.sentence),
    ("proof", "is a sound quantization of", INT8.sentence, DOUBTED.sentence),
    ("proof", "is a sound quantization of", INT8.sentence, TANKED.sentence),
    ("proof", "matches the quantized", BOTH_INT8.sentence, INT8.sentence),
    ("proof", "of the inputs clipped", CLIPPED.sentence, BOTH_INT8.sentence),
    (
        "proof",
        "is further than it should be from the quantized",
        BOTH_APART.sentence,
        BOTH_INT8.sentence,
    ),
    ("proof", "loses more than quantization should of", CLIPPED.sentence, DOUBTED.sentence),
    ("proof", "may be no sound quantization of", DOUBTED.sentence, CLIPPED.sentence),
    (
        "proof",
        "there is 1 calibration sample",
        DOUBTED.sentence,
        replace(CLIPPED, findings=(DOUBT,)).sentence,
    ),
    (
        "proof",
        "ort drops NaN",
        replace(INT8, verdict=Verdict.DIVERGED, findings=(COUNTED,)).sentence,
        replace(TANKED, findings=(COUNTED,)).sentence,
    ),
    ("proof", "the example inputs", proof(rounded()).sentence, INT8.sentence),
    ("proof", "your data", INT8.sentence, proof(rounded()).sentence),
    ("proof", "cases differ", lambda: raised(WRONG), lambda: raised(TANKED)),
    (
        "proof",
        "judged again under a stricter policy than it was measured with: a run under this policy would search and confirm more",
        lambda: JUDGED_AGAIN.what + str(SOUND.judged(Policy(noise_limit=2.0)).findings),
        lambda: str(SOUND.judged(Policy(noise_limit=20.0)).findings),
    ),
    (
        "proof",
        "verify again with these limits before you rely on it",
        lambda: str(SOUND.judged(Policy(noise_limit=2.0)).findings),
        lambda: str(SOUND.judged(Policy(noise_limit=20.0)).findings),
    ),
    # terminal.py
    (
        "terminal",
        "allclose: share of the classical tolerance that the worst element used, 100% and more fails",
        lambda: shown(SOUND, verbose=True),
        lambda: shown(INT8, verbose=True),
    ),
    (
        "terminal",
        "SQNR: what is left of the reference's answers, asked on your data, or else on the example inputs",
        lambda: shown(INT8, verbose=True),
        lambda: shown(SOUND, verbose=True),
    ),
    (
        "terminal",
        "allclose or SQNR",
        lambda: shown(proof(rounded(), small("batch=2"))),
        lambda: shown(INT8),
    ),
    ("terminal", "by its loop", lambda: shown(folder(judged=False)), lambda: shown(folder())),
    ("terminal", "the run was stopped", lambda: shown(stopped()), lambda: shown(TIMED)),
    (
        "terminal",
        "an error came first",
        lambda: shown(replace(stopped(), error="error[runtime]: gone")),
        lambda: shown(stopped()),
    ),
    (
        "terminal",
        "the verdict was clear",
        lambda: shown(replace(WRONG, complete=False)),
        lambda: shown(TIMED),
    ),
    (
        "terminal",
        "the verdict was clear",
        lambda: shown(replace(WRONG, complete=False)),
        lambda: shown(replace(DRIFTING, complete=False, seconds={"total": 9.9})),
    ),
    ("terminal", "the budget of ", lambda: shown(TIMED), lambda: shown(stopped())),
    ("terminal", "  not all cases were run: ", lambda: shown(TIMED), lambda: shown(WRONG)),
    (
        "terminal",
        "they count, since the policy is strict about domains",
        lambda: shown(replace(SOUND, notes=(NOTE,), policy=Policy(strict_domains=True))),
        lambda: shown(replace(SOUND, notes=(NOTE,))),
    ),
    (
        "terminal",
        "they do not change the verdict",
        lambda: shown(replace(SOUND, notes=(NOTE,))),
        lambda: shown(replace(SOUND, notes=(NOTE,), policy=Policy(strict_domains=True))),
    ),
    (
        "terminal",
        " differences where runtimes differ by nature; ",
        lambda: shown(replace(SOUND, notes=(NOTE,))),
        lambda: shown(SOUND),
    ),
    (
        "terminal",
        "fails, since the policy is strict",
        lambda: shown(replace(DRIFTING, policy=Policy(strict=True))),
        lambda: shown(DRIFTING),
    ),
    (
        "terminal",
        "passes, but it is a real defect: `--strict` makes it fail",
        lambda: shown(DRIFTING),
        lambda: shown(replace(DRIFTING, policy=Policy(strict=True))),
    ),
    (
        "terminal",
        "  a difference that rounding does not explain, too small for ",
        lambda: shown(DRIFTING),
        lambda: shown(DOUBTED),
    ),
    (
        "terminal",
        "replay the worst case:",
        lambda: shown(replace(WRONG, replay="onnxproof verify")),
        lambda: shown(WRONG),
    ),
    (
        "terminal",
        "replay the worst case:",
        lambda: explained(replace(WRONG, replay="onnxproof verify")),
        lambda: explained(WRONG),
    ),
    (
        "terminal",
        "  this proof does not say where: it was made with --no-explain, or nothing could be located",
        lambda: explained(WRONG),
        lambda: explained(replace(WRONG, location=PLACE)),
    ),
    (
        "plain",
        " times the noise before, ",
        lambda: shown(replace(WRONG, causes=(CAUSE,))),
        lambda: shown(replace(WRONG, causes=(replace(CAUSE, before=0.0),))),
    ),
    (
        "plain",
        " times the noise)",
        lambda: shown(replace(WRONG, causes=(replace(CAUSE, after=None),))),
        lambda: shown(replace(WRONG, causes=(CAUSE,))),
    ),
    (
        "terminal",
        "1 were ruled out (`tried` in the JSON says how)",
        lambda: shown(SEARCHED),
        lambda: shown(replace(SEARCHED, tried=())),
    ),
    (
        "terminal",
        "2 were not tried (`untried` says why)",
        lambda: shown(SEARCHED),
        lambda: shown(replace(SEARCHED, untried=())),
    ),
    (
        "terminal",
        "; `explain --repro DIR` makes a small case of it",
        lambda: shown(SEARCHED),
        lambda: shown(replace(SEARCHED, causes=(CAUSE,))),
    ),
    (
        "terminal",
        "proven cause",
        lambda: shown(replace(WRONG, causes=(CAUSE,))),
        lambda: shown(replace(WRONG, causes=(replace(CAUSE, proven=False),))),
    ),
    (
        "terminal",
        "possible cause",
        lambda: shown(replace(WRONG, causes=(replace(CAUSE, proven=False),))),
        lambda: shown(replace(WRONG, causes=(CAUSE,))),
    ),
    (
        "terminal",
        "  = note: in module ",
        lambda: shown(replace(WRONG, location=PLACE)),
        lambda: shown(replace(WRONG, location=replace(PLACE, module=""))),
    ),
    ("terminal", " in the example, ", lambda: opened(), lambda: shown(SOUND)),
    ("terminal", " (left open by the file)", lambda: opened(), lambda: opened(declared=True)),
    ("terminal", "in the file", lambda: shown(SOUND, verbose=True), lambda: shown(SOUND)),
    # rows.py
    (
        "rows",
        "allclose or SQNR",
        lambda: rows.last_column(proof(rounded(), small("batch=2"))),
        lambda: rows.last_column(INT8),
    ),
    (
        "rows",
        " cases dropped, since the reference refuses them",
        lambda: shown(replace(SOUND, dropped=(Dropped(case="c", reason="r"),))),
        lambda: shown(SOUND),
    ),
    (
        "rows",
        " in forward passes)",
        lambda: shown(SOUND),
        lambda: shown(replace(SOUND, seconds={})),
    ),
    (
        "rows",
        " decision points reached",
        lambda: shown(replace(SOUND, coverage=Coverage(points=3, exercised=2))),
        lambda: shown(SOUND),
    ),
    (
        "rows",
        "no single node",
        lambda: rows.place(replace(WRONG, location=replace(PLACE, nodes=()))),
        lambda: rows.place(replace(WRONG, location=PLACE)),
    ),
    # crosscheck.py
    ("crosscheck", "only one of them answers", lambda: shown(CROSSED), lambda: TOGETHER),
    ("crosscheck", "their answers are ", lambda: shown(CROSSED), lambda: TOGETHER),
    ("crosscheck", " apart, relative to their size", lambda: shown(CROSSED), lambda: TOGETHER),
    ("crosscheck", ": x noise, worst case", lambda: shown(CROSSED), lambda: shown(SOUND)),
    # export_table.py
    (
        "export_table",
        "; the module itself takes other sizes",
        lambda: exported(reason="a branch", baked=True),
        lambda: exported(reason="a branch"),
    ),
    (
        "export_table",
        "the range you gave",
        lambda: exported(name="n", promised=True),
        lambda: exported(name="n"),
    ),
    # quality.py
    (
        "quality",
        "the example inputs (give --data for an answer on real ones)",
        lambda: shown(proof(rounded())),
        lambda: shown(INT8),
    ),
    (
        "quality",
        "same best class ",
        lambda: shown(INT8),
        lambda: shown(proof(rounded(case="data-0", group="data", top1=None))),
    ),
    (
        "quality",
        "same nearest neighbour 90.00%",
        lambda: shown(proof(rounded(case="data-0", group="data", top1=None, retrieval=0.9))),
        lambda: shown(INT8),
    ),
    (
        "quality",
        " of the inputs clipped",
        lambda: shown(INT8),
        lambda: shown(proof(rounded(case="data-0", group="data", clipped=None))),
    ),
    ("quality", "where the error comes from", lambda: waterfall("rest"), lambda: shown(TANKED)),
    ("quality", "all of it", lambda: waterfall("rest"), lambda: shown(TANKED)),
    *[
        ("quality", words, lambda code=code: waterfall(code), lambda: waterfall("rest"))
        for code, words in {  # type: ignore[misc]
            "quant-saturation": "biases that don't fit their integers",
            "runtime": "the runtime, beyond what the graph says",
            "unfused": "roundings between what should be one",
            "calibration": "ranges from other data",
            "outlier": "rare large values in the ranges",
            "channel-imbalance": "one scale for unequal channels",
            "8-bit activations": "activations in 8 bits",
            "weights: one scale a tensor": "one scale for a whole weight",
            "8-bit weights": "weights and biases as integers",
        }.items()
    ],
    # quantized.py
    ("quantized", " against the float model (in doubt)", lambda: result(DOUBTED), lambda: result()),
    ("quantized", " against the float model", lambda: result(), lambda: shown(INT8)),
    (
        "quantized",
        "there is 1 calibration sample",
        lambda: result(DOUBTED).splitlines()[0],
        lambda: result().splitlines()[0],
    ),
    (
        "quantized",
        "more doubts",
        lambda: result(replace(DOUBTED, findings=(DOUBT, DOUBT))),
        lambda: result(DOUBTED),
    ),
    (
        "quantized",
        "the same best class for ",
        lambda: result(),
        lambda: result(score=Score(sqnr_db=40.0, agreement=None)),
    ),
    (
        "quantized",
        "the same nearest neighbour for ",
        lambda: result(score=Score(sqnr_db=40.0, agreement=None, retrieval=0.9)),
        lambda: result(),
    ),
    (
        "quantized",
        " of them known from an earlier run",
        lambda: result(recalled=3, tried=5),
        lambda: result(recalled=0, tried=5),
    ),
    ("quantized", " heavy nodes run as integers", lambda: result(), lambda: shown(INT8)),
    ("quantized", "  the budget does not hold: ", lambda: result(met=False), lambda: result()),
    (
        "quantized",
        " dB that were aimed at",
        lambda: result(met=False, score=Score(sqnr_db=20.0, agreement=1.0)),
        lambda: result(),
    ),
    (
        "quantized",
        "the file has ",
        lambda: result(met=False, budget=Budget(max_size=1)),
        lambda: result(met=False),
    ),
    (
        "quantized",
        "a pass takes",
        lambda: result(met=False, budget=Budget(max_latency=1e-6)),
        lambda: result(met=False),
    ),
    (
        "quantized",
        "the metric drops by ",
        lambda: missed(Outcome.BEYOND),
        lambda: missed(Outcome.NOT_SHOWN),
    ),
    (
        "quantized",
        " is allowed; the most accurate graph that was tried is written",
        lambda: missed(Outcome.BEYOND),
        lambda: missed(Outcome.NOT_SHOWN),
    ),
    (
        "quantized",
        "a drop of at most ",
        lambda: missed(Outcome.NOT_SHOWN),
        lambda: missed(Outcome.BEYOND),
    ),
    (
        "quantized",
        " is not shown with ",
        lambda: missed(Outcome.NOT_SHOWN),
        lambda: missed(Outcome.BEYOND),
    ),
    (
        "quantized",
        "; the fastest graph is written all the same",
        lambda: missed(Outcome.NOT_SHOWN),
        lambda: missed(Outcome.BEYOND),
    ),
    (
        "quantized",
        "let the evaluator return one score for each sample, or take its number as it is with `--confidence 0`",
        lambda: missed(Outcome.NOT_SHOWN, samples=1),
        lambda: missed(Outcome.NOT_SHOWN),
    ),
    (
        "quantized",
        "the estimate itself is beyond it, so more samples would hardly show it",
        lambda: missed(Outcome.NOT_SHOWN, drop=0.02),
        lambda: missed(Outcome.NOT_SHOWN),
    ),
    (
        "quantized",
        " samples would show it if the drop stays as it is",
        lambda: missed(Outcome.NOT_SHOWN),
        lambda: missed(Outcome.NOT_SHOWN, drop=0.02),
    ),
    (
        "quantized",
        "no interval asked for",
        lambda: result(metric=replace(METRIC, confidence=0.0)),
        lambda: result(metric=METRIC),
    ),
    ("quantized", "tried (* nothing beats it)", lambda: result(), lambda: result(front=())),
    (
        "quantized",
        ", the worst first)",
        lambda: result(
            replace(
                INT8,
                ranges=(
                    CalibrationRange(
                        tensor="t", low=0, high=1, chosen_low=0, chosen_high=1, clipped=0
                    ),
                ),
            )
        ),
        lambda: result(),
    ),
    (
        "quantized",
        " conversions on the way",
        lambda: result(census=KernelCounts(fallback={"Conv": 1}, conversions=4)),
        lambda: result(),
    ),
    (
        "quantized",
        "prove it again:",
        lambda: result(replace(INT8, replay="onnxproof verify")),
        lambda: result(),
    ),
    # the other writers
    (
        "junit_writer",
        " (times the noise / worst element / max abs / ",
        lambda: junit.dumps(SOUND),
        lambda: junit.dumps(proof(verdict=Verdict.VACUOUS)),
    ),
    (
        "junit_writer",
        "nothing is proven: constant",
        lambda: junit.dumps(proof(small(void=Void.CONSTANT), verdict=Verdict.VACUOUS)),
        lambda: junit.dumps(SOUND),
    ),
    (
        "junit_writer",
        "nothing was compared",
        lambda: junit.dumps(proof(small(status=Status.EMPTY, compared=0), verdict=Verdict.VACUOUS)),
        lambda: junit.dumps(SOUND),
    ),
    (
        "junit_writer",
        "finding few-samples",
        lambda: junit.dumps(replace(DOUBTED, policy=Policy(strict=True))),
        lambda: junit.dumps(DOUBTED),
    ),
    (
        "markdown_writer",
        " ERROR: nothing was measured",
        lambda: markdown.failure("error[x]: y"),
        lambda: markdown.dumps(SOUND),
    ),
    (
        "markdown_writer",
        "Replay the worst case:",
        lambda: markdown.dumps(replace(WRONG, replay="onnxproof verify")),
        lambda: markdown.dumps(WRONG),
    ),
    (
        "markdown_writer",
        "| group | backend | cases | worst case | × noise | × peak | max abs | ",
        lambda: markdown.dumps(SOUND),
        lambda: markdown.dumps(proof(verdict=Verdict.VACUOUS)),
    ),
    (
        "markdown_writer",
        "| group | backend | cases | worst case | runtime adds | at worst | max abs | SQNR | ",
        lambda: markdown.dumps(INT8),
        lambda: markdown.dumps(SOUND),
    ),
    (
        "terminal",
        "runtime adds: its error beyond the graph's own quantization",
        lambda: shown(INT8, verbose=True),
        lambda: shown(SOUND, verbose=True),
    ),
    (
        "plain",
        " times the noise before, ",
        lambda: markdown.dumps(replace(WRONG, causes=(CAUSE,))),
        lambda: markdown.dumps(WRONG),
    ),
    (
        "markdown_writer",
        ": × noise, worst case",
        lambda: markdown.dumps(CROSSED),
        lambda: markdown.dumps(SOUND),
    ),
    (
        "sarif_writer",
        "onnxproof explain --cause attribute",
        lambda: sarif.dumps(replace(WRONG, causes=(CAUSE,))),
        lambda: sarif.dumps(WRONG),
    ),
    (
        "sarif_writer",
        "onnxproof explain --cause ",
        lambda: sarif.dumps(replace(WRONG, causes=(CAUSE,))),
        lambda: sarif.dumps(replace(DOUBTED, findings=(DOUBT, COUNTED))),
    ),
    (
        "github",
        "::warning title=onnxproof%3A few-samples",
        lambda: github.annotations(DOUBTED),
        lambda: github.annotations(replace(DOUBTED, findings=(replace(DOUBT, doubts=False),))),
    ),
]
_NO_SENTENCES = {
    "onnxproof.report.writers",
    "onnxproof.report.writers.",
    "a proof is more than a yes or no: use proof.verdict or proof.raise_for_verdict()",
    "onnxproof.diagnosis.repro.writing",
    '<?xml version="1.0" encoding="UTF-8"?>',
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
    "GITHUB_STEP_SUMMARY",
    "weights: one scale a tensor",
}
"""What has three words and is a key, an address or the text of an error, which has tests of its own."""
_LEAST_WORDS = 3


def raised(made: Proof) -> str:
    with pytest.raises(VerdictError) as why:
        made.raise_for_verdict()
    return why.value.render()


def stopped() -> Proof:
    return replace(
        SOUND,
        verdict=Verdict.ERROR,
        complete=False,
        error="error[interrupted]: stopped by the user after 1 cases: there is no verdict",
        seconds={"total": 9.9},
    )


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "when", "never"),
    [entry[1:] for entry in SENTENCES],
    ids=[f"{place}: {words.strip()[:60]}" for place, words, _, _ in SENTENCES],
)
def test_a_sentence_is_printed_where_it_is_true_and_only_there(
    words: str, when: Callable[[], str], never: Callable[[], str]
) -> None:
    assert flat(words) in flat(when())
    assert flat(words) not in flat(never())


def literals(path: Path) -> Iterator[str]:
    """Strings of several words in a file, but docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
            and len(re.findall("[A-Za-z]{2,}", node.value)) >= _LEAST_WORDS
        ):
            yield node.value


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("proof", "results/proof"),
        ("proof", "results/sentences"),
        ("terminal", "report/terminal"),
        ("rows", "report/rows"),
        ("crosscheck", "report/consensus_table"),
        ("export_table", "report/export_table"),
        ("quality", "report/quality"),
        ("quantized", "report/quantized"),
        ("junit_writer", "report/writers/junit"),
        ("markdown_writer", "report/writers/markdown"),
        ("sarif_writer", "report/writers/sarif"),
        ("github", "report/github"),
        ("plain", "report/plain"),
    ],
)
def test_no_sentence_is_left_out(name: str, file: str) -> None:
    mine = [flat(words) for place, words, _, _ in SENTENCES if place == name]
    known = {flat(words) for words in _NO_SENTENCES}
    missing = [
        words
        for words in literals(SOURCE / f"{file}.py")
        if flat(words) not in known
        and not any(flat(words) in line or line in flat(words) for line in mine)
    ]
    assert missing == []


@pytest.mark.parametrize("level", [math.inf, -math.inf, math.nan, 31.0])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_no_figure_is_a_word_that_people_do_not_know(level: float, scale: float) -> None:
    gap_ = rounded(
        level,
        case="data-0",
        group="data",
        scale=scale,
        channel_db=level,
        max_abs=0.0 if level > 0 else 1.0,
    )
    steps = (Share(code="rest", db=0.0, share=1.0, after_db=level),)
    made = proof(gap_, waterfall=steps).judged(Policy())
    texts = [
        shown(made, verbose=True),
        junit.dumps(made),
        markdown.dumps(made),
        sarif.dumps(made),
        made.sentence(),
        result(made, score=Score(sqnr_db=level, agreement=None)),
    ]
    for text in texts:
        assert not re.search(r"\b(nan|inf) ?(dB|%)|-inf", text), text


def test_the_page_says_what_its_columns_are() -> None:
    """The page's own conditional words: the legend of the tables, and whether all cases were run."""
    sound, rounded_ = (html.dumps(made) for made in (SOUND, replace(INT8, complete=False)))
    for words, there, elsewhere in (
        ("beyond 100% it fails", sound, rounded_),
        ("what is left of the reference's answers", rounded_, sound),
        (", not all cases were run", rounded_, sound),
        (">SQNR</th>", rounded_, sound),
        (">allclose</th>", sound, rounded_),
    ):
        assert words in there and words not in elsewhere, words


def test_a_row_of_a_quantized_file_has_the_verdict_that_quality_gave() -> None:
    assert [(row.verdict, rows.numbers(row.worst)[3]) for row in rows.rows(TANKED)] == [
        (Verdict.DIVERGED, "3.0 dB")
    ]
    assert "allclose" not in shown(TANKED)
    assert "<failure" in junit.dumps(TANKED)
    beside = proof(
        rounded(40.0, case="data-0", group="data"), rounded(2.0)
    )  # the example is not asked where there is data
    assert {row.verdict for row in rows.rows(beside)} == {Verdict.FAITHFUL}


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_half_file_is_told_to_be_measured_by_halfs_own_noise(kind: str, tmp_path: Path) -> None:
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper

    import onnxproof

    torch.manual_seed(0)
    module = torch.nn.Linear(16, 8, bias=False).eval()
    weight = numpy_helper.from_array(module.weight.detach().numpy().T.astype(kind), "w")
    nodes = [
        helper.make_node(
            "Cast",
            ["input"],
            ["h"],
            to=getattr(TensorProto, kind.upper().replace("FLOAT32", "FLOAT")),
        ),
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["output"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", 8])],
        [weight],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    made = onnxproof.verify(
        module,
        tmp_path / "m.onnx",
        (torch.randn(4, 16),),
        budget_s=2,
        policy=Policy(domains=()),
        explain=False,
    )
    assert made.half == ("float16" if kind == "float16" else "")
    assert made.verdict is Verdict.FAITHFUL and made.sentence().endswith(
        "of float16 itself" if kind == "float16" else "the rounding noise"
    )
