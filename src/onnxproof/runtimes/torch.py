"""The reference: a PyTorch module in its own precision. Listed beside the runtimes; it can't open an ONNX file."""

import torch

from onnxproof.runtimes import Description


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="torch",
        about="the module in its own precision (the reference)",
        installed=True,
        version=torch.__version__,
        device="cpu",
        install="pip install 'onnxproof[torch]'",
        limits="runs a Python module, not an ONNX file",
    )
