"""Several backends on one case: who is right by the standard's evaluation of the file, or by the truth where that can't be had."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.fake_reference import FakeReference

from onnxproof.errors import Refused
from onnxproof.options import Policy
from onnxproof.results import Case, InputInfo, OutputInfo, Signature
from onnxproof.verification import consensus

Array = np.ndarray[Any, Any]
X = np.linspace(1, 2, 6, dtype=np.float32)
CASE = Case(name="c", group="ordinary", about="", inputs={"x": X})
SIGNATURE = Signature(
    inputs=(InputInfo(name="x", dtype="float32", shape=(6,), dims=(6,), onnx_name="x"),),
    outputs=(OutputInfo(name="y", dtype="float32", shape=(6,), onnx_name="y"),),
)


class Backend:
    """Answers x times a factor; None refuses."""

    def __init__(self, backend: str, factor: float | None) -> None:
        self.backend = backend
        self._factor = factor

    def run(self, inputs: Mapping[str, Array], *, isolated: bool = False) -> list[Array]:
        if self._factor is None:
            raise Refused("refused", "refused")
        return [inputs["x"] * np.float32(self._factor)]


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """A file that says x + x."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])], "g", ports[:1], ports[1:]
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def compared(path: Path, factor: float, **backends: float | None) -> Any:
    """The backends beside a reference that says x times the factor."""
    reference = FakeReference(lambda inputs: [inputs["x"] * inputs["x"].dtype.type(factor)])
    candidates = [Backend(name, answer) for name, answer in backends.items()]
    return consensus.compare(
        candidates, consensus.ask(reference, CASE), [], path, SIGNATURE, Policy()
    )  # type: ignore[arg-type]


def test_the_file_s_own_meaning_says_who_is_right(doubling: Path) -> None:
    found = compared(doubling, 2.0, a=2.0, b=3.0, c=2.0)
    assert found.right == ("a", "c") and found.wrong == ("b",)
    assert [pair[:2] for pair in found.disagree] == [("a", "b"), ("b", "c")]
    assert found.words == "a and c agree with the standard's evaluation in float64; b is wrong"
    assert [standing.from_truth for standing in found.standings] == [0.0, pytest.approx(0.5), 0.0]


def test_a_file_that_is_not_the_reference_is_said(doubling: Path) -> None:
    found = compared(doubling, 5.0, a=2.0)
    assert found.right == ("a",)
    assert found.words.endswith("; the file itself says something else than the reference")


def test_a_backend_without_an_answer_is_wrong(doubling: Path) -> None:
    found = compared(doubling, 2.0, a=None)
    assert found.wrong == ("a",) and found.standings[0].from_truth is None


def test_the_truth_decides_where_the_file_can_not_be_evaluated(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    found = compared(tmp_path / "no.onnx", 2.0, a=2.0)
    assert found.arbiter == "the reference's truth" and found.right == ("a",)
