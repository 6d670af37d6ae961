"""torch's report of a failed export in the user's terms: what can't be done, the line of the user's Python, what to do."""

import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.errors import ExportError

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
_TOLD = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.+)')
_COMMENT = re.compile(r"# File: ([^:\n]+):(\d+) in \w+, code: (.+)")
_TRANSLATED = re.compile(
    r"Stack trace:?\s*\n(?:.*\n)*?\s*File \"([^\"]+)\", line (\d+), in \S+\n\s+(.+)"
)
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
    """An operator that torch.onnx does not translate, known before it was asked."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator)
        self.operator = operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an export failed, as far as torch's report tells."""

    kind: str
    """operator, data-dependent, dims, torchscript, inputs or other."""
    what: str
    operator: str = ""
    file: str = ""
    line: int = 0
    text: str = ""

    def error(self, name: str, notes: Sequence[str] = ()) -> ExportError:
        """The error to raise when nothing helped."""
        where = f"{self.file}:{self.line}" if self.file else ""
        shown = [f"`{self.text}`"] if self.text else []
        return ExportError(
            "export-failed",
            f"torch can't export `{name}`: {self.what}",
            where=where,
            notes=[*shown, *notes],
            help=_HELP[self.kind],
        )


def read(why: BaseException, program: Any = None) -> Failure:
    """The failure behind an exception of torch's; a captured program knows the line of each of its operators."""
    chain = list(_chain(why))
    text = "\n".join(str(link) for link in chain)
    kind, what, operator = _kind(chain, text)
    place = (
        _operator_line(program, operator) if operator and program is not None else None
    ) or _place(chain, text)
    return Failure(
        kind=kind, what=what, operator=operator, file=place[0], line=place[1], text=place[2]
    )


def _kind(chain: Sequence[BaseException], text: str) -> tuple[str, str, str]:
    told = _OPERATOR.search(text)
    if told or isinstance(chain[0], NoTranslation):
        operator = (told[1] or told[2]) if told else str(chain[0])
        return "operator", f"ONNX has no translation for the operator `{operator}`", operator
    if told := _OVERLOAD.search(text):
        return (
            "operator",
            f"`{told[1]}` is called with types that torch can't decompose (a Python number first, an integer tensor second)",
            told[1],
        )
    if told := _LEGACY.search(text):
        return "operator", f"ONNX has no translation for the operator `{told[1]}`", told[1]
    if "ScriptModule is not supported" in text:
        return "torchscript", "it is TorchScript already, which torch.export does not take", ""
    if "data-dependent" in text or "DataDependent" in text or "Dynamic control flow" in text:
        expression = _EXPRESSION.search(text)
        told_as = f" (torch calls the condition {expression[1]})" if expression else ""
        return (
            "data-dependent",
            f"its path through the code depends on the values of a tensor{told_as}",
            "",
        )
    if fixed := _FIXED.search(text):
        return (
            "dims",
            f"dim {fixed[3]} of `{fixed[2]}` should vary, and the module fixes it at {fixed[1]}",
            "",
        )
    if "onstraints violated" in text or "user-specified ranges" in text:
        return "dims", "a dim that should vary can't, or not over its whole range", ""
    deepest = chain[-1]
    kind = "inputs" if isinstance(deepest, TypeError) else "other"
    return kind, f"{type(deepest).__name__}: {_first_line(str(deepest))}", ""


def _chain(why: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while why is not None and id(why) not in seen:
        seen.add(id(why))
        yield why
        why = why.__cause__ or why.__context__


def _users(file: str) -> bool:
    return not _TORCH.search(file) and (not file.startswith(_LIBRARIES) or "site-packages" in file)


def _place(chain: Sequence[BaseException], text: str) -> tuple[str, int, str]:
    """The innermost line that is neither torch's nor Python's own: from torch's message, else from the traceback."""
    for pattern in (_COMMENT, _TOLD, _TRANSLATED):
        told = [
            (file, int(line), code.strip())
            for file, line, *_, code in pattern.findall(text)
            if _users(file)
        ]
        if told:
            return told[-1]
    for link in reversed(chain):
        if place := _frame(link):
            return place
    return "", 0, ""


def _operator_line(program: Any, operator: str) -> tuple[str, int, str] | None:
    """The user's line of the first operator of that name (decomposing may have changed its namespace), in the program or in what it is made of."""
    return _line_in(program, operator) or _line_in(_decomposed(program), operator)


def _line_in(program: Any, operator: str) -> tuple[str, int, str] | None:
    word = operator.replace("::", ".").split(".")[-1].removeprefix("_")
    for node in program.graph.nodes if program is not None else ():
        if node.op == "call_function" and word in str(node.target):
            told = [
                (file, int(line), code.strip())
                for file, line, _, code in _TOLD.findall(node.meta.get("stack_trace") or "")
                if _users(file)
            ]
            if told:
                return told[-1]
    return None


def _decomposed(program: Any) -> Any:
    """The program as far apart as torch takes it: an operator that none of the user's lines names comes from there."""
    import torch

    try:
        return program.run_decompositions(dict(torch._decomp.decomposition_table))
    except Exception:  # torch raises dozens of classes here, and the error to tell is another
        return None


def _frame(why: BaseException) -> tuple[str, int, str] | None:
    """The deepest frame of the user's own code in the traceback, or nothing."""
    import linecache

    trace, place = why.__traceback__, None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _users(file):
            place = (file, trace.tb_lineno, linecache.getline(file, trace.tb_lineno).strip())
        trace = trace.tb_next
    return place


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= 300 else line[:300] + " ..."
