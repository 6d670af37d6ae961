"""A small detector of numpy and its ONNX file: boxes, sorted scores and classes behind a non-maximum suppression.

Every score has a twin that is equal but for the order of a sum, so that rows are exchanged on nearly every input.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

Array = np.ndarray[Any, Any]
ANCHORS, FEATURES, CLASSES = 16, 6, 3
LARGEST = np.float32(3)
"""Of the logarithm of a side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a faulty file has otherwise."""

    overlap: float = 0.45
    least_score: float = 0.3
    most: int = 100
    box_scale: float = 1.0
    class_offset: int = 0
    dropped: int = 0
    descending: int = 1


def weights(seed: int = 0) -> dict[str, Array]:
    """Heads for boxes and scores, and the anchors' centres."""
    rng = np.random.default_rng(seed)
    side = int(np.sqrt(ANCHORS))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(1, -1, 2)
    score = rng.normal(size=(FEATURES, CLASSES)) * 0.5
    return {
        "box_head": (rng.normal(size=(FEATURES, 4)) * 0.3).astype(np.float32),
        "score_head": np.concatenate([score, score]).astype(np.float32),
        "centres": (grid * 0.8).astype(np.float32),
    }


def detect(x: Array) -> dict[str, Array]:
    """The reference: sorted by score, after a suppression for each class."""
    heads = {name: array.astype(x.dtype) for name, array in weights().items()}
    raw = x @ heads["box_head"]
    centre = heads["centres"] + np.tanh(raw[..., :2])
    half = np.exp(np.minimum(raw[..., 2:], LARGEST))
    boxes = np.concatenate([centre - half, centre + half], -1)[0]
    paired = np.concatenate([x, x[:, ::-1]], -1)
    scores = (1 / (1 + np.exp(-(paired @ heads["score_head"]))))[0]
    rows = [
        (place, label)
        for label in range(CLASSES)
        for place in _suppressed(boxes, scores[:, label], Settings())
    ]
    rows.sort(key=lambda row: -scores[row])
    places = np.array([place for place, _ in rows], np.int64)
    labels = np.array([label for _, label in rows], np.int64)
    return {"boxes": boxes[places], "scores": scores[places, labels], "labels": labels}


def _suppressed(boxes: Array, scores: Array, settings: Settings) -> list[int]:
    kept: list[int] = []
    for place in np.argsort(-scores, kind="stable"):
        overlaps = [_overlap(boxes[place], boxes[other]) for other in kept]
        if scores[place] > settings.least_score and all(o <= settings.overlap for o in overlaps):
            kept.append(int(place))
    return kept


def _overlap(one: Array, other: Array) -> float:
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - shared)


def write(path: Path, settings: Settings | None = None) -> Path:
    """The same as an ONNX file, with what the settings change."""
    settings = settings or Settings()
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    detector (float[1, {ANCHORS}, {FEATURES}] x) => (float[k, 4] boxes, float[k] scores, int64[k] labels) {{
      raw = MatMul(x, box_head)
      offset, size = Split<axis = -1, num_outputs = 2>(raw)
      moved = Tanh(offset)
      centre = Add(centres, moved)
      clamped = Min(size, largest)
      wide = Exp(clamped)
      half = Mul(wide, box_scale)
      low = Sub(centre, half)
      high = Add(centre, half)
      all_boxes = Concat<axis = -1>(low, high)
      mirrored = Gather<axis = 1>(x, backwards)
      paired = Concat<axis = -1>(x, mirrored)
      logits = MatMul(paired, score_head)
      by_anchor = Sigmoid(logits)
      by_class = Transpose<perm = [0, 2, 1]>(by_anchor)
      selected = NonMaxSuppression(all_boxes, by_class, most, overlap, least_score)
      places = Gather<axis = 1>(selected, two)
      classes = Gather<axis = 1>(selected, one)
      pairs = Gather<axis = 1>(selected, zero_one_two)
      found = GatherND(by_class, pairs)
      number = Shape(found)
      fewer = Sub(number, dropped)
      scores, order = TopK<largest = {settings.descending}>(found, fewer)
      flat = Squeeze(all_boxes, zero)
      own_boxes = Gather<axis = 0>(flat, places)
      boxes = Gather<axis = 0>(own_boxes, order)
      own_labels = Gather<axis = 0>(classes, order)
      labels = Add(own_labels, class_offset)
    }}"""
    model = parser.parse_model(text)
    constants = {
        **weights(),
        "backwards": np.arange(ANCHORS)[::-1].copy(),
        "box_scale": np.float32(settings.box_scale),
        "most": np.array([settings.most]),
        "overlap": np.float32([settings.overlap]),
        "least_score": np.float32([settings.least_score]),
        "largest": LARGEST,
        "zero": np.array([0]),
        "one": np.array(1),
        "two": np.array(2),
        "zero_one_two": np.array([0, 1, 2]),
        "dropped": np.array([settings.dropped]),
        "class_offset": np.array(settings.class_offset),
    }
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    onnx.save(model, path)
    return path


def example(seed: int = 1) -> dict[str, Array]:
    """Features of every anchor."""
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(1, ANCHORS, FEATURES)).astype(np.float32)}
