"""Arrays: reading them from files, measuring how far they are apart, keeping a sketch of one."""
