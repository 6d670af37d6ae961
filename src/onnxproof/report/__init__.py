"""One file a writer: how a proof is handed to people, to CI and to machines. Nothing is imported until it is chosen.

A writer is a module of `writers/` with a function `write(proof, path)`; `terminal` prints instead.
"""
