"""The keys of a manifest: one table that the checks, the published schema and the plan are made of.

`python -m onnxproof.suite.keys > docs/suite.schema.json` writes the schema.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from onnxproof.options import Input, Policy
from onnxproof.results.verdicts import Verdict

Schema = Mapping[str, Any]
DOINGS = ("verify", "export", "diff", "replay", "quantize")
_TEXT: Schema = {"type": "string", "minLength": 1}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_FLAG: Schema = {"type": "boolean"}
_POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_DATE: Schema = {"type": "string", "format": "date"}
_VERDICTS: Schema = {"enum": [verdict.value for verdict in Verdict]}
_NUMBER: Schema = {"type": "number"}


def _about(schema: Schema, description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _table(properties: Mapping[str, Schema]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _policy() -> dict[str, Any]:
    """The fields of `Policy` that have one value."""
    kinds = {bool: _FLAG, float: _NUMBER}
    single = {item.name: kinds[item.type] for item in fields(Policy) if item.type in kinds}
    return _table({**single, "domain": {"enum": ["finite", "all"]}})


def _inputs() -> dict[str, Any]:
    numbers = {"type": "array", "items": _NUMBER}
    sizes = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    known = {"dtype": _TEXT, "shape": sizes, "values": numbers, "range": numbers, "avoid": numbers}
    assert known.keys() <= {item.name for item in fields(Input)}
    return {"type": "object", "additionalProperties": _table(known)}


_AXES = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": _TEXT},
}
_STATIC = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0}},
}
_WORDS = {"type": "object", "additionalProperties": _TEXT}
_EXPECT: Schema = {
    "anyOf": [
        _VERDICTS,
        {
            **_table({"verdict": _VERDICTS, "reason": _TEXT, "expires": _DATE, "cause": _TEXT}),
            "required": ["verdict"],
        },
    ]
}

OWN: dict[str, Schema] = {
    "name": _about(_TEXT, "Unique; placeholders such as {size} are filled in."),
    "subject": _about(_TEXT, "The reference, in any form that `verify` takes; a bundle to replay."),
    "file": _about(_TEXT, "The ONNX file; where `export` or `quantize` write to."),
    "expect": _about(_EXPECT, "A verdict that is known: it does not fail the suite."),
    "reason": _about(_TEXT, "Why that verdict is expected."),
    "expires": _about(_DATE, "From this day on the expected verdict fails the suite."),
}
"""Of one model alone."""
SHARED: dict[str, Schema] = {
    "do": _about({"enum": list(DOINGS)}, "What is done. [default: verify]"),
    "tags": _about(_TEXTS, "Words for --tag; those of [suite] are added."),
    "backends": _about(_TEXTS, 'Runtimes. [default: ["ort"]]'),
    "budget_s": _about(_POSITIVE, "Seconds for cases and explanation. [default: 60]"),
    "time_limit_s": _about(_POSITIVE, "Seconds after which the model is ended as an error."),
    "memory_gb": _about(_POSITIVE, "Memory that the model may take; it is ended beyond."),
    "cores": _about(_COUNT, "Threads, and cores that are reserved. [default: 1]"),
    "gpus": _about({"type": "number", "minimum": 0}, "GPUs that Ray reserves. [default: 0]"),
    "seed": _about({"type": "integer", "minimum": 0}, "Of the cases. [default: 0]"),
    "explain": _about(_FLAG, "Look for the node and the cause. [default: true]"),
    "data": _about(_TEXT, "Your own inputs."),
    "policy": _about(_policy(), "Limits of the verdict."),
    "strict": _about(_FLAG, "Drift fails, too."),
    "baseline": _about(_TEXT, "A lock file that the noise may not leave; {name} is filled in."),
    "cases": _about(_TEXTS, "Cases to run, by name."),
    "target": _about(_TEXT, "Precision of the device, or for quantize the CPU, that will serve."),
    "loop": _about({"anyOf": [_WORDS, {"const": False}]}, "Output to input; false for no loops."),
    "steps": _about(_COUNT, "Calls in the longest rollout."),
    "dynamic": _about(_AXES, 'Dims that may vary: {x = {0 = "batch"}}.'),
    "inputs": _about(_inputs(), "What inputs are: dtype, shape, values, range, avoid."),
    "dims": _about(_WORDS, 'Sizes of named dims: {seq = "1..512"}.'),
    "set": _about({"type": "object"}, "Keyword arguments of the factory."),
    "config": _about(_TEXT, "Keyword arguments from YAML or JSON."),
    "weights": _about(_TEXT, "A checkpoint for the factory."),
    "trust_remote_code": _about(_FLAG, "Run the code of a Hugging Face folder."),
    "pipeline": _about(_TEXT, "The preprocessing of the deployment."),
    "isolate": _about(_FLAG, "Every runtime in a process of its own."),
    "allow_fallback": _about(_FLAG, "A missing provider is reported instead of refused."),
    "pass_limit_s": _about(_POSITIVE, "Seconds for one forward pass of a runtime."),
    "depends": _about(_TEXTS, "More files that the verdict depends on; wildcards."),
    "opset": _about(_COUNT, "export: the opset."),
    "precision": _about({"enum": ["fp16", "bf16"]}, "export: half precision."),
    "static": _about(_STATIC, "export: dims that must not vary."),
    "optimize": _about(_TEXT, "export: onnxslim or onnxscript."),
    "external_data": _about(_FLAG, "export: weights in a file of their own."),
    "with_cache": _about(_FLAG, "export: a Hugging Face model that generates, as a folder."),
    "calibration": _about(_TEXT, "quantize: inputs as they are served."),
    "evaluate": _about(_TEXT, "quantize: the metric."),
    "max_drop": _about({"type": "number", "minimum": 0}, "quantize: what the metric may lose."),
    "scheme": _about(_TEXT, "quantize: u8s8, a16w8, w8, w4, dynamic, fp16 ..."),
    "calibrator": _about(_TEXT, "quantize: auto, min-max, mse, percentile, entropy."),
    "exclude": _about(_TEXTS, "quantize: nodes that stay float."),
    "tuning_s": _about(_POSITIVE, "quantize: seconds for tuning. [default: 120]"),
    "allow_other_model": _about(_FLAG, "replay: a file with another hash, too."),
}
"""Of a model, or in [suite] for all of them."""
_EXPORT_KEYS = ("opset", "precision", "static", "optimize", "external_data", "with_cache")
_QUANTIZE_KEYS = ("calibration", "evaluate", "max_drop", "scheme", "calibrator", "exclude")
USERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_EXPORT_KEYS, ("export",)),
    **dict.fromkeys((*_QUANTIZE_KEYS, "tuning_s"), ("quantize",)),
    **dict.fromkeys(("loop", "steps", "explain"), ("verify", "export", "diff")),
    "dynamic": ("verify", "export", "quantize"),
    "pipeline": ("verify", "export"),
    "allow_other_model": ("replay",),
}
"""What reads a key, for keys that are not for all: elsewhere it would be ignored without a word."""
SUITE: dict[str, Schema] = {
    "name": _about(_TEXT, "Of the suite. [default: the file's name]"),
    "preload": _about(_TEXTS, "Packages that workers import once, such as transformers."),
    "transport": _about(
        {"enum": ["path", "object-store"]},
        "How files reach workers of a cluster. [default: path]",
    ),
}
"""Of the suite alone."""


def make() -> dict[str, Any]:
    """The published schema; further keys of a model are axes of a table of options."""
    axis = {"type": ["array", "string", "number", "boolean"]}
    model = {**_table({**OWN, **SHARED}), "additionalProperties": axis}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onnxproof suite",
        "description": "The manifest of a suite, as TOML. Dates may be TOML's own.",
        **_table(
            {
                "suite": _table({**SUITE, **SHARED}),
                "model": {"type": "array", "minItems": 1, "items": model},
            }
        ),
        "required": ["model"],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(make(), indent=2) + "\n")
