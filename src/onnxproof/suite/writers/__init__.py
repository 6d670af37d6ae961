"""A run of a suite as a file, one file a form: `dumps(suite_result)` gives the text."""
