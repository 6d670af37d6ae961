"""The side of the reference: how a subject is loaded, run, run in float64, traced, and left as it was found."""
