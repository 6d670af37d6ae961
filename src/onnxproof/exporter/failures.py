"""torch's report of a failed export in the user's terms: what failed, the line of the user's Python, what to do."""

import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxproof.errors import ExportError

Location = tuple[str, int, str]
"""File, line, and the code there."""
_OPERATOR = re.compile(
    r"No (?:ONNX function|decompositions?|ONNX implementation)[^<\n]*<(?:OpOverload\(op='([\w.]+)'|built-in function (\w+))"
)
_OVERLOAD = re.compile(r"Cannot find a compatible OpOverload for ([\w.]+)")
_LEGACY = re.compile(
    r"(?:Exporting the operator|ONNX export failed: Couldn't export Python operator) '?([\w:]+)'?"
)
_EXPRESSION = re.compile(r"data-dependent expression ([^\n(]+?) \(unhinted")
_FIXED = re.compile(
    r"inferred a static shape of (\d+) for dimension inputs\['([^']+)'\]\.shape\[(\d+)\]"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.+)')
_COMMENT = re.compile(r"# File: ([^:\n]+):(\d+) in \w+, code: (.+)")
_STACK_TRACE = re.compile(
    r"Stack trace:?\s*\n(?:.*\n)*?\s*File \"([^\"]+)\", line (\d+), in \S+\n\s+(.+)"
)
_DATA_DEPENDENT = ("data-dependent", "DataDependent", "Dynamic control flow")
_MAX_REASON = 300
"""Characters of an exception's first line that are shown."""
_LIBRARIES = (sysconfig.get_path("stdlib"), "<", str(Path(__file__).parent.parent))
_TORCH = re.compile(r"(^|/)(torch|onnxscript|onnx_ir)/")
_HELP = {
    "operator": "write the operation in terms of operators that torch.onnx knows, or register a translation: an entry point of the group `onnxproof.replacements`",
    "data-dependent": "the graph must not depend on values: replace the Python `if` or loop by torch.where or torch.cond, and `.item()` by a tensor",
    "dims": "give that dim a range with torch.export.Dim, or leave it out of dynamic_shapes",
    "torchscript": "export the Python module that the TorchScript was made from",
    "inputs": "call the module with the example inputs by itself; `dynamic_shapes` follows the order and names of `forward`",
    "other": "add --debug (or look at `__cause__`) for torch's whole report",
}


class NoTranslation(Exception):
    """An operator that torch.onnx does not translate, known before the translation."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator)
        self.operator = operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an export failed, as far as torch's report says."""

    kind: str
    """operator, data-dependent, dims, torchscript, inputs or other; `constants` where torch did not fail, but removed some."""
    what: str
    operator: str = ""
    file: str = ""
    line: int = 0
    text: str = ""

    @property
    def headline(self) -> str:
        """In two or three words, before an attempt is tried."""
        if self.kind == "constants":
            return "constants were removed"
        return "export failed"

    def error(
        self,
        name: str,
        notes: Sequence[str] = (),
    ) -> ExportError:
        """The error to raise if no attempt helped."""
        where = ""
        if self.file:
            where = f"{self.file}:{self.line}"
        code = [f"`{self.text}`"] if self.text else []
        return ExportError(
            "export-failed",
            f"torch can't export `{name}`: {self.what}",
            where=where,
            notes=[*code, *notes],
            help=_HELP[self.kind],
        )


def read_failure(why: BaseException, program: Any = None) -> Failure:
    """The failure behind an exception of torch's; a captured program knows the line of each of its operators."""
    chain = list(_chain(why))
    text = "\n".join(str(link) for link in chain)
    failure = (
        _read_operator(chain[0], text)
        or _read_control_flow(text)
        or _read_dims(text)
        or _read_exception(chain[-1])
    )
    location = None
    if failure.operator and program is not None:
        location = _locate_operator(program, failure.operator)
    file, line, code = location or _locate_exception(chain, text)
    return replace(failure, file=file, line=line, text=code)


def _read_operator(first: BaseException, text: str) -> Failure | None:
    """An operator without a translation, or with types that torch can't decompose."""
    operator = ""
    match = _OPERATOR.search(text)
    if match:
        operator = match[1] or match[2]
    elif isinstance(first, NoTranslation):
        operator = str(first)
    if operator:
        return _untranslated(operator)
    match = _OVERLOAD.search(text)
    if match:
        return Failure(
            kind="operator",
            what=f"`{match[1]}` is called with types that torch can't decompose (a Python number first, an integer tensor second)",
            operator=match[1],
        )
    match = _LEGACY.search(text)
    if match:
        return _untranslated(match[1])
    return None


def _untranslated(operator: str) -> Failure:
    what = f"ONNX has no translation for the operator `{operator}`"
    return Failure(kind="operator", what=what, operator=operator)


def _read_control_flow(text: str) -> Failure | None:
    """TorchScript, or a path through the code that depends on values."""
    if "ScriptModule is not supported" in text:
        return Failure(
            kind="torchscript",
            what="it is TorchScript already, which torch.export does not take",
        )
    if not any(sign in text for sign in _DATA_DEPENDENT):
        return None
    what = "its path through the code depends on the values of a tensor"
    expression = _EXPRESSION.search(text)
    if expression:
        what += f" (torch calls the condition {expression[1]})"
    return Failure(kind="data-dependent", what=what)


def _read_dims(text: str) -> Failure | None:
    """A dim that should vary, and does not."""
    match = _FIXED.search(text)
    if match:
        size, name, axis = match.groups()
        what = f"dim {axis} of `{name}` should vary, and the module fixes it at {size}"
        return Failure(kind="dims", what=what)
    if "onstraints violated" in text or "user-specified ranges" in text:
        return Failure(
            kind="dims",
            what="a dim that should vary can't, or not over its whole range",
        )
    return None


def _read_exception(deepest: BaseException) -> Failure:
    """Any other exception, by its class and first line."""
    kind = "inputs" if isinstance(deepest, TypeError) else "other"
    what = f"{type(deepest).__name__}: {_first_line(str(deepest))}"
    return Failure(kind=kind, what=what)


def _chain(why: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while why is not None and id(why) not in seen:
        seen.add(id(why))
        yield why
        why = why.__cause__ or why.__context__


def _is_user_code(file: str) -> bool:
    if _TORCH.search(file):
        return False
    return not file.startswith(_LIBRARIES) or "site-packages" in file


def _locate_exception(chain: Sequence[BaseException], text: str) -> Location:
    """The innermost line that is neither torch's nor Python's own: from torch's message, else from the traceback."""
    for pattern in (_COMMENT, _FRAME, _STACK_TRACE):
        location = _last_user_line(pattern, text)
        if location:
            return location
    for link in reversed(chain):
        location = _last_user_frame(link)
        if location:
            return location
    return "", 0, ""


def last_user_line(trace: str) -> Location | None:
    """The last line of the user's code in a stack trace."""
    return _last_user_line(_FRAME, trace)


def _last_user_line(pattern: re.Pattern[str], text: str) -> Location | None:
    """The last line of the user's code that the pattern finds in a message."""
    location = None
    for file, line, *_, code in pattern.findall(text):
        if _is_user_code(file):
            location = (file, int(line), code.strip())
    return location


def _locate_operator(program: Any, operator: str) -> Location | None:
    """The user's line of the first operator of that name (decomposing may have changed its namespace), in the program or in its decompositions."""
    return _find_operator(program, operator) or _find_operator(_decompose(program), operator)


def _find_operator(program: Any, operator: str) -> Location | None:
    if program is None:
        return None
    name = operator.replace("::", ".").split(".")[-1].removeprefix("_")
    for node in program.graph.nodes:
        if node.op == "call_function" and name in str(node.target):
            location = last_user_line(node.meta.get("stack_trace") or "")
            if location:
                return location
    return None


def _decompose(program: Any) -> Any:
    """The program decomposed as far as torch can: an operator that no line of the user's names comes from there."""
    import torch

    try:
        return program.run_decompositions(dict(torch._decomp.decomposition_table))
    except Exception:  # torch raises dozens of classes here, and another error is to be reported
        return None


def _last_user_frame(why: BaseException) -> Location | None:
    """The deepest frame of the user's own code in the traceback, if there is one."""
    import linecache

    trace = why.__traceback__
    location = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _is_user_code(file):
            code = linecache.getline(file, trace.tb_lineno).strip()
            location = (file, trace.tb_lineno, code)
        trace = trace.tb_next
    return location


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    first = next(filter(None, lines), "no reason given")
    if len(first) <= _MAX_REASON:
        return first
    return first[:_MAX_REASON] + " ..."
