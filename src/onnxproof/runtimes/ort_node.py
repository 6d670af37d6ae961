"""ONNX Runtime in Node: the npm package onnxruntime-node."""

from pathlib import Path

from onnxproof.runtimes import Description
from onnxproof.runtimes.isolation.child import ChildSession
from onnxproof.runtimes.javascript import node

OWN_PROCESS = True
_PACKAGE = "onnxruntime-node"


def describe() -> Description:
    """What `onnxproof backends` prints."""
    version = node.version(_PACKAGE) if node.program("node", "nodejs") else ""
    return Description(
        name="ort-node",
        about="ONNX Runtime in Node",
        installed=bool(version),
        version=version,
        device="cpu",
        install=node.install(_PACKAGE),
        limits="no bfloat16; apart",
    )


def open(model: Path, option: str = "") -> ChildSession:
    """Open a file in a Node process; the option is an execution provider that this package has, such as `cuda`."""
    return node.open_in_node("ort-node", _PACKAGE, model, provider=option or "cpu")
