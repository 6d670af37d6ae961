"""From words to a command: parse with typer, call, and turn whatever is raised into a message and an exit code."""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

from onnxproof.cli import STOPPED, commands
from onnxproof.cli._paths import path_error
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.system import temporary, writing
from onnxproof.system.text import block

ERROR = 2
_INTERRUPTED = 130
"""What typer makes of Ctrl-C."""
_STOPPED = OnnxproofError("interrupted", STOPPED.partition(": ")[2])


def dispatch(name: str, words: Sequence[str]) -> int:
    """Run one command; errors go to standard error, with a traceback only under --debug."""
    debug = "--debug" in words
    try:
        with suppress(OSError, OnnxproofError):
            temporary.sweep()
        code = _parser(name)(list(words), prog_name=f"onnxproof {name}", standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:
            return _print_error(_STOPPED)
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _print_error(_STOPPED)
    except SystemExit as why:
        # a user's module may call sys.exit, and that must not look like a verdict
        message = f"the code of the reference ended the program: sys.exit({why.code!r})"
        return _print_error(OnnxproofError("exited", message))
    except BrokenPipeError:  # the reader of our output has left: nobody can read a message
        _silence()
        return ERROR
    except OnnxproofError as why:
        return _print_error(why, trace=debug)
    except Exception as why:  # the last resort: a bug must not look like a verdict
        format_message = getattr(why, "format_message", None)
        if format_message is not None:  # an error of the parser
            sentence = _sentence(str(format_message()))
            advice = f"`onnxproof {name} --help` tells the options"
            return _print_error(UsageError("usage", sentence, help=advice))
        _flush()
        return _print_error(internal(why), trace=debug)


def _flush() -> None:
    """Let what was printed leave; where it can't, nothing more is sent there, also not when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence()


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def internal(why: BaseException) -> OnnxproofError:
    """A failure that nobody foresaw, in the form of one that somebody did; a full disk or a bad path may be met anywhere."""
    if isinstance(why, OSError) and writing.is_full(why):
        return UsageError(
            "cannot-write",
            f"standard output or a temporary file can't be written: {why.strerror or why}",
            where=str(why.filename or ""),
            help="free some space, or set TMPDIR to a folder that has it",
        )
    return path_error(why) or OnnxproofError(
        "internal",
        f"{type(why).__name__}: {why}",
        notes=["this should not happen: it is a bug in onnxproof, or in a package that it calls"],
        help="add --debug to see where, and report it with that traceback",
    )


def _parser(name: str) -> Any:
    known = commands()
    if name not in known:
        advice = "`onnxproof --help` tells what each does"
        similar = difflib.get_close_matches(name, known, n=1)
        if similar:
            advice = f"did you mean `onnxproof {similar[0]}`?"
        raise UsageError(
            "unknown-command",
            f"there is no command `{name}`",
            notes=[f"commands are {', '.join(known)}"],
            help=advice,
        )
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(help=f"{known[name]}.")(importlib.import_module(f"onnxproof.cli.{name}").command)
    return typer.main.get_command(app)


def _print_error(why: OnnxproofError, *, trace: bool = False) -> int:
    if trace:
        cause: BaseException = why
        if why.code == "internal" and why.__cause__ is not None:
            cause = why.__cause__
        sys.stderr.write(block("".join(traceback.format_exception(cause))) + "\n")
    sys.stderr.write(why.render() + "\n")
    return ERROR


def _sentence(text: str) -> str:
    """The parser's words in our form: no capital, no full stop."""
    text = " ".join(text.split()).rstrip(".")
    return text[:1].lower() + text[1:]
