"""What the reference computed on the case, whether it is a module or an ONNX file."""

from dataclasses import dataclass
from typing import Any

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.reference.traced_value import Fetch, TracedValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTrace:
    """The reference's values on one case."""

    values: list[TracedValue]
    fetch: Fetch
    module_session: Any = None
    """The module in float64; None where the reference is a graph."""


def trace_reference(scene: Scene) -> ReferenceTrace:
    """Run the reference in float64 and sketch every value on the way."""
    values, fetch = scene.reference.trace(scene.case.inputs)
    truth = scene.reference.float64_session()
    if truth is None:
        return ReferenceTrace(values=values, fetch=fetch)
    return ReferenceTrace(values=values, fetch=fetch, module_session=truth.session)
