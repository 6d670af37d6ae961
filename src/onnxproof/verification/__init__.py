"""From a request to the evidence: cases are run on every backend, measured, confirmed and judged."""
