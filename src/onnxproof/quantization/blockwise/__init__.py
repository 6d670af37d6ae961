"""Weights of a few bits in blocks with a scale each: how matrices are rounded, which bits each gets, and what that costs."""
