"""Faults planted in fused and in 4-bit files, and what `verify` says of them and of their healthy twins."""
