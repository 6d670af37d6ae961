"""A proof as SARIF 2.1.0, so that code scanning shows the fault on the line of Python that it came from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxproof.report.plain import block, relative, visible
from onnxproof.report.rows import place
from onnxproof.results import Finding, Source, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system.writing import write_text

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def write(proof: Proof, path: str | Path) -> None:
    """Write the log; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def dumps(proof: Proof) -> str:
    """The log's text: one result for each cause, or one for the verdict where no cause is known; none where the proof is faithful."""
    return dumps_all([proof])


def dumps_all(proofs: Sequence[Proof]) -> str:
    """Several proofs: a run for each."""
    return _log(
        [
            _run(proof.environment.get("onnxproof", ""), _results(proof), proof, error=proof.error)
            for proof in proofs
        ]
    )


def failure(error: str) -> str:
    """The log of a run that ended before anything was measured."""
    return _log([_run("", [], None, error=error)])


def _log(runs: list[dict[str, Any]]) -> str:
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": runs}, indent=2) + "\n"


def _run(
    version: str, results: list[dict[str, Any]], proof: Proof | None, *, error: str
) -> dict[str, Any]:
    driver = {"name": "onnxproof", "rules": _rules(proof, results)} | (
        {"version": version} if version else {}
    )
    invocation: dict[str, Any] = {"executionSuccessful": not error}
    if error:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": block(error)}}
        ]
    made = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    return made | (
        {"automationDetails": {"id": f"onnxproof/{visible(Path(proof.candidate).name)}/"}}
        if proof is not None
        else {}
    )


def _results(proof: Proof) -> list[dict[str, Any]]:
    made = [_result(proof, f.code, f.what, level=_level(f)) for f in proof.findings]
    if proof.verdict not in (Verdict.DRIFT, Verdict.DIVERGED):
        return made
    level = "error" if not proof.passed else "warning"
    causes = [c for c in proof.causes if c.proven] or proof.causes[:1]
    for cause in causes:
        fix = f" Fix: {cause.fix.what}" if cause.fix else ""
        made.append(
            _result(
                proof,
                cause.code,
                f"{proof.sentence()}. {place(proof)}: {cause.title}; {cause.evidence}.{fix}",
                level=level,
            )
        )
    return (
        made
        if causes
        else [
            *made,
            _result(proof, proof.verdict.value, f"{proof.sentence()}. {place(proof)}", level=level),
        ]
    )


def _level(finding: Finding) -> str:
    if finding.counts or finding.fails:
        return "error"
    return "warning" if finding.doubts else "note"


def _result(proof: Proof, code: str, text: str, *, level: str) -> dict[str, Any]:
    location = proof.location
    made: dict[str, Any] = {
        "ruleId": code,
        "level": level,
        "message": {"text": visible(text)},
        "locations": [_location(proof, location.source if location else None)],
        "partialFingerprints": {
            "onnxproof/v1": f"{proof.candidate}:{code}:{location.nodes[0] if location and location.nodes else ''}"
        },
    }
    if location is not None and location.nodes:
        made["locations"][0]["logicalLocations"] = [
            {"fullyQualifiedName": visible(node), "kind": "function"} for node in location.nodes[:3]
        ]
    return made


def _location(proof: Proof, source: Source | None) -> dict[str, Any]:
    """The line of Python; the ONNX file itself where no line is known."""
    if source is None:
        return {"physicalLocation": {"artifactLocation": {"uri": uri(proof.candidate)}}}
    region = {"startLine": max(source.line, 1), "snippet": {"text": visible(source.text)}}
    return {"physicalLocation": {"artifactLocation": {"uri": uri(source.file)}, "region": region}}


def uri(path: str) -> str:
    """A URI reference for a path that may hold anything."""
    from urllib.parse import quote

    found = relative(path)
    return found.as_uri() if found.is_absolute() else quote(found.as_posix(), errors="replace")


def _rules(proof: Proof | None, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each code means: a cause has a page, a finding says what to do, and a verdict is explained in the documentation."""
    titles = {cause.code: cause.title for cause in (proof.causes if proof is not None else ())}
    helps = {
        finding.code: finding.help
        for finding in (proof.findings if proof is not None else ())
        if finding.help
    }
    helps |= {code: f"onnxproof explain --cause {code}" for code in titles}
    codes = dict.fromkeys(result["ruleId"] for result in results)
    return [
        {"id": code, "shortDescription": {"text": visible(titles.get(code, code))}}
        | ({"help": {"text": visible(helps[code])}} if code in helps else {})
        for code in codes
    ]
