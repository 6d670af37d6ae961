"""What a GitHub workflow shows of a proof: annotations on the guilty line, and the summary page."""

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
        source = proof.location.source if proof.location else None
        where = (
            {"file": str(relative(source.file)), "line": str(source.line)}
            if source
            else {"file": str(relative(proof.candidate))}
        )
        cause = next(
            (
                f"\n{'proven' if c.proven else 'possible'} cause {c.code}: {c.title}; {c.evidence}"
                for c in proof.causes
            ),
            "",
        )
        replay = f"\nreplay: {proof.replay}" if proof.replay else ""
        text = f"{proof.sentence()}\n{place(proof)}{cause}{replay}"
        lines.append(
            _command(
                "warning" if proof.passed else "error",
                text,
                title=f"onnxproof: {proof.verdict.value}",
                **where,
            )
        )
    lines += [_command(_kind(f), f.what, title=f"onnxproof: {f.code}") for f in proof.findings]
    return "".join(f"{line}\n" for line in lines)


def _kind(finding: Finding) -> str:
    if finding.counts or finding.fails:
        return "error"
    return "warning" if finding.doubts else "notice"


def add_summary(proof: Proof) -> None:
    """Append the Markdown summary to the file that the workflow names, if it names one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with (
            explain_write_errors(path, "the summary"),
            Path(path).open("a", encoding="utf-8") as stream,
        ):
            stream.write(markdown.dumps(proof))


def _command(kind: str, text: str, **properties: str) -> str:
    """One workflow command; nothing in its words can begin another."""
    given = ",".join(
        f"{name}={_escape(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
    )
    return f"::{kind} {given}::{_escape(text)}"


def _escape(text: str) -> str:
    return (
        "\n".join(map(visible, text.split("\n")))
        .replace("%", "%25")
        .replace("\r", "%0D")
        .replace("\n", "%0A")
    )
