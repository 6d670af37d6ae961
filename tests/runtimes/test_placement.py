"""Placement is proven, not assumed: a provider that is missing, was dropped or took only a part is refused by name."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from onnxproof import diff
from onnxproof.errors import BackendMissing, Refused, UsageError
from onnxproof.options import Serving
from onnxproof.results import Verdict
from onnxproof.runtimes import open_session, ort, use_serving
from onnxproof.runtimes.session import placement
from onnxproof.testing import _models

FORGIVEN = Serving(allow_fallback=True)


@dataclass
class Node:
    name: str
    op_type: str


@dataclass
class Piece:
    ep_name: str
    nodes: list[Node]

    def get_nodes(self) -> list[Node]:
        return self.nodes


@dataclass
class Session:
    """What onnxruntime tells of a session, for providers that this machine does not have."""

    pieces: list[Piece]
    providers: list[str] = field(
        default_factory=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )

    def get_providers(self) -> list[str]:
        return self.providers

    def get_provider_graph_assignment_info(self) -> list[Piece]:
        return self.pieces


CUDA = Piece("CUDAExecutionProvider", [Node("conv", "Conv"), Node("", "Relu")])
CPU = Piece("CPUExecutionProvider", [Node("shape", "Shape"), Node("", "NonZero")])


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return _models.linear_model(tmp_path)[0]


def test_a_provider_that_takes_nothing_is_refused_with_the_names_of_the_nodes(linear: Path) -> None:
    """Azure is in every build of onnxruntime and runs nothing: a silent fallback that any machine can show."""
    with pytest.raises(
        Refused,
        match=r"provider-fallback\]: Azure took none of the model's 2 nodes: they run .*Gemm\) on CPU",
    ):
        open_session("ort:azure", linear)


def test_where_it_is_forgiven_it_is_reported(linear: Path) -> None:
    session = open_session("ort:azure", linear, FORGIVEN)
    assert [finding.code for finding in session.findings] == ["provider-fallback"]  # type: ignore[attr-defined]
    assert session.run({"x": np.ones((2, 4), np.float32)})[0] is not None


def test_a_provider_that_is_not_in_the_build(linear: Path) -> None:
    with pytest.raises(
        BackendMissing,
        match=r"has no CUDAExecutionProvider[\s\S]*it has .*CPUExecutionProvider[\s\S]*ort@onnxruntime-gpu:cuda",
    ):
        open_session("ort:cuda", linear)
    (finding,) = open_session("ort:cuda", linear, FORGIVEN).findings  # type: ignore[attr-defined]
    assert "has no CUDA: everything ran on the CPU" in finding.what


def test_nodes_elsewhere_are_named() -> None:
    with pytest.raises(
        Refused,
        match=r"2 of 4 nodes do not run on CUDA: shape \(Shape\) on CPU, a NonZero without a name on CPU[\s\S]*--allow-fallback",
    ):
        placement.judge(Session([CUDA, CPU]), "CUDAExecutionProvider", 4, forgiven=False)
    (finding,) = placement.judge(Session([CUDA, CPU]), "CUDAExecutionProvider", 4, forgiven=True)
    assert (
        finding.code == "provider-fallback"
        and "shape (Shape) on CPU" in finding.what
        and not finding.counts
    )


def test_a_provider_that_was_dropped_while_opening() -> None:
    with pytest.raises(
        Refused,
        match="onnxruntime dropped CUDA while it opened the model, and would run everything on the CPU",
    ):
        placement.judge(
            Session([CPU], ["CPUExecutionProvider"]), "CUDAExecutionProvider", 2, forgiven=False
        )


def test_what_was_fused_is_counted() -> None:
    (finding,) = placement.judge(Session([CUDA]), "CUDAExecutionProvider", 5, forgiven=False)
    assert (
        finding.what
        == "all 2 nodes run on CUDA, in 1 piece; 3 of the file's 5 nodes were folded or fused"
    )


def test_an_onnxruntime_that_can_not_tell_refuses_to_fall_back() -> None:
    class Old:
        def get_providers(self) -> list[str]:
            return ["CUDAExecutionProvider"]

    (finding,) = placement.judge(Old(), "CUDAExecutionProvider", 5, forgiven=False)
    assert finding.what.endswith("it was opened so that it refuses to fall back")


def test_a_pass_on_a_provider_that_did_not_run_is_impossible(linear: Path) -> None:
    with pytest.raises(Refused, match="Azure took none"):
        diff(linear, linear, backends=("ort:azure",), budget_s=5)
    proof = diff(linear, linear, backends=("ort:azure", "ort"), budget_s=5, explain=False)
    assert proof.verdict is Verdict.DIVERGED and {gap.backend for gap in proof.gaps} == {"ort"}
    assert "ort:azure: Azure took none of the model's 2 nodes" in proof.sentence()
    proof = diff(
        linear, linear, backends=("ort:azure",), budget_s=5, explain=False, serving=FORGIVEN
    )
    assert proof.verdict is Verdict.FAITHFUL and "provider-fallback" in {
        finding.code for finding in proof.findings
    }


def test_levels_providers_and_options_are_told_apart() -> None:
    wanted = ort.parse("openvino,device_type=GPU,basic,precision=FP32")
    assert (wanted.level, wanted.provider, wanted.options) == (
        "basic",
        "OpenVINOExecutionProvider",
        {"device_type": "GPU", "precision": "FP32"},
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("basic,all", "can't be understood"),
        ("device_type=GPU", "can't be understood"),
        ("cuda,dml", "can't be understood"),
        ("nonsense", "neither a level nor a provider"),
    ],
)
def test_an_option_that_means_nothing(option: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ort.parse(option)


def test_the_serving_is_there_while_it_lasts() -> None:
    from onnxproof.runtimes import current

    with use_serving(FORGIVEN):
        assert current().allow_fallback
    assert not current().allow_fallback
