"""Optimise a file with an installed tool, and take the result only if it still answers like the file before."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import onnx

from onnxproof.errors import UsageError
from onnxproof.onnxmodel import large_models
from onnxproof.reference import subject
from onnxproof.results import Finding, Verdict
from onnxproof.system import temporary, writing
from onnxproof.verification.evidence import Request
from onnxproof.verification.run import run

TOOLS = ("onnxslim", "onnxscript")
_BUDGET_S = 15.0
"""Seconds for the comparison of the two files. Not measured."""
_EXTRAS = {"onnxslim": "onnxslim", "onnxscript": "torch"}
"""The extra of our package that installs a tool."""


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
            help=f"pip install 'onnxproof[{_EXTRAS[tool]}]'",
        ) from why


def optimise(path: Path, tool: str) -> tuple[str, list[Finding]]:
    """A line for the record, and a finding if the tool's result was not taken."""
    before = onnx.load(path)
    with temporary.Folder() as folder:
        trial = Path(folder) / "optimised.onnx"
        try:
            after = run_tool(tool, path, before)
            metadata = {prop.key: prop.value for prop in before.metadata_props}
            onnx.helper.set_model_props(after, metadata)
            large_models.save(after, trial)
            request = Request(subject=subject.load(str(path)), path=trial, budget_s=_BUDGET_S)
            proof = run(request).proof
        except Exception as why:  # an optimizer that fails costs the optimisation, not the export
            reason = f"it raised {type(why).__name__}: {str(why)[:200]}"
            return f"{tool} failed", [_finding(tool, reason)]
        if proof.verdict is not Verdict.FAITHFUL:
            reason = f"its file is {proof.verdict.value}: {proof.sentence()}"
            return f"{tool} refused", [_finding(tool, reason)]
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


def run_tool(
    tool: str,
    path: Path,
    model: onnx.ModelProto,
) -> onnx.ModelProto:
    """The graph as the tool leaves it."""
    optimised: onnx.ModelProto
    if tool == "onnxslim":
        onnxslim: Any = importlib.import_module("onnxslim")
        optimised = onnxslim.slim(str(path))
    else:
        optimizer: Any = importlib.import_module("onnxscript.optimizer")
        optimised = optimizer.optimize(model)
    return optimised
