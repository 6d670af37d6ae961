"""Models whose outputs are their next inputs, run for many steps in their own loops."""
