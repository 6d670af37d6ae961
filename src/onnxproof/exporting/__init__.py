"""The parts of an export, one file a capability; `exporter.py` puts them together.

example -> capture -> dims, guards -> program to file (choices, precision) -> bothsides
              |
              +-- failures, attempts: when it can't be captured or translated

Nothing is imported until it is used: most of these files need torch.
"""
