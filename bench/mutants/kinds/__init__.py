"""Kinds of fault, by topic."""
