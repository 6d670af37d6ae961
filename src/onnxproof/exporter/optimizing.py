"""Optimise a file with a kept tool, and take the result only if it still says what the file said before."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import onnx

from onnxproof.errors import UsageError
from onnxproof.reference import subject
from onnxproof.results import Finding, Verdict
from onnxproof.system import temporary, writing
from onnxproof.verification.evidence import Request
from onnxproof.verification.run import run

TOOLS = ("onnxslim", "onnxscript")
_BUDGET_S = 15.0


def check(tool: str | None) -> None:
    """Refuse a tool that is not known or not installed before anything is exported."""
    if tool is None:
        return
    if tool not in TOOLS:
        raise UsageError(
            "unknown-tool",
            f"`--optimize {tool}` is not known",
            help=f"say one of {', '.join(TOOLS)}",
        )
    try:
        importlib.import_module(tool)
    except ImportError as why:
        raise UsageError(
            "tool-missing",
            f"`--optimize {tool}` needs a package that isn't installed",
            help=f"pip install 'onnxproof[{tool if tool != 'onnxscript' else 'torch'}]'",
        ) from why


def optimise(path: Path, tool: str) -> tuple[str, list[Finding]]:
    """Words for the record, and a finding where the tool's result was not taken."""
    before = onnx.load(path)
    with temporary.Folder() as folder:
        trial = Path(folder) / "optimised.onnx"
        try:
            after = _slim(path) if tool == "onnxslim" else _script(before)
            onnx.helper.set_model_props(
                after, {prop.key: prop.value for prop in before.metadata_props}
            )
            onnx.save(after, trial)
            unoptimized = subject.load(str(path))
            request = Request(subject=unoptimized, path=trial, budget_s=_BUDGET_S)
            proof = run(request).proof
        except Exception as why:  # an optimizer that fails costs the optimisation, not the export
            return f"{tool} failed", [
                _finding(tool, f"it raised {type(why).__name__}: {str(why)[:200]}")
            ]
        if proof.verdict is not Verdict.FAITHFUL:
            return f"{tool} refused", [
                _finding(tool, f"its file is {proof.verdict.value}: {proof.sentence()}")
            ]
        with writing.replace_file(path, what="the model") as draft:
            shutil.copyfile(trial, draft)
    return (
        f"{tool}: {len(before.graph.node)} nodes to {len(after.graph.node)}, verified against the file before",
        [],
    )


def _finding(tool: str, why: str) -> Finding:
    return Finding(
        code="optimizer-refused",
        what=f"{tool} was not taken: {why}",
        help="the file is the exporter's own; export without --optimize to silence this",
    )


def _slim(path: Path) -> onnx.ModelProto:
    slim: Any = importlib.import_module("onnxslim").slim
    made: onnx.ModelProto = slim(str(path))
    return made


def _script(model: onnx.ModelProto) -> onnx.ModelProto:
    optimizer: Any = importlib.import_module("onnxscript.optimizer")
    made: onnx.ModelProto = optimizer.optimize(model)
    return made
