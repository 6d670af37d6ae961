"""What a repro says: a script that shows the fault, and a text for a bug report."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.repro.cut import Cut, error
from onnxproof.results.proof import Proof
from onnxproof.system.text import code, markdown, prose

Array = np.ndarray[Any, Any]
_SCRIPT = '''"""Exits with 1 while the fault exists, with 0 once it is gone. Needs numpy and onnxruntime alone."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent
LIMITS = @LIMITS@  # the relative error from which on an output is wrong; 0 where it must be exact
LEVEL = onnxruntime.GraphOptimizationLevel.@LEVEL@
KINDS = {"BOOL": "?", "F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
         "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1"}


def plain(text):
    return ascii(text).replace("##[", "##\\\\x5b")  # names may hold anything, and a log obeys some of it


def tensors(name):
    data = (HERE / name).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    head = {n: e for n, e in json.loads(data[8:start]).items() if n != "__metadata__"}
    parts = {n: data[start + e["data_offsets"][0] : start + e["data_offsets"][1]] for n, e in head.items()}
    return {n: np.frombuffer(parts[n], KINDS[e["dtype"]]).reshape(e["shape"]) for n, e in head.items()}


def error(found, truth):
    if found.shape != truth.shape or found.dtype != truth.dtype:
        return np.inf
    if truth.dtype.kind != "f":
        return float((found != truth).mean()) if truth.size else 0.0
    f, t = found.astype("f8"), truth.astype("f8")
    odd = ~(np.isfinite(f) & np.isfinite(t))
    if (odd & ~((f == t) | (np.isnan(f) & np.isnan(t)))).any():
        return np.inf
    f, t = np.where(odd, 0, f), np.where(odd, 0, t)
    scale = np.sqrt((t**2).mean()) if t.size else 0.0
    return float(np.sqrt(((f - t) ** 2).mean()) / (scale or 1.0)) if t.size else 0.0


options = onnxruntime.SessionOptions()
options.graph_optimization_level, options.log_severity_level = LEVEL, 4
given, truths = tensors("inputs.safetensors"), tensors("outputs.safetensors")
try:
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), options, providers=["CPUExecutionProvider"])
    found = session.run(list(truths), {i.name: given[i.name] for i in session.get_inputs()})
except Exception as why:
    sys.exit(f"onnxruntime {onnxruntime.__version__} refuses the model: {plain(str(why))}")
wrong = False
for (name, truth), value in zip(truths.items(), found):
    off = error(np.asarray(value), truth)
    wrong |= off > LIMITS[name]
    print(f"{plain(name)}: {'WRONG' if off > LIMITS[name] else 'right'}, relative error {off:.3g} (limit {LIMITS[name]:g})")
    print("  should be", truth.ravel()[:6], "and is", np.asarray(value).ravel()[:6])
sys.exit(int(wrong))
'''
_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
}


def script(cut: Cut) -> str:
    """The script that runs the cut-out part and says whether it is still wrong."""
    return _SCRIPT.replace("@LIMITS@", ascii(cut.limits)).replace(
        "@LEVEL@", _LEVELS.get(cut.level, "ORT_ENABLE_ALL")
    )


def report(proof: Proof, nodes: Sequence[onnx.NodeProto], cut: Cut) -> str:
    """A text to paste into a bug report."""
    where = proof.location
    assert where is not None
    names = ", ".join(
        f"{code(n.name or n.output[0])} ({markdown(n.op_type)})" for n in nodes[:6]
    ) + (f" and {len(nodes) - 6} more" if len(nodes) > 6 else "")
    head = f"{nodes[0].op_type if len(nodes) == 1 else where.nodes[0] if where.nodes else 'model'}: wrong values"
    lines = [f"# {markdown(head)} (stage {where.stage.value})", "", prose(proof.sentence()), ""]
    lines += [
        f"The smallest part that shows it has {len(nodes)} of the model's nodes: {names}.",
        "",
    ]
    lines += [f"Optimizer: {code(where.optimizer)}.", ""] if where.optimizer else []
    lines += (
        [
            f"Python: {code(f'{where.source.file}:{where.source.line}')}: {code(where.source.text.strip())}",
            "",
        ]
        if where.source
        else []
    )
    lines += [f"Evidence: {prose(where.evidence)}.", ""] if where.evidence else []
    lines += [
        "| output | relative error | counts as wrong beyond | should be | is |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, truth in cut.truth.items():
        found = cut.found.get(name)
        seen = markdown(_few(found) if found is not None else cut.words)
        lines.append(
            f"| {code(name)} | {error(found, truth):.3g} | {cut.limits[name]:g} | {_few(truth)} | {seen} |"
        )
    lines += [""]
    for cause in proof.causes[:1]:
        lines += [
            f"Cause ({'proven' if cause.proven else 'likely'}): {prose(f'{cause.code}: {cause.title}. {cause.evidence}')}."
        ]
        lines += [f"Remedy: {prose(cause.fix.what)}."] if cause.fix is not None else []
    lines += [
        "",
        "## See it",
        "",
        "```",
        "pip install numpy onnxruntime",
        "python repro.py    # exits with 1 while the fault exists",
        "```",
        "",
    ]
    lines += ["## Versions", ""]
    lines += [
        f"- {markdown(f'{name} {version}')}"
        for name, version in proof.environment.items()
        if name != "time"
    ]
    return "\n".join(
        [*lines, f"- SHA-256 of the whole model: {proof.hashes.get('candidate', 'unknown')}", ""]
    )


def _few(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)} " + " ".join(
        f"{v:.7g}" if array.dtype.kind == "f" else str(v) for v in array.reshape(-1)[:4]
    )
