"""The constraints of `make test-oldest` and `make test-newest` are those that pyproject.toml promises."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def constraints(*words: str) -> dict[str, str]:
    command = [sys.executable, str(ROOT / ".ci" / "versions.py"), *words]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(line.split("==") for line in text.splitlines())


def pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}==")).split("==")[1]


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_oldest_is_the_lower_bound_of_every_dependency(requirement: str) -> None:
    name, bound = requirement.split(">=")
    assert constraints("oldest")[name.replace("_", "-")] == bound


def test_torch_stays_where_it_is_unless_another_is_asked_for() -> None:
    assert constraints("oldest")["torch"] == pinned("torch")
    assert constraints("newest") == {"torch": pinned("torch")}
    assert constraints("newest", "--torch", "2.9.0") == {"torch": "2.9.0"}
    assert constraints("newest", "--torch", "any") == {}


def test_the_tools_of_the_tests_are_not_lowered() -> None:
    assert constraints("oldest")["pytest"] == pinned("pytest")


def test_jax_of_constraints_would_exclude_the_lowest_numpy() -> None:
    assert "jax" not in constraints("oldest")
