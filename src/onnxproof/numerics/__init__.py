"""Arrays: reading them from files, measuring their distance, and keeping a sketch of one."""
