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
    runs = []
    for proof in proofs:
        version = proof.environment.get("onnxproof", "")
        runs.append(_run(version, _results(proof), proof, error=proof.error))
    return _log(runs)


def failure(error: str) -> str:
    """The log of a run that ended before anything was measured."""
    return _log([_run("", [], None, error=error)])


def _log(runs: list[dict[str, Any]]) -> str:
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": runs}, indent=2) + "\n"


def _run(
    version: str, results: list[dict[str, Any]], proof: Proof | None, *, error: str
) -> dict[str, Any]:
    driver: dict[str, Any] = {"name": "onnxproof", "rules": _rules(proof, results)}
    if version:
        driver["version"] = version
    invocation: dict[str, Any] = {"executionSuccessful": not error}
    if error:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": block(error)}}
        ]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    if proof is not None:
        name = visible(Path(proof.candidate).name)
        run["automationDetails"] = {"id": f"onnxproof/{name}/"}
    return run


def _results(proof: Proof) -> list[dict[str, Any]]:
    results = [
        _result(proof, finding.code, finding.what, level=_level(finding))
        for finding in proof.findings
    ]
    if proof.verdict not in (Verdict.DRIFT, Verdict.DIVERGED):
        return results
    level = "warning" if proof.passed else "error"
    where = f"{proof.sentence()}. {place(proof)}"
    causes = [cause for cause in proof.causes if cause.proven] or proof.causes[:1]
    for cause in causes:
        text = f"{where}: {cause.title}; {cause.evidence}."
        if cause.fix:
            text += f" Fix: {cause.fix.what}"
        results.append(_result(proof, cause.code, text, level=level))
    if not causes:
        results.append(_result(proof, proof.verdict.value, where, level=level))
    return results


def _level(finding: Finding) -> str:
    if finding.counts or finding.fails:
        return "error"
    return "warning" if finding.doubts else "note"


def _result(proof: Proof, code: str, text: str, *, level: str) -> dict[str, Any]:
    source: Source | None = None
    nodes: tuple[str, ...] = ()
    if proof.location is not None:
        source, nodes = proof.location.source, proof.location.nodes
    location = _location(proof, source)
    if nodes:
        location["logicalLocations"] = [
            {"fullyQualifiedName": visible(node), "kind": "function"} for node in nodes[:3]
        ]
    first_node = nodes[0] if nodes else ""
    return {
        "ruleId": code,
        "level": level,
        "message": {"text": visible(text)},
        "locations": [location],
        "partialFingerprints": {"onnxproof/v1": f"{proof.candidate}:{code}:{first_node}"},
    }


def _location(proof: Proof, source: Source | None) -> dict[str, Any]:
    """The line of Python; the ONNX file itself where no line is known."""
    if source is None:
        return {"physicalLocation": {"artifactLocation": {"uri": uri(proof.candidate)}}}
    region = {"startLine": max(source.line, 1), "snippet": {"text": visible(source.text)}}
    return {"physicalLocation": {"artifactLocation": {"uri": uri(source.file)}, "region": region}}


def uri(path: str) -> str:
    """A URI reference for a path that may hold anything."""
    from urllib.parse import quote

    shown = relative(path)
    if shown.is_absolute():
        return shown.as_uri()
    return quote(shown.as_posix(), errors="replace")


def _rules(proof: Proof | None, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each code means: a cause has a page, a finding says what to do, and a verdict is explained in the documentation."""
    titles: dict[str, str] = {}
    helps: dict[str, str] = {}
    if proof is not None:
        titles = {cause.code: cause.title for cause in proof.causes}
        helps = {finding.code: finding.help for finding in proof.findings if finding.help}
        helps |= {code: f"onnxproof explain --cause {code}" for code in titles}
    rules = []
    for code in dict.fromkeys(result["ruleId"] for result in results):
        title = titles.get(code, code)
        rule: dict[str, Any] = {"id": code, "shortDescription": {"text": visible(title)}}
        if code in helps:
            rule["help"] = {"text": visible(helps[code])}
        rules.append(rule)
    return rules
