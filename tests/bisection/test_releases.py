"""Which releases are meant by the words of the command line."""

from pathlib import Path

import pytest

from onnxproof.bisection import releases
from onnxproof.errors import UsageError

INDEX = ["1.19.2", "1.20.0", "1.20.1", "1.21.0", "1.31.0", "1.31.1", "1.32.0"]


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "_available", lambda package: INDEX)


@pytest.mark.usefixtures("index")
def test_both_ends_are_meant_with_all_their_patches() -> None:
    assert releases.between("onnxruntime", "1.20..1.31") == INDEX[1:6]
    assert releases.between("onnxruntime", "1.20.1..1.31.0") == INDEX[2:5]


@pytest.mark.usefixtures("index")
def test_fewer_than_two_are_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"(?s)no-versions.*1\.19\.2, 1\.20\.0"):
        releases.between("onnxruntime", "1.21..1.22")


def test_a_list_needs_no_index_and_is_put_in_order() -> None:
    assert releases.between("torch", "2.10.0, 2.9.1") == ["2.9.1", "2.10.0"]


def test_what_the_index_says_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = tmp_path / "python"
    pip.write_text(
        "#!/bin/sh\necho 'onnxruntime (1.31.1)'\necho 'Available versions: 1.31.1, 1.20.0rc1, 1.9.0, 1.20.0+cpu'\n"
    )
    pip.chmod(0o755)
    monkeypatch.setattr(releases.sys, "executable", str(pip))
    assert releases.between("onnxruntime", "1.9..1.31") == ["1.9.0", "1.20.0+cpu", "1.31.1"]


def test_an_index_that_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'ERROR: no such host' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(releases.sys, "executable", str(pip))
    with pytest.raises(UsageError, match=r"(?s)no-index.*no such host.*name them"):
        releases.between("onnxruntime", "1.9..1.31")


@pytest.mark.parametrize("words", ["onnxruntime", "=1..2", "onnxruntime=", "onnxruntime=1.2"])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="bad-versions"):
        releases.between(*releases.parse_versions(words))


@pytest.mark.parametrize("words", ["17", "a..b", "23..17", "1..100000000"])
def test_other_opsets_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="bad-opsets"):
        releases.parse_opsets(words)
