"""The smallest sub-model that still shows a fault, with a script that needs numpy and onnxruntime alone."""
