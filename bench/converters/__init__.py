"""Converted models that are no exports of PyTorch: healthy ones, and ones with a fault that was planted or that the converter makes itself."""
