"""A run as annotations of a GitHub workflow: an error for each new fault, a warning for each known one."""

from onnxproof.report.github import command
from onnxproof.report.plain import relative
from onnxproof.suite.gate import Gate
from onnxproof.suite.run import SuiteResult

_KINDS = {Gate.FAULT: "error", Gate.ERROR: "error", Gate.VACUOUS: "warning", Gate.KNOWN: "notice"}


def dumps(suite: SuiteResult) -> str:
    """Workflow commands, one a line."""
    lines = []
    file = str(relative(str(suite.manifest.path)))
    for result in suite.results:
        decision = suite.decisions[result.name]
        if decision.gate is Gate.PASS:
            continue
        text = "\n".join(filter(None, (result.summary, decision.why, result.error)))
        title = f"onnxproof: {result.name} {result.verdict}"
        lines.append(command(_KINDS[decision.gate], text, title=title, file=file))
    return "".join(f"{line}\n" for line in lines)
