"""The pages of the docs as a reader goes through them: files are written, Python is executed, commands are run.

`python -m support.pages` writes what was printed into the pages (`make docs-figures`); a test compares the two. What a page shows of a
command's output is the author's choice: `...` stands for whatever is between two lines, or for the rest of one. The figures are not.
"""

import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support import figures
from support.page_files import PREPARED, served

from onnxproof.cli import commands, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [
    README,
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "guides").glob("*.md")),
    *sorted((DOCS / "stories").glob("*.md")),
]
APART = {"docs/backends.md"}
"""`test_backends_list` runs the page of the runtimes."""
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
PRINTED = "output"
"""The title of a block with what the Python before it printed."""
ERROR = 2
_PYTEST = ("-m", "pytest", "-p", "onnxproof_pytest", "-p", "no:cacheprovider", "-W", "ignore")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@dataclass
class Reader:
    """Does what a page says, block by block, in a folder of its own."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    ran: int = 0
    printed: str = ""
    """What the last block of Python printed."""

    def read(self, page: Path) -> str:
        """Run every block; gives the page with the figures that came out."""
        text = page.read_text(encoding="utf-8")
        return FENCE.sub(self._run_block, text)

    def _run_block(self, block: re.Match[str]) -> str:
        language, title, text = block[1], block[2] or "", block[3]
        shown = getattr(self, f"do_{language or 'text'}")(text, title)
        self.ran += 1
        if shown is None:
            return block[0]
        start, end = block.span(3)
        return block[0][: start - block.start()] + shown + block[0][end - block.start() :]

    def do_python(self, text: str, title: str) -> None:
        if title:
            (self.folder / title).write_text(text)
            sys.modules.pop(Path(title).stem, None)
            importlib.invalidate_caches()
            return
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(text, "a block of the docs", "exec"), self.names)
        self.printed = out.getvalue()

    def do_toml(self, text: str, title: str) -> None:
        """A file, or the entry points of the page's package, as pip would leave them."""
        if title:
            (self.folder / title).write_text(text)
        project = tomllib.loads(text).get("project")
        if project is None:
            return
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

    def do_console(self, text: str, title: str) -> str:
        shown = ""
        for command, expected in transcript(text):
            shown += f"$ {command}\n"
            if command == "echo $?":
                assert expected.strip() == str(self.code), (
                    f"the command before ends with {self.code}"
                )
                shown += expected
                continue
            words = shlex.split(command, comments=True)
            self.code, said = self.run(words)
            shown += figures.updated(command, expected, said.replace(f"{self.folder}/", ""))
            assert self.code != ERROR or "echo $?" in text or "error[backend-missing]" in said, (
                f"`{command}` fails, and the page does not say so:\n{said}"
            )
        return shown

    def do_text(self, text: str, title: str) -> str | None:
        """Shown and not run; what Python printed is compared."""
        if title != PRINTED:
            return None
        said = self.printed.replace(f"{self.folder}/", "")
        return figures.updated("the Python above", text, said)

    do_json = do_text

    def run(self, words: Sequence[str]) -> tuple[int, str]:
        """One command: its exit code, and what it printed."""
        known(shlex.join(words))
        if words[0] == "onnxproof":
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(out):
                return main(list(words[1:])), out.getvalue()
        if words[0] in ("pip", "make"):
            return 0, ""
        program = [sys.executable, *(_PYTEST if words[0] == "pytest" else ())]
        path = os.pathsep.join([str(ROOT / "src"), str(self.folder)])
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        )
        return done.returncode, done.stdout + done.stderr


def transcript(text: str) -> Iterator[tuple[str, str]]:
    """Each command with the output that the page shows below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        yield command.rstrip(), expected


def known(command: str) -> None:
    """The command is one that exists, with extras and targets that exist."""
    words = shlex.split(command, comments=True)
    if words[0] == "onnxproof":
        assert words[1] in (*commands(), "--help", "--version"), command
    elif words[0] == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for word in words[2:]:
            extras = set(re.findall(r"\[(.*)\]", word)[0].split(",") if "[" in word else ())
            assert extras <= project["optional-dependencies"].keys(), command
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), command
    else:
        assert words[0] in ("python", "pytest"), f"who runs `{command}`?"


@contextmanager
def opened(page: Path) -> Iterator[Reader]:
    """A reader in a folder of its own, with what the page takes as given; nothing of it stays."""
    before, path = set(sys.modules), list(sys.path)
    columns, summary = os.environ.get("COLUMNS"), os.environ.pop("GITHUB_STEP_SUMMARY", None)
    with tempfile.TemporaryDirectory() as name, chdir(name):
        folder = Path(name).resolve()
        sys.path.insert(0, str(folder))
        os.environ["COLUMNS"] = "200"  # pages do not wrap what a terminal would
        try:
            yield _prepared(page, folder)
        finally:
            sys.path[:] = path
            _restore("COLUMNS", columns)
            _restore("GITHUB_STEP_SUMMARY", summary)
            for module in set(sys.modules) - before:
                if str(folder) in str(getattr(sys.modules[module], "__file__", "")):
                    del sys.modules[module]


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


def _prepared(page: Path, folder: Path) -> Reader:
    """Most pages bring all that they need; the README's files are those of the tutorial."""
    if page == README:
        return _after_the_tutorial(folder)
    if name_of(page) in PREPARED:
        return Reader(folder, PREPARED[name_of(page)](folder))
    return Reader(folder)


def _after_the_tutorial(folder: Path) -> Reader:
    """`model.py`, `model.onnx` and `converted.onnx`; the data, `module` and `x` are the reader's own."""
    tutorial = Reader(folder)
    blocks = FENCE.findall((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    model = next(text for language, title, text in blocks if title == "model.py")
    tutorial.do_python(model, "model.py")
    written: dict[str, Any] = {}
    exec(model, written)
    module, (x,) = written["build"]()
    served(folder, module, (x,))
    export = "onnxproof export model.py:build -o model.onnx --dynamic x:0=batch --budget 1"
    tutorial.run(shlex.split(export))
    fault = next(text for language, title, text in blocks if language == "python" and not title)
    tutorial.do_python(fault, "")
    return Reader(folder, {"module": module, "x": x})


def write(names: Sequence[str]) -> None:
    """Write the figures into the pages: all of them, or those that are named."""
    for page in PAGES:
        if name_of(page) in APART or (names and name_of(page) not in names):
            continue
        with figures.accepting_other_figures(), opened(page) as reader:
            text = reader.read(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            sys.stderr.write(f"{name_of(page)}: written anew\n")


if __name__ == "__main__":
    write(sys.argv[1:])
