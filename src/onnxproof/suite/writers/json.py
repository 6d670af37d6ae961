"""A run as JSON: the published schema is docs/suite-results.schema.json."""

from onnxproof.report.writers.json import layout
from onnxproof.suite.document import SCHEMA, plain
from onnxproof.suite.run import SuiteResult


def dumps(suite: SuiteResult) -> str:
    """One line for each model."""
    return layout(plain(suite))


def failure(error: str) -> str:
    """The document for a suite that could not be begun."""
    return layout({"schema": SCHEMA, "error": error, "results": []})
