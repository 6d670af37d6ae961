"""A proof as JUnit XML: one test case for each case group and backend, so that a CI server shows what failed and where."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

from onnxproof.report.plain import block, relative, short, visible
from onnxproof.report.rows import Row, column_names, last_column, numbers, place, rows
from onnxproof.results import Finding, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system.writing import write_text

_COUNTED = {
    "tests": "testcase",
    "failures": "testcase/failure",
    "errors": "testcase/error",
    "skipped": "testcase/skipped",
}


def write(proof: Proof, path: str | Path) -> None:
    """Write the suite; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def dumps(proof: Proof) -> str:
    """The XML text."""
    return dumps_all([proof])


def dumps_all(proofs: Sequence[Proof]) -> str:
    """Several proofs: a suite for each."""
    return text_of([_proof_suite(proof) for proof in proofs])


def _proof_suite(proof: Proof) -> xml.Element:
    suite = _suite(proof.candidate, proof.seconds.get("total", 0.0))
    properties = xml.SubElement(suite, "properties")
    for name, value in _properties(proof):
        xml.SubElement(properties, "property", name=visible(name), value=visible(value))
    proof_rows = rows(proof)
    for row in proof_rows:
        seconds = proof.group_seconds.get(row.group, {}).get(row.backend, 0.0)
        _case(suite, proof, row, seconds)
    for finding in proof.findings:
        if finding.counts or finding.fails or (finding.doubts and proof.policy.strict):
            _finding(suite, proof, finding)
    if not proof_rows:
        _empty(suite, proof)
    xml.SubElement(suite, "system-out").text = f"{block(proof.sentence())}\n{_log(proof)}"
    return suite


def failure(error: str) -> str:
    """The suite of a run that ended before anything was measured."""
    suite = _suite("onnxproof", 0.0)
    case = xml.SubElement(suite, "testcase", name="run", classname="onnxproof", time="0.000")
    _add(case, "error", error.partition("\n")[0], "error", block(error))
    return text_of([suite])


def _add(case: xml.Element, tag: str, message: str, kind: str, text: str) -> None:
    """A failure or an error of a test case."""
    element = xml.SubElement(case, tag, message=short(message), type=kind)
    element.text = text


def _suite(name: str, seconds: float) -> xml.Element:
    return xml.Element("testsuite", name=short(f"onnxproof {name}"), time=f"{seconds:.3f}")


def text_of(suites: Sequence[xml.Element]) -> str:
    """The document: counts on each suite and on the root, since readers differ in which they read."""
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    root = xml.Element("testsuites", name="onnxproof", time=f"{seconds:.3f}")
    for suite in suites:
        for name, path in _COUNTED.items():
            suite.set(name, str(len(suite.findall(path))))
        root.append(suite)
    for name, path in _COUNTED.items():
        if name != "skipped":
            root.set(name, str(len(root.findall(f"testsuite/{path}"))))
    xml.indent(root)
    text = xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _properties(proof: Proof) -> Iterable[tuple[str, str]]:
    yield from (
        ("verdict", proof.verdict.value),
        ("subject", proof.subject),
        ("candidate", proof.candidate),
        ("seed", str(proof.seed)),
    )
    yield from proof.environment.items()
    yield from ((f"sha256.{name}", value) for name, value in proof.hashes.items())


def _case(suite: xml.Element, proof: Proof, row: Row, seconds: float) -> None:
    case = _testcase(suite, proof, f"{row.group} [{row.backend}]", seconds)
    worst, word = row.worst, row.verdict.value
    values = " / ".join(number for number in numbers(worst) if number)
    legend = " / ".join(("times the noise", "worst element", *column_names(proof)[2:]))
    if last_column(proof) == "SQNR":
        legend = " / ".join(column_names(proof))
    measured = f"case {worst.case}, output {worst.output}: {values} ({legend})"
    if row.verdict is Verdict.DIVERGED or (row.verdict is Verdict.DRIFT and proof.policy.strict):
        _add(case, "failure", f"{word}: {measured}", word, _log(proof))
    elif row.verdict is Verdict.ERROR:
        _add(case, "error", measured, "error", block(proof.error or worst.detail))
    elif row.verdict is Verdict.VACUOUS:
        reason = "nothing was compared"
        if worst.void is not None:
            reason = f"nothing is proven: {worst.void.value}"
        xml.SubElement(case, "skipped", message=reason)
    if row.verdict in (Verdict.FAITHFUL, Verdict.DRIFT):
        text = f"{word}: {row.cases} cases; worst: {measured}"
        xml.SubElement(case, "system-out").text = visible(text)


def _finding(suite: xml.Element, proof: Proof, finding: Finding) -> None:
    case = _testcase(suite, proof, f"finding {finding.code}", 0.0)
    text = f"{visible(finding.what)}\n{visible(finding.help)}".strip()
    _add(case, "failure", finding.what, visible(finding.code), text)


def _empty(suite: xml.Element, proof: Proof) -> None:
    """Nothing compared is never a pass."""
    case = _testcase(suite, proof, "compared", 0.0)
    text = block(proof.error or proof.sentence())
    _add(case, "error", proof.sentence(), proof.verdict.value, text)


def _testcase(suite: xml.Element, proof: Proof, name: str, seconds: float) -> xml.Element:
    attributes = {
        "name": short(name),
        "classname": short(f"onnxproof.{Path(proof.candidate).stem}"),
        "time": f"{seconds:.3f}",
    }
    if proof.location and proof.location.source is not None:
        source = proof.location.source
        attributes["file"] = visible(str(relative(source.file)))
        attributes["line"] = str(source.line)
    return xml.SubElement(suite, "testcase", attributes)


def _log(proof: Proof) -> str:
    """What a reader of the log needs: where, why, and how to run it again."""
    lines = []
    if proof.location:
        lines.append(f"where: {place(proof)}")
    if proof.location and proof.location.source:
        source = proof.location.source
        lines.append(f"  {relative(source.file)}:{source.line}: {source.text}")
    for cause in proof.causes[:3]:
        word = "proven" if cause.proven else "possible"
        lines.append(f"{word} cause {cause.code}: {cause.title}; {cause.evidence}")
        if cause.fix:
            lines.append(f"  fix: {cause.fix.what}")
    if proof.replay:
        lines.append(f"replay: {proof.replay}")
    return "\n".join(map(visible, lines))
