"""Releases of ONNX Runtime that never were: environments whose interpreter is our own, with a kernel or an optimizer changed from some release on."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CUSTOMIZE = """
import json, os
plan = json.loads(os.environ["PLANTED"])
import onnxruntime

class Session(onnxruntime.InferenceSession):
    def __init__(self, model, options=None, *args, disabled_optimizers=None, **more):
        if plan.get("refuses"):
            raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : this release knows no such operator")
        level = int(options.graph_optimization_level) if options is not None else 99
        optimizer = plan.get("optimizer", "")
        if plan.get("op") and (not optimizer or (level and optimizer not in (disabled_optimizers or ()))):
            model = _changed(model, plan["op"])
        super().__init__(model, options, *args, disabled_optimizers=disabled_optimizers, **more)

def _changed(model, op):
    import onnx

    loaded = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    for node in loaded.graph.node:
        if node.op_type == op:
            node.op_type = "LeakyRelu"
            node.attribute.append(onnx.helper.make_attribute("alpha", 0.1))
    return loaded.SerializeToString()

onnxruntime.InferenceSession = Session
"""
"""A changed release computes LeakyRelu where the file says `op`: always, or when `optimizer` is at work."""


def plant(cache: Path, plans: Mapping[str, Mapping[str, Any]]) -> None:
    """Make an environment in `cache` for each release, with what is changed in it."""
    customized = cache / "customized"
    customized.mkdir(parents=True)
    (customized / "sitecustomize.py").write_text(_CUSTOMIZE, encoding="utf-8")
    major, minor = sys.version_info[:2]
    for release, plan in plans.items():
        folder = cache / "ort" / f"onnxruntime-{release}-py{major}{minor}"
        _environment(folder, {"PLANTED": json.dumps(plan), "PYTHONPATH": str(customized)})


def plant_torch(cache: Path, releases: Mapping[str, str]) -> None:
    """Environments for releases of torch; what each has is in the variable `PLANTED`."""
    major, minor = sys.version_info[:2]
    for release, value in releases.items():
        _environment(cache / "torch" / f"torch-{release}-py{major}{minor}", {"PLANTED": value})


def _environment(folder: Path, variables: Mapping[str, str]) -> None:
    (folder / "bin").mkdir(parents=True)
    words = " ".join(f"'{name}={value}'" for name, value in variables.items())
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec env {words} {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (folder / ".ready").touch()
