"""The truth: a PyTorch module in float64. Listed beside the runtimes; it can't open an ONNX file."""

import torch

from onnxproof.runtimes import Description


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="torch64",
        about="the module in float64 (the truth)",
        installed=True,
        version=torch.__version__,
        device="cpu",
        install="pip install 'onnxproof[torch]'",
        limits="runs a Python module, not an ONNX file",
    )
