"""Which release changed the answers of a model: `bisect.py` composes, `axes/` has one file for each thing that may be another version."""
