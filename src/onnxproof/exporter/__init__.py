"""Module to ONNX file: capture, dims, guards, and the attempts that help where torch fails."""
