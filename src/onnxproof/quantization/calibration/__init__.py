"""Calibration: streams of data, statistics of one pass, ranges made of them, and whether the data can be trusted."""
