"""One point in time, shared."""

from onnxproof.system.deadline import Deadline
from onnxproof.system.environment import environment


def test_a_deadline_of_seconds_is_passed_or_not() -> None:
    assert Deadline.after(-1.0).passed and Deadline.after(-1.0).left == 0.0
    later = Deadline.after(3600.0)
    assert not later.passed and later.allows(60.0) and not later.allows(7200.0)


def test_never_is_later_than_any_other() -> None:
    never = Deadline.never()
    assert never.allows(1e9) and never.within(-1.0).passed


def test_the_environment_names_versions_and_hardware() -> None:
    facts = environment()
    assert {"python", "machine", "system", "processor", "time", "numpy"} <= set(facts)
