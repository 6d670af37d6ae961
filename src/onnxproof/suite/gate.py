"""Whether a suite passes: known faults don't fail it, new ones do, and so does an expectation whose day has come.

Judged on the day that the gate is asked, from results alone, so that a stored run can be judged again.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from onnxproof.suite.checking import as_date
from onnxproof.suite.records import Result


class Gate(StrEnum):
    """What one model means for the whole."""

    PASS = "pass"
    KNOWN = "known"
    """As bad as the manifest says that it is."""
    FAULT = "fault"
    """Diverged, drift under strict, grown beyond its baseline, or an expectation that has expired."""
    ERROR = "error"
    """It could not be run, and nobody expected that."""
    VACUOUS = "vacuous"
    """Nothing was compared, and nobody expected that."""


CODES = {Gate.PASS: 0, Gate.KNOWN: 0, Gate.FAULT: 1, Gate.ERROR: 2, Gate.VACUOUS: 3}
_ORDER = (Gate.FAULT, Gate.ERROR, Gate.VACUOUS)
"""Which one decides where there are several: a fault is surely one, an error may hide one, nothing compared says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a result means, and why where that is not plain."""

    gate: Gate
    why: str = ""


def decide(result: Result, today: datetime.date | None = None) -> Decision:
    """One result against what is expected of it."""
    plain = _without_expectation(result)
    if result.expected is None or result.expected["verdict"] == "faithful":
        return plain
    known = str(result.expected["verdict"])
    as_known = result.verdict == known or (result.verdict, known) == ("drift", "diverged")
    if not as_known:
        why = f"{result.verdict}, and {known} is expected"
        if plain.gate is Gate.PASS:
            why += ": the expectation can go"
        return Decision(gate=plain.gate, why=why)
    expires = as_date(result.expected.get("expires"))
    if expires is not None and (today or datetime.date.today()) >= expires:
        why = f"{known} was expected until {expires}, and that day has come"
        return Decision(gate=Gate.FAULT, why=why)
    cause = result.expected.get("cause")
    if cause and cause != result.cause:
        why = f"its cause is {result.cause or 'not found'}, and {cause} is the known one"
        return Decision(gate=plain.gate, why=why)
    return Decision(gate=Gate.KNOWN, why=str(result.expected.get("reason", "")))


def _without_expectation(result: Result) -> Decision:
    if result.verdict == "error":
        return Decision(gate=Gate.ERROR)
    if result.verdict == "vacuous":
        return Decision(gate=Gate.VACUOUS)
    if result.passed:
        return Decision(gate=Gate.PASS)
    why = ""
    if result.verdict != "diverged":
        why = f"{result.verdict}, and it does not pass: strict, or beyond its baseline"
    return Decision(gate=Gate.FAULT, why=why)


def exit_code(decisions: Iterable[Decision]) -> int:
    """0, or the code of the worst: 1 for a fault, else 2 for an error, else 3 for nothing compared."""
    gates = {decision.gate for decision in decisions}
    return next((CODES[gate] for gate in _ORDER if gate in gates), 0)
