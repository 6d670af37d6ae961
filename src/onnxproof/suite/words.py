"""A run of a suite in words."""

from collections import Counter

from onnxproof.report import plain
from onnxproof.suite.gate import Gate
from onnxproof.suite.records import Result
from onnxproof.suite.run import SuiteResult

_NOUNS = {Gate.FAULT: "new fault", Gate.ERROR: "error"}
_WORDS = {Gate.PASS: "fine", Gate.KNOWN: "known", Gate.VACUOUS: "with nothing compared"}


def headline(suite: SuiteResult) -> str:
    """How many models of each kind there are, the worst first."""
    gates = Counter(decision.gate for decision in suite.decisions.values())
    order = (Gate.FAULT, Gate.ERROR, Gate.VACUOUS, Gate.KNOWN, Gate.PASS)
    parts = [_counted(gate, gates[gate]) for gate in order if gates[gate]]
    if suite.missing:
        parts.append(f"{len(suite.missing)} not run")
    models = plain.plural(len(suite.results), "model")
    return f"{suite.run.suite}: {models}, {', '.join(parts) or 'none'}"


def _counted(gate: Gate, count: int) -> str:
    if gate in _NOUNS:
        return plain.plural(count, _NOUNS[gate])
    return f"{count} {_WORDS[gate]}"


def ratio(result: Result) -> str:
    """The noise ratio, or nothing."""
    return "" if result.noise_ratio is None else plain.ratio(result.noise_ratio)
