"""What a GitHub workflow shows of a proof: annotations on the line of Python that the fault came from, and the summary page."""

import os
from pathlib import Path

from onnxproof.report.plain import relative, visible
from onnxproof.report.rows import place
from onnxproof.report.writers import markdown
from onnxproof.results import Finding, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system.writing import explain_write_errors


def annotations(proof: Proof) -> str:
    """Workflow commands, one a line: an error or a warning at the line of Python, a notice for each finding."""
    lines = []
    if not proof.passed or proof.verdict is Verdict.DRIFT:
        lines.append(_annotate_verdict(proof))
    lines += [
        command(_kind(finding), finding.what, title=f"onnxproof: {finding.code}")
        for finding in proof.findings
    ]
    return "".join(f"{line}\n" for line in lines)


def _annotate_verdict(proof: Proof) -> str:
    where = {"file": str(relative(proof.candidate))}
    if proof.location and proof.location.source:
        source = proof.location.source
        where = {"file": str(relative(source.file)), "line": str(source.line)}
    text = f"{proof.sentence()}\n{place(proof)}"
    if proof.causes:
        cause = proof.causes[0]
        word = "proven" if cause.proven else "possible"
        text += f"\n{word} cause {cause.code}: {cause.title}; {cause.evidence}"
    if proof.replay:
        text += f"\nreplay: {proof.replay}"
    kind = "warning" if proof.passed else "error"
    return command(kind, text, title=f"onnxproof: {proof.verdict.value}", **where)


def _kind(finding: Finding) -> str:
    if finding.counts or finding.fails:
        return "error"
    return "warning" if finding.doubts else "notice"


def add_summary(proof: Proof) -> None:
    """Append the Markdown summary to the file that the workflow names, if it names one."""
    append_summary(markdown.dumps(proof))


def append_summary(text: str) -> None:
    """The same for any Markdown."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with (
            explain_write_errors(path, "the summary"),
            Path(path).open("a", encoding="utf-8") as stream,
        ):
            stream.write(text)


def command(kind: str, text: str, **properties: str) -> str:
    """One workflow command; nothing in its words can begin another."""
    assignments = []
    for name, value in properties.items():
        escaped = _escape(value).replace(":", "%3A").replace(",", "%2C")
        assignments.append(f"{name}={escaped}")
    return f"::{kind} {','.join(assignments)}::{_escape(text)}"


def _escape(text: str) -> str:
    lines = "\n".join(map(visible, text.split("\n")))
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
