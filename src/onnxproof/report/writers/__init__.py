"""One file a writer: `write(proof, path)`; nothing is imported until it is chosen."""
