"""A proof as JUnit XML: one test case for each case group and backend, so that a CI server shows what failed and where."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

from onnxproof.report.plain import block, relative, short, visible
from onnxproof.report.rows import Row, last_column, numbers, place, rows
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
    return _text([_tested(proof) for proof in proofs])


def _tested(proof: Proof) -> xml.Element:
    total = proof.seconds.get("total", 0.0)
    suite = _suite(proof.candidate, total)
    properties = xml.SubElement(suite, "properties")
    for name, value in _properties(proof):
        xml.SubElement(properties, "property", name=visible(name), value=visible(value))
    made = rows(proof)
    for row in made:
        _case(suite, proof, row, total / max(len(made), 1))
    for finding in proof.findings:
        if finding.counts or finding.fails or (finding.doubts and proof.policy.strict):
            _finding(suite, proof, finding)
    if not made:
        _empty(suite, proof)
    xml.SubElement(suite, "system-out").text = f"{block(proof.sentence())}\n{_story(proof)}"
    return suite


def failure(error: str) -> str:
    """The suite of a run that ended before anything was measured."""
    suite = _suite("onnxproof", 0.0)
    case = xml.SubElement(suite, "testcase", name="run", classname="onnxproof", time="0.000")
    xml.SubElement(
        case, "error", message=short(error.partition("\n")[0]), type="error"
    ).text = block(error)
    return _text([suite])


def _suite(name: str, seconds: float) -> xml.Element:
    return xml.Element("testsuite", name=short(f"onnxproof {name}"), time=f"{seconds:.3f}")


def _text(suites: Sequence[xml.Element]) -> str:
    """The document: counts on each suite and on the root, since readers differ in which they read."""
    root = xml.Element(
        "testsuites",
        name="onnxproof",
        time=f"{sum(float(suite.get('time', 0)) for suite in suites):.3f}",
    )
    for suite in suites:
        for name, path in _COUNTED.items():
            suite.set(name, str(len(suite.findall(path))))
        root.append(suite)
    for name, path in _COUNTED.items():
        if name != "skipped":
            root.set(name, str(len(root.findall(f"testsuite/{path}"))))
    xml.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"
    )


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
    worst = row.worst
    told = f"case {worst.case}, output {worst.output}: {' / '.join(n for n in numbers(worst) if n)} (times the noise / worst element / max abs / {last_column(proof)})"
    if row.verdict is Verdict.DIVERGED or (row.verdict is Verdict.DRIFT and proof.policy.strict):
        xml.SubElement(
            case, "failure", message=short(f"{row.verdict.value}: {told}"), type=row.verdict.value
        ).text = _story(proof)
    elif row.verdict is Verdict.ERROR:
        xml.SubElement(case, "error", message=short(told), type="error").text = block(
            proof.error or worst.detail
        )
    elif row.verdict is Verdict.VACUOUS:
        xml.SubElement(
            case,
            "skipped",
            message=f"nothing is proven: {worst.void.value}"
            if worst.void is not None
            else "nothing was compared",
        )
    if row.verdict in (Verdict.FAITHFUL, Verdict.DRIFT):
        xml.SubElement(case, "system-out").text = visible(
            f"{row.verdict.value}: {row.cases} cases; worst: {told}"
        )


def _finding(suite: xml.Element, proof: Proof, finding: Finding) -> None:
    case = _testcase(suite, proof, f"finding {finding.code}", 0.0)
    xml.SubElement(
        case, "failure", message=short(finding.what), type=visible(finding.code)
    ).text = f"{visible(finding.what)}\n{visible(finding.help)}".strip()


def _empty(suite: xml.Element, proof: Proof) -> None:
    """Nothing compared is never a pass."""
    case = _testcase(suite, proof, "compared", 0.0)
    xml.SubElement(
        case, "error", message=short(proof.sentence()), type=proof.verdict.value
    ).text = block(proof.error or proof.sentence())


def _testcase(suite: xml.Element, proof: Proof, name: str, seconds: float) -> xml.Element:
    made = {
        "name": short(name),
        "classname": short(f"onnxproof.{Path(proof.candidate).stem}"),
        "time": f"{seconds:.3f}",
    }
    source = proof.location.source if proof.location else None
    if source is not None:
        made |= {"file": visible(str(relative(source.file))), "line": str(source.line)}
    return xml.SubElement(suite, "testcase", made)


def _story(proof: Proof) -> str:
    """What a reader of the log needs: where, why, and how to run it again."""
    told = [f"where: {place(proof)}"] if proof.location else []
    if proof.location and proof.location.source:
        told.append(
            f"  {relative(proof.location.source.file)}:{proof.location.source.line}: {proof.location.source.text}"
        )
    for cause in proof.causes[:3]:
        told.append(
            f"{'proven' if cause.proven else 'possible'} cause {cause.code}: {cause.title}; {cause.evidence}"
        )
        told += [f"  fix: {cause.fix.what}"] if cause.fix else []
    return "\n".join(map(visible, [*told, *([f"replay: {proof.replay}"] if proof.replay else [])]))
