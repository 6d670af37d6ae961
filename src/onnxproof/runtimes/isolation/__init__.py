"""A runtime in a process of its own: what the parent does, what the child does, and the arrays that they share."""
