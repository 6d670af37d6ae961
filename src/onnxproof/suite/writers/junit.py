"""A run as JUnit XML: one test case for each model; a known fault is skipped with its reason."""

from xml.etree import ElementTree as xml

from onnxproof.report.plain import block, short, visible
from onnxproof.report.writers.junit import failure as failure
from onnxproof.report.writers.junit import text_of
from onnxproof.suite.gate import Decision, Gate
from onnxproof.suite.records import Result
from onnxproof.suite.run import SuiteResult


def dumps(suite: SuiteResult) -> str:
    """The XML text."""
    seconds = sum(result.duration_s for result in suite.results)
    name = short(f"onnxproof {suite.run.suite}")
    element = xml.Element("testsuite", name=name, time=f"{seconds:.3f}")
    properties = xml.SubElement(element, "properties")
    for key, value in suite.run.versions.items():
        xml.SubElement(properties, "property", name=visible(key), value=visible(value))
    for result in suite.results:
        _case(element, suite.run.suite, result, suite.decisions[result.name])
    for missing in suite.missing:
        case = xml.SubElement(element, "testcase", _names(suite.run.suite, missing, 0.0))
        xml.SubElement(case, "error", message="it was not run: the suite was stopped", type="error")
    return text_of([element])


def _case(element: xml.Element, suite: str, result: Result, decision: Decision) -> None:
    case = xml.SubElement(element, "testcase", _names(suite, result.name, result.duration_s))
    summary = result.summary.partition("\n")[0]
    message = short(f"{result.verdict}: {decision.why or summary}")
    if decision.gate is Gate.KNOWN:
        xml.SubElement(case, "skipped", message=short(f"known {result.verdict}: {decision.why}"))
    elif decision.gate is Gate.FAULT:
        failed = xml.SubElement(case, "failure", message=message, type=result.verdict)
        failed.text = block(f"{result.summary}\n{result.error}".strip())
    elif decision.gate is not Gate.PASS:
        failed = xml.SubElement(case, "error", message=message, type=result.verdict)
        failed.text = block(result.error or result.summary)
    else:
        xml.SubElement(case, "system-out").text = visible(f"{result.verdict}: {summary}")


def _names(suite: str, name: str, seconds: float) -> dict[str, str]:
    return {
        "name": short(name),
        "classname": short(f"onnxproof.{suite}"),
        "time": f"{seconds:.3f}",
    }
