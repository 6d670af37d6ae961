"""Inputs: the space that generators draw from, what is inferred about dims and roles, search, and the user's own data."""
