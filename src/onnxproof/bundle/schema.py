"""The published JSON Schema of a manifest, made from the dataclasses themselves: `python -m onnxproof.bundle.schema > docs/bundle.schema.json`."""

import json
import sys
from typing import Any

from onnxproof.bundle.manifest import SCHEMA, TOOL, Manifest
from onnxproof.report.schema import document_of


def make() -> dict[str, Any]:
    """The schema of `manifest.json`."""
    document = document_of(Manifest, "onnxproof bundle", SCHEMA)
    document["$defs"]["Manifest"]["properties"]["tool"] = {"const": TOOL}
    return document


if __name__ == "__main__":
    sys.stdout.write(json.dumps(make(), indent=2) + "\n")
