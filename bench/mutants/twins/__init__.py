"""Rewrites that keep the answers, by topic."""
