"""Models that feed themselves, right and wrong: what is caught, told apart, and named."""
