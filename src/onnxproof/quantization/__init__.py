"""Quantize without losing the answers: calibration that streams, recipes, tuning to a budget, and where every lost point went."""
