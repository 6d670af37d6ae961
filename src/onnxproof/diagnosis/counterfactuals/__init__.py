"""Counterfactuals that were run: the reference with a fault put in, the candidate with one mended."""
