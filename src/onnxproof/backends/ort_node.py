"""ONNX Runtime in Node: the npm package onnxruntime-node."""

from pathlib import Path

from onnxproof.backends import Description, _node
from onnxproof.backends._child import ChildSession

OWN_PROCESS = True
_PACKAGE = "onnxruntime-node"


def describe() -> Description:
    """What `onnxproof backends` prints."""
    version = _node.version(_PACKAGE) if _node.program("node", "nodejs") else ""
    return Description(name="ort-node", about="ONNX Runtime in Node", installed=bool(version), version=version, device="cpu", install=_node.install(_PACKAGE),
                       limits="no bfloat16; apart")


def open(model: Path, option: str = "") -> ChildSession:
    """Open a file in a Node process; the option is an execution provider that this package has, such as `cuda`."""
    return _node.open_in_node("ort-node", _PACKAGE, model, provider=option or "cpu")
