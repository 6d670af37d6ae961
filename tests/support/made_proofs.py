"""Proofs that no run makes: one in which no field has its default, large ones, and ones whose every name is hostile."""

import math
import random
from dataclasses import replace

import numpy as np

from onnxproof.options import Policy
from onnxproof.results import (
    CalibrationRange,
    Case,
    Cause,
    Coverage,
    CrossCheck,
    DimInfo,
    Domain,
    Dropped,
    Finding,
    Fix,
    Gap,
    InputInfo,
    Location,
    NodeGap,
    NoiseKind,
    Note,
    OutputInfo,
    Profile,
    Share,
    Signature,
    Source,
    Stage,
    Standing,
    Status,
    Suspect,
    Verdict,
    Void,
)
from onnxproof.results.proof import Proof

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "'\"`${document.title='owned'}",
    "a\u202eb\u2066c\u200f",
    "\x1b[31mred\x1b]0;owned\x07",
    "x" * 10_000,
    "]]><!--",
    "{{ 7 * 7 }}{% raw %}",
    "| a | b |\n\n# owned @everyone",
    "::error file=x::owned\r\n%0A",
)


def full() -> Proof:
    """A proof in which no field has its default."""
    source = Source(file="model.py", line=13, text="return self.norm(x)")
    gap = Gap(
        case="ordinary-1",
        group="ordinary",
        backend="ort",
        output="y",
        status=Status.COMPARED,
        compared=12,
        scale=0.5,
        max_abs=1e-4,
        max_rel=math.inf,
        rms=1e-5,
        ulps=8.0,
        cosine=1.0,
        allowance=0.4,
        atol_needed=(1e-4, 0.0),
        noise=1e-8,
        noise_kind=NoiseKind.DOUBLE,
        noise_ratio=331.5,
        worst_ratio=-math.inf,
        worst=(0, 3),
        top1=1.0,
        rank=0.9,
        confirmed=True,
        domain=Domain.TIES,
        sqnr_db=120.0,
        mismatches=1,
        unstable=2,
        lost=3,
        odd=4,
        detail="both",
    )
    taken = InputInfo(
        name="x",
        dtype="float32",
        shape=(3, 8),
        dims=("batch", 8),
        onnx_name="x",
        onnx_dtype="float32",
        paired_by="name",
    )
    signature = Signature(
        inputs=(taken,),
        outputs=(OutputInfo(name="y", dtype="float32", shape=(3, 4), onnx_name="y_1"),),
        dims=(
            DimInfo(
                name="batch",
                example=3,
                minimum=1,
                maximum=64,
                declared=True,
                derived="seq",
                recorded=(None, 100),
            ),
        ),
    )
    return Proof(
        verdict=Verdict.DRIFT,
        subject="build",
        candidate="model.onnx",
        backends=("ort", "reference"),
        gaps=(gap, replace(gap, status=Status.SHAPE, worst=None, top1=None, void=Void.NOISE)),
        notes=(
            Note(
                domain=Domain.NAN,
                case="c",
                backend="ort",
                output="y",
                what="NaN is handled otherwise",
                reference="nan",
                candidate="0",
            ),
        ),
        findings=(
            Finding(
                code="dim-fixed",
                what="dim 0 is fixed",
                help="export again",
                counts=True,
                fails=True,
                voids=True,
                doubts=True,
            ),
        ),
        location=Location(
            stage=Stage.EXPORT,
            nodes=("node_norm",),
            module="norm",
            source=source,
            evidence="wrong while its inputs are right",
            compared=4,
            suspects=(
                Suspect(
                    node="node_norm",
                    op_type="LayerNormalization",
                    ratio=1e3,
                    why="local",
                    module="norm",
                    source=source,
                ),
            ),
            skipped=("If_0: a subgraph",),
            optimizer="GeluFusion",
        ),
        causes=(
            Cause(
                code="attribute",
                title="another epsilon",
                proven=True,
                evidence="1e-6",
                before=331.0,
                after=1.2,
                fix=Fix(kind="graph", what="set epsilon to 1e-5", verdict=Verdict.FAITHFUL),
            ),
        ),
        signature=signature,
        policy=Policy(strict=True, domains=(Domain.INF,)),
        coverage=Coverage(points=3, exercised=2, missed=("Where_1",)),
        sizes={"ordinary-1": {"batch": 3}},
        waterfall=(Share(code="calibration", db=3.0, share=1.0, after_db=math.inf),),
        profile=Profile(
            case="c",
            against="a",
            nodes=(
                NodeGap(
                    node="node_norm",
                    op_type="LayerNormalization",
                    ratio=2.0,
                    module="norm",
                    source=source,
                ),
            ),
        ),
        ranges=(
            CalibrationRange(
                tensor="relu", low=-1.0, high=2.0, chosen_low=0.0, chosen_high=1.0, clipped=0.1
            ),
        ),
        tried=("kernel: the runtime does what the standard says",),
        untried=("cache: no time was left to try it",),
        half="float16",
        dropped=(Dropped(case="batch=0", reason="RuntimeError"),),
        error="error[x]: y",
        seed=7,
        budget_s=10.0,
        complete=False,
        replay="onnxproof verify ...",
        environment={"python": "3.11"},
        hashes={"candidate": "00"},
        seconds={"total": 1.5},
        passes={"ort": 3},
        group_seconds={"ordinary": {"ort": 0.25}},
        cross=CrossCheck(
            case="c",
            right=("ort",),
            wrong=("tract",),
            arbiter="the standard",
            words="ort is right",
            disagree=(("ort", "tract", math.inf),),
            standings=(
                Standing(
                    backend="ort",
                    output="y",
                    verdict=Verdict.DRIFT,
                    cases=2,
                    case="c",
                    noise_ratio=3.5,
                    max_abs=1e-4,
                    from_truth=1e-7,
                    from_arbiter=None,
                ),
            ),
        ),
        witness=Case(name="c", group="g", about="a", inputs={"x": np.zeros(3)}),
    )


def gap(
    case: str, group: str, backend: str, ratio: float, *, output: str = "y", **other: object
) -> Gap:
    values: dict[str, object] = {
        "status": Status.COMPARED,
        "compared": 64,
        "noise": 1e-7,
        "noise_kind": NoiseKind.DOUBLE,
        "noise_ratio": ratio,
        "worst_ratio": ratio,
        "rms": 1e-7 * ratio,
        "max_abs": 3e-7 * ratio,
        "allowance": ratio / 50,
        "scale": 1.0,
    }
    return Gap(case=case, group=group, backend=backend, output=output, **{**values, **other})  # type: ignore[arg-type]


def large(
    cases: int = 500,
    backends: tuple[str, ...] = ("ort", "ort:disabled", "reference"),
    nodes: int = 1000,
) -> Proof:
    """A fault in the middle of a long graph: groups of cases, sizes of two dims, a profile that rises at the guilty node."""
    rng = random.Random(0)
    groups = ("ordinary", "shapes", "floats", "thresholds", "masks", "search")
    names = [(f"{groups[i % 6]}-case number {i}", groups[i % 6]) for i in range(cases)]
    gaps = [
        gap(
            name,
            group,
            backend,
            10 ** rng.uniform(-0.5, 0.8)
            * (80 if group == "masks" and backend != "reference" else 1),
        )
        for name, group in names
        for backend in backends
    ]
    sizes = {name: {"batch": 1 + i % 17, "seq": 2 ** (i % 9)} for i, (name, _) in enumerate(names)}
    place = nodes // 2
    steps = tuple(
        NodeGap(
            node=f"/model/layers.{i // 20}/attention/node_{i}",
            op_type=("MatMul", "Add", "Softmax", "LayerNormalization")[i % 4],
            ratio=10 ** rng.uniform(-1, 0.5) * (300 if i >= place else 1),
            module=f"model.layers.{i // 20}.attention",
            source=Source(
                file="/project/model.py",
                line=10 + i % 90,
                text=f"scores = query @ key.transpose({i % 3}, {i % 2})",
            ),
        )
        for i in range(nodes)
    )
    guilty = steps[place]
    suspect = Suspect(
        node=guilty.node,
        op_type=guilty.op_type,
        ratio=guilty.ratio,
        why="putting the true value in its place mends the outputs",
        source=guilty.source,
    )
    return replace(
        full(),
        verdict=Verdict.DIVERGED,
        error="",
        cross=None,
        export=None,
        gaps=tuple(gaps),
        backends=backends,
        policy=Policy(),
        notes=(),
        findings=(),
        waterfall=(),
        ranges=(),
        tried=(),
        untried=(),
        half="",
        sizes=sizes,
        profile=Profile(
            case=names[0][0],
            against="the file's values in float64 against the module's own",
            nodes=steps,
        ),
        location=Location(
            stage=Stage.EXPORT,
            nodes=(guilty.node,),
            suspects=(suspect,),
            source=guilty.source,
            module=guilty.module,
            evidence="wrong while its inputs are right",
        ),
        causes=(
            Cause(
                code="masking",
                title="the mask is too weak",
                proven=True,
                evidence="-inf gives what the module gives",
                before=812.0,
                after=1.3,
                fix=Fix(kind="graph", what="write -inf", verdict=Verdict.FAITHFUL),
            ),
            Cause(
                code="precision",
                title="a part runs in half precision",
                proven=False,
                evidence="no",
                before=812.0,
                after=790.0,
            ),
        ),
    )


def crossed() -> Proof:
    """Three backends, of which one is wrong and one gave no answer."""
    standings = (
        Standing(
            backend="ort",
            output="y",
            verdict=Verdict.FAITHFUL,
            cases=9,
            case="example",
            noise_ratio=1.5,
            max_abs=1e-7,
            from_truth=1e-7,
            from_arbiter=2e-7,
        ),
        Standing(
            backend="wrong|one",
            output="y",
            verdict=Verdict.DIVERGED,
            cases=9,
            case="batch=2",
            noise_ratio=812.0,
            max_abs=0.5,
            from_truth=0.25,
            from_arbiter=0.25,
        ),
        Standing(
            backend="gone",
            output="y",
            verdict=Verdict.DIVERGED,
            cases=0,
            case="",
            noise_ratio=0.0,
            max_abs=0.0,
        ),
    )
    cross = CrossCheck(
        case="batch=2",
        standings=standings,
        right=("ort",),
        wrong=("wrong|one", "gone"),
        arbiter="the standard",
        words="ort agrees with the standard; the others are wrong",
        disagree=(("ort", "wrong|one", 0.25), ("ort", "gone", math.inf)),
    )
    return replace(large(20, ("ort", "wrong|one", "gone"), 10), cross=cross)


def quantized() -> Proof:
    """A proof that carries what quantizing measured."""
    steps = (
        Share(code="calibration", db=6.0, share=0.75, after_db=26.0),
        Share(code="8-bit weights", db=5.5, share=0.3, after_db=31.5),
        Share(code="rest", db=-1.0, share=-0.05, after_db=float("inf")),
    )
    ranges = tuple(
        CalibrationRange(
            tensor=f"relu_{i}",
            low=-0.1 * i,
            high=2.0 + i,
            chosen_low=0.0,
            chosen_high=1.5 + i,
            clipped=0.001 * i,
        )
        for i in range(8)
    )
    return replace(large(20, ("ort",), 10), waterfall=steps, ranges=ranges)


def hostile() -> Proof:
    """Every name is one that would like to be code."""
    gaps = tuple(
        gap(
            f"{name} {i}",
            name,
            HOSTILE[i % len(HOSTILE)],
            40.0 + i,
            output=name,
            domain=Domain.NAN if i == 3 else None,
        )
        for i, name in enumerate(HOSTILE)
    )
    source = Source(file=HOSTILE[0], line=3, text=HOSTILE[1])
    steps = tuple(
        NodeGap(
            node=f"{name}{i}",
            op_type=name,
            ratio=float(i),
            module=name,
            source=replace(source, text=name),
        )
        for i, name in enumerate(HOSTILE)
    )
    return replace(
        full(),
        verdict=Verdict.DIVERGED,
        subject=HOSTILE[0],
        candidate=HOSTILE[1],
        backends=HOSTILE,
        gaps=gaps,
        policy=Policy(),
        error="",
        replay=HOSTILE[0],
        sizes={g.case: {HOSTILE[0]: i, HOSTILE[3]: 2 * i} for i, g in enumerate(gaps)},
        profile=Profile(case=HOSTILE[2], against=HOSTILE[0], nodes=steps),
        location=Location(
            stage=Stage.EXPORT,
            nodes=tuple(step.node for step in steps),
            module=HOSTILE[1],
            source=source,
            evidence=HOSTILE[7],
            suspects=tuple(
                Suspect(
                    node=step.node, op_type=step.op_type, ratio=1.0, why=HOSTILE[1], source=source
                )
                for step in steps
            ),
        ),
        causes=tuple(
            Cause(
                code=name,
                title=name,
                proven=i == 0,
                evidence=name,
                before=50.0,
                after=1.0,
                fix=Fix(kind="graph", what=name),
            )
            for i, name in enumerate(HOSTILE)
        ),
        notes=tuple(
            Note(
                domain=Domain.NAN,
                case=name,
                backend=name,
                output=name,
                what=name,
                reference=name,
                candidate=name,
            )
            for name in HOSTILE
        ),
        findings=tuple(
            Finding(code=name, what=name, help=name, counts=i % 2 == 0)
            for i, name in enumerate(HOSTILE)
        ),
        dropped=tuple(Dropped(case=name, reason=name) for name in HOSTILE),
        coverage=Coverage(points=30, exercised=2, missed=HOSTILE),
        signature=Signature(
            inputs=tuple(
                InputInfo(name=name, dtype="float32", shape=(1,), dims=(name,), onnx_name=name)
                for name in HOSTILE
            ),
            outputs=tuple(
                OutputInfo(name=name, dtype="float32", shape=(1,), onnx_name=name)
                for name in HOSTILE
            ),
        ),
        environment={name: name for name in HOSTILE},
        hashes={HOSTILE[0]: HOSTILE[1]},
        waterfall=tuple(Share(code=name, db=1.0, share=0.1, after_db=20.0) for name in HOSTILE),
        ranges=tuple(
            CalibrationRange(tensor=name, low=0, high=1, chosen_low=0, chosen_high=1)
            for name in HOSTILE
        ),
    )
