"""Every code block of the docs is run: files are written, Python is executed, commands give the output and the exit code that the page shows."""

import importlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.page_files import PREPARED, served

from onnxproof.cli import _reference, commands, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("guides", "stories")
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *(page for folder in FOLDERS for page in sorted((DOCS / folder).glob("*.md"))),
]
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?%?")
CASE = re.compile(r"case `[^`]*`|--case '[^']*'")
ERROR = 2
ROW = re.compile(r"^(\w+) .*\b(faithful|drift|diverged|vacuous)( \*)?\s*$")


@dataclass
class Reader:
    """Does what a page says, block by block, in a folder of its own."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    ran: int = 0

    def read(self, page: Path) -> None:
        for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
            getattr(self, f"do_{language or 'text'}")(text, title)
            self.ran += 1

    def do_python(self, text: str, title: str) -> None:
        if title:
            (self.folder / title).write_text(text)
            sys.modules.pop(Path(title).stem, None)
            importlib.invalidate_caches()
        else:
            exec(compile(text, "a block of the docs", "exec"), self.names)

    def do_toml(self, text: str, title: str) -> None:
        """The entry points of the page's package, as pip would leave them."""
        project = tomllib.loads(text)["project"]
        info = self.folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        (info / "entry_points.txt").write_text(
            "".join(
                f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
                for group, points in project["entry-points"].items()
            )
        )
        importlib.invalidate_caches()

    def do_yaml(self, text: str, title: str) -> None:
        document = yaml.safe_load(text)
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        for step in (step for job in document.get("jobs", {}).values() for step in job["steps"]):
            if step.get("uses", "").startswith("OWNER/onnxproof"):
                assert step["with"].keys() <= action["inputs"].keys()
                assert {
                    name for name, given in action["inputs"].items() if given.get("required")
                } <= step["with"].keys()
        for line in (
            line
            for job in document.values()
            if isinstance(job, dict)
            for line in job.get("script", ())
        ):
            known(line)

    def do_console(self, text: str, title: str) -> None:
        for command, expected in transcript(text):
            if command == "echo $?":
                assert str(self.code) == expected.strip(), f"{command}: {self.code}"
                continue
            self.code, said = self.run(command)
            compare(command, expected, said.replace(f"{self.folder}/", ""))
            assert self.code != ERROR or "echo $?" in text or "error[backend-missing]" in said, (
                f"`{command}` fails, and the page does not say so:\n{said}"
            )

    def do_text(self, text: str, title: str) -> None:
        """Shown and not run."""

    do_json = do_text

    def run(self, command: str) -> tuple[int, str]:
        words = shlex.split(command, comments=True)
        known(command)
        if words[0] == "onnxproof":
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(out):
                return main(words[1:]), out.getvalue()
        if words[0] in ("pip", "make"):
            return 0, ""
        program = (
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "onnxproof_pytest",
                "-p",
                "no:cacheprovider",
                "-W",
                "ignore",
            ]
            if words[0] == "pytest"
            else [sys.executable]
        )
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{self.folder}"}
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        return done.returncode, done.stdout + done.stderr


def transcript(text: str) -> Iterator[tuple[str, str]]:
    """Each command with the output that the page shows below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        yield command.strip(), expected


def known(command: str) -> None:
    """The command is one that exists, with extras and targets that exist."""
    words = shlex.split(command, comments=True)
    if words[0] == "onnxproof":
        assert words[1] in commands(), command
    elif words[0] == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
        for word in words[2:]:
            assert (
                set(re.findall(r"\[(.*)\]", word)[0].split(",") if "[" in word else ())
                <= extras.keys()
            ), command
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), command
    else:
        assert words[0] in ("python", "pytest"), f"who runs `{command}`?"


def plain(line: str) -> str:
    """A line without what differs between machines: numbers, which case was the worst, blanks."""
    if row := ROW.match(line):
        return f"{row[1]} {row[2]}"
    return " ".join(NUMBER.sub("0", CASE.sub("case", line)).split())


def lines_of(text: str) -> Iterator[str]:
    """The plain lines; the rows of a table, which stands by the worst case, in alphabetical order: which group is the worst differs between machines."""
    for is_row, lines in itertools.groupby(
        text.splitlines(), key=lambda line: ROW.match(line) is not None
    ):
        made = [plain(line) for line in lines]
        yield from sorted(made) if is_row else made


def compare(command: str, expected: str, said: str) -> None:
    """Every line that the page shows is said, in that order; `...` stands for whatever is between, or for the rest of a line."""
    lines = lines_of(said)
    for line in filter(None, lines_of(expected)):
        begins = line.removesuffix("...")
        if line != "..." and not any(
            other.startswith(begins) if begins != line else line == other for other in lines
        ):
            pytest.fail(f"`{command}` does not say\n  {line}\nin\n{said}")


APART = {"README.md", "docs/backends.md"}
"""The README is told below with the files of the tutorial; `test_backends_list` runs the page of the runtimes."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if name_of(page) not in APART], ids=name_of
)
def test_every_block_of_the_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most pages bring all that they need; what the reader has already is in `page_files`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # pages do not wrap what a terminal would
    before = set(sys.modules)
    reader = Reader(
        tmp_path, PREPARED[name_of(page)](tmp_path) if name_of(page) in PREPARED else {}
    )
    try:
        reader.read(page)
        if "build" in reader.names:
            reader.names["build"]()
    finally:
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_the_readme_shows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are those of the tutorial; the data, `module` and `x` are the reader's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    tutorial = Reader(tmp_path)
    blocks = FENCE.findall((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    tutorial.do_python(
        next(text for language, title, text in blocks if title == "model.py"), "model.py"
    )
    written: dict[str, Any] = {}
    exec((tmp_path / "model.py").read_text(), written)
    module, (x,) = written["build"]()
    served(tmp_path, module, (x,))
    tutorial.run("onnxproof export model.py:build -o model.onnx --dynamic x:0=batch --budget 1")
    tutorial.do_python(
        next(text for language, title, text in blocks if language == "python" and not title), ""
    )
    reader = Reader(tmp_path, {"module": module, "x": x})
    reader.read(ROOT / "README.md")
    assert reader.ran >= 3
    sys.modules.pop("model", None)


@pytest.mark.parametrize("name", _reference.make())
def test_the_reference_is_the_one_of_the_code(name: str) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == _reference.make()[name], (
        "run `make reference`"
    )


def links() -> Iterator[tuple[Path, str]]:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((DOCS / "reference").glob("*.md"))]:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        yield from ((page, target) for target in re.findall(r"\]\(([^)]+)\)", text))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_every_link_and_picture_is_there() -> None:
    for page, target in links():
        path, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_the_site_has_every_page() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def files(item: Any) -> Iterator[str]:
        for part in (
            item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        ):
            yield from [part] if isinstance(part, str) else files(part)

    named = set(files(site["nav"]))
    assert named == {
        str(page.relative_to(DOCS)) for page in [*PAGES[1:], *(DOCS / "reference").glob("*.md")]
    } | {"findings/README.md"}
