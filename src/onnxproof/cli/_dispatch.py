"""From words to a command: parse with typer, call, and turn whatever is raised into a message and an exit code."""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from onnxproof.cli import commands
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.text import block

ERROR = 2
_INTERRUPTED = 130
"""What typer makes of Ctrl-C."""
_STOPPED = OnnxproofError("interrupted", "stopped by the user: there is no verdict")


def dispatch(name: str, words: Sequence[str]) -> int:
    """Run one command; errors are told on standard error, with a traceback only under --debug."""
    debug = "--debug" in words
    try:
        code = _parser(name)(list(words), prog_name=f"onnxproof {name}", standalone_mode=False)
        sys.stdout.flush()
        return _tell(_STOPPED) if code == _INTERRUPTED else code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _tell(_STOPPED)
    except SystemExit as why:  # a user's module may call sys.exit, and that must not look like a verdict
        return _tell(OnnxproofError("exited", f"the code of the reference ended the program: sys.exit({why.code!r})"))
    except BrokenPipeError:  # the reader of our output has left: nobody is there to be told
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ERROR
    except OnnxproofError as why:
        return _tell(why, trace=debug)
    except Exception as why:  # the last door: a bug must not look like a verdict
        message = getattr(why, "format_message", None)
        if message is not None:
            return _tell(UsageError("usage", _sentence(str(message())), help=f"`onnxproof {name} --help` tells the options"))
        return _tell(internal(why), trace=debug)


def internal(why: BaseException) -> OnnxproofError:
    """A failure that nobody foresaw, in the form of one that somebody did."""
    return OnnxproofError("internal", f"{type(why).__name__}: {why}", notes=["this should not happen: it is a bug in onnxproof, or in a package that it calls"],
                          help="add --debug to see where, and report it with that traceback")


def _parser(name: str) -> Any:
    known = commands()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UsageError("unknown-command", f"there is no command `{name}`", notes=[f"commands are {', '.join(known)}"],
                         help=f"did you mean `onnxproof {near[0]}`?" if near else "`onnxproof --help` tells what each does")
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(help=f"{known[name]}.")(importlib.import_module(f"onnxproof.cli.{name}").command)
    return typer.main.get_command(app)


def _tell(why: OnnxproofError, *, trace: bool = False) -> int:
    if trace:
        cause = why.__cause__ if why.code == "internal" and why.__cause__ is not None else why
        sys.stderr.write(block("".join(traceback.format_exception(cause))) + "\n")
    sys.stderr.write(why.render() + "\n")
    return ERROR


def _sentence(text: str) -> str:
    """The parser's words in our form: no capital, no full stop."""
    text = " ".join(text.split()).rstrip(".")
    return text[:1].lower() + text[1:]
