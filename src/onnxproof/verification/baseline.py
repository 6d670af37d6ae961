"""A baseline: the noise ratio of every output, backend and node, kept in the repository as a lock file.

A new torch, runtime or opset may move the numbers of a model that is still faithful. The baseline sees it, and says what changed.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxproof.errors import UsageError
from onnxproof.results import Finding, Status
from onnxproof.results.proof import Proof
from onnxproof.system.user_files import DOCUMENT_BYTES, require_regular
from onnxproof.system.writing import write_text

FORM = "1"
FACTOR = 4.0
"""How many times the stored ratio is too much. Measured in docs/guides/baselines.md."""
_LEAST = 1.0
"""A ratio below the noise is as good as the noise: growth is counted from here."""
_FEW = 3
"""Names that one finding lists."""
_ALWAYS_DIFFERENT = frozenset({"time"})
"""Facts of the environment that differ between any two runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a lock file holds."""

    outputs: Mapping[tuple[str, str], float]
    """The largest noise ratio of each (backend, output)."""
    nodes: Mapping[str, float]
    environment: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)


def of(proof: Proof) -> Baseline:
    """What a proof's lock file would hold."""
    outputs: dict[tuple[str, str], float] = {}
    for gap in proof.gaps:
        if gap.domain is None and gap.status in (Status.COMPARED, Status.DTYPE):
            ratio = gap.noise_ratio
            if math.isnan(ratio):
                ratio = math.inf
            key = (gap.backend, gap.output)
            outputs[key] = max(outputs.get(key, 0.0), ratio)
    nodes = {}
    if proof.profile is not None:
        nodes = {node.node: node.ratio for node in proof.profile.nodes}
    environment = dict(proof.environment)
    for name in _ALWAYS_DIFFERENT:
        environment.pop(name, None)
    return Baseline(
        outputs=outputs, nodes=nodes, environment=environment, hashes=dict(proof.hashes)
    )


def update(proof: Proof, path: str | Path) -> Proof:
    """Write the lock file, if the proof passes: a fault must not become what is expected."""
    if not proof.passed:
        refused = Finding(
            code="baseline-not-written",
            what=f"the baseline `{path}` was not written, since the proof does not pass",
            fails=True,
        )
        return replace(proof, findings=(*proof.findings, refused))
    write_text(dumps(of(proof)), path, what="the baseline")
    written = Finding(code="baseline-written", what=f"the baseline `{path}` was written")
    return replace(proof, findings=(*proof.findings, written))


def check(
    proof: Proof,
    path: str | Path,
    *,
    factor: float = FACTOR,
) -> Proof:
    """The proof with a finding for whatever grew by more than the factor since the lock file was written."""
    old = read(path)
    new = of(proof)
    changed = "; ".join(changes(old, new))
    since = "nothing of the environment changed, and the file is the same"
    if changed:
        since = f"changed since: {changed}"
    findings = list(proof.findings)
    for finding in (*_compare_outputs(old, new, factor), *_compare_nodes(old, new, factor)):
        if finding.fails:
            finding = replace(finding, help=f"{since}. `--update-baseline` accepts it")
        findings.append(finding)
    return replace(proof, findings=tuple(findings))


def _compare_outputs(
    old: Baseline,
    new: Baseline,
    factor: float,
) -> Iterator[Finding]:
    for (backend, output), before in old.outputs.items():
        now = new.outputs.get((backend, output))
        if now is None:
            yield Finding(
                code="baseline-lost",
                what=f"output `{output}` on {backend} is in the baseline and was not compared now",
                fails=True,
            )
        elif now > factor * max(before, _LEAST):
            yield Finding(
                code="baseline-grew",
                what=f"output `{output}` on {backend}: {now:,.1f} times the noise, {before:,.1f} when the baseline was written",
                fails=True,
            )
    added = new.outputs.keys() - old.outputs.keys()
    if added:
        names = sorted(f"`{output}` on {backend}" for backend, output in added)
        yield Finding(
            code="baseline-new",
            what=f"not in the baseline: {', '.join(names[:_FEW])}",
            help="`--update-baseline` adds it",
        )


def _compare_nodes(
    old: Baseline,
    new: Baseline,
    factor: float,
) -> Iterator[Finding]:
    """The first nodes of the graph that grew: what follows them grew with them."""
    both = [name for name in new.nodes if name in old.nodes]
    limits = {name: factor * max(old.nodes[name], _LEAST) for name in both}
    grown = [name for name in both if not new.nodes[name] <= limits[name]]
    if grown:
        first = ", ".join(
            f"`{name}` ({old.nodes[name]:,.1f} then, {new.nodes[name]:,.1f} now)"
            for name in grown[:_FEW]
        )
        yield Finding(
            code="baseline-node",
            what=f"{len(grown)} of {len(both)} nodes are noisier than in the baseline; the first: {first}",
            fails=True,
        )
    if old.nodes and new.nodes and not both:
        yield Finding(
            code="baseline-nodes-renamed",
            what="no node of the baseline is in the file any more: only the outputs were compared",
        )


def changes(old: Baseline, new: Baseline) -> list[str]:
    """What is different about the environment and the files, in words."""
    words = []
    for name in {**old.environment, **new.environment}:
        before = old.environment.get(name, "absent")
        now = new.environment.get(name, "absent")
        if before != now:
            words.append(f"{name} {before} -> {now}")
    for name, value in new.hashes.items():
        if old.hashes.get(name) not in (None, value):
            words.append(f"the {name} file")
    return words


def dumps(baseline: Baseline) -> str:
    """One line an output and a node, in a fixed order and with three digits, so that a change of it reads well in a review."""
    head = {
        "baseline": FORM,
        "environment": dict(baseline.environment),
        "hashes": dict(baseline.hashes),
    }
    outputs = [
        json.dumps({"backend": backend, "output": output, "ratio": _number(ratio)})
        for (backend, output), ratio in sorted(baseline.outputs.items())
    ]
    nodes = [
        f"{json.dumps(name)}: {json.dumps(_number(ratio))}"
        for name, ratio in baseline.nodes.items()
    ]
    parts = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    parts.append(f'  "outputs": [\n{_rows(outputs)}\n  ]')
    parts.append(f'  "nodes": {{\n{_rows(nodes)}\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(path: str | Path) -> Baseline:
    """The lock file.

    Raises:
        UsageError: `other-baseline`, `no-baseline` or `not-a-baseline`.
    """
    require_regular(path, UsageError, most=DOCUMENT_BYTES, what="baseline")
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["baseline"] != FORM:
            raise UsageError(
                "other-baseline",
                f"this baseline has form {document['baseline']}, and this onnxproof reads {FORM}",
                where=str(path),
                help="write it anew with `--update-baseline`",
            )
        outputs = {
            (row["backend"], row["output"]): float(row["ratio"]) for row in document["outputs"]
        }
        return Baseline(
            outputs=outputs,
            nodes={name: float(ratio) for name, ratio in document["nodes"].items()},
            environment=dict(document["environment"]),
            hashes=dict(document["hashes"]),
        )
    except OSError as why:
        raise UsageError(
            "no-baseline",
            f"the baseline `{path}` can't be read: {why.strerror}",
            where=str(path),
            help="write it once with `--update-baseline`",
        ) from why
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as why:
        if isinstance(why, UsageError):
            raise
        raise UsageError(
            "not-a-baseline",
            f"this file is not a baseline: {type(why).__name__}: {why}",
            where=str(path),
            help="write it anew with `--update-baseline`",
        ) from why


def _rows(rows: Iterable[str]) -> str:
    return ",\n".join(f"    {row}" for row in rows)


def _number(value: float) -> float | str:
    """With three digits; JSON has no number that is not finite."""
    if not math.isfinite(value):
        return str(value)
    return float(f"{value:.3g}")
