"""Operators of `ai.onnx.ml` that onnx's evaluator lacks."""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
DOMAIN = "ai.onnx.ml"


class ZipMap(OpRun):
    """Rows of scores as maps from class to score."""

    op_domain = DOMAIN
    op_schema = None

    def _run(
        self,
        scores: Array,
        classlabels_int64s: Any = None,
        classlabels_strings: Any = None,
        **_: Any,
    ) -> tuple[list[dict[Any, Any]]]:
        labels = classlabels_strings or [int(label) for label in classlabels_int64s]
        rows = scores.reshape(-1, len(labels))
        return ([dict(zip(labels, row, strict=True)) for row in rows],)


OPERATORS: dict[str, type[OpRun]] = {"ZipMap": ZipMap}
