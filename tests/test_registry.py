"""Plug-ins are found by file name and entry point, and checked when they are loaded."""

import sys
from pathlib import Path
from typing import Protocol

import pytest

from onnxproof.errors import PluginError, UsageError
from onnxproof.registry import Registry


class Greeter(Protocol):
    NAME: str

    def greet(self) -> str:
        """Say it."""


GOOD = "NAME = 'good'\ndef greet():\n    return 'hello'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "greeters"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "well_made": GOOD,
        "_private": GOOD,
        "mute": "NAME = 'mute'\n",
        "inner/__init__": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("greeters", "other_greeters"))]:
        del sys.modules[name]


def registry() -> Registry[Greeter]:
    return Registry("greeter", "greeters", Greeter, group="tests.greeters")


def install(folder: Path, source: str) -> None:
    (folder / "other_greeters.py").write_text(source)
    info = folder / "other_greeters-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-greeters\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tests.greeters]\nforeign = other_greeters\n")


def test_files_are_plugins_and_private_files_and_folders_are_not(folder: Path) -> None:
    assert registry().names() == ["mute", "well-made"]
    assert registry().load("well-made").greet() == "hello"


def test_nothing_is_imported_before_it_is_asked_for(folder: Path) -> None:
    assert registry().names() and "greeters.well_made" not in sys.modules


def test_one_that_lacks_a_part_is_refused(folder: Path) -> None:
    with pytest.raises(PluginError, match="the greeter `mute` is broken: it has no `greet`"):
        registry().load("mute")


def test_an_unknown_one_is_told_with_the_nearest(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown-greeter(.|\n)*did you mean `mute`"):
        registry().load("mut")


def test_another_package_adds_one(folder: Path) -> None:
    install(folder, GOOD)
    assert registry().names() == ["mute", "well-made", "foreign"]
    assert registry().load("foreign").NAME == "good"


def test_a_broken_one_of_another_package_says_why(folder: Path) -> None:
    install(folder, "raise RuntimeError('no driver')\n")
    with pytest.raises(
        PluginError, match="the greeter `foreign` is broken: RuntimeError: no driver"
    ):
        registry().load("foreign")
