"""What may be chosen about an exported file, and preprocessing: each choice is carried out, checked, or refused with a reason."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.exporter import opset, optimizing
from onnxproof.options import ExportOptions
from onnxproof.results import Verdict
from onnxproof.testing import outsider

BUDGET_S = 1.5


class Loud(nn.Module):
    """Squares that overflow half precision on the way to an answer of ordinary size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x) * 300
        return self.last(h / (h * h).sum(-1, keepdim=True).sqrt())


@pytest.fixture
def loud() -> Loud:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Loud().eval()


X = (torch.randn(4, 16, generator=torch.Generator().manual_seed(1)),)


def export(module: Any, inputs: Any, path: Path, **options: Any) -> onnxproof.Proof:
    return onnxproof.export(
        module, inputs, path, budget_s=BUDGET_S, explain=False, options=ExportOptions(**options)
    )


def test_nodes_that_overflow_half_precision_are_found_and_kept(loud: Loud, tmp_path: Path) -> None:
    proof = export(loud, X, tmp_path / "m.onnx", precision="fp16")
    assert proof.verdict is Verdict.FAITHFUL
    said = proof.export.choices["precision"]
    written = onnx.load(tmp_path / "m.onnx")
    squares = next(
        node.name
        for node in written.graph.node
        if node.op_type == "Mul" and len({name.partition("_cast")[0] for name in node.input}) == 1
    )
    total = next(node.name for node in written.graph.node if node.op_type == "ReduceSum")
    assert squares in said and total in said and "dB" in said
    kinds = {tensor.name: tensor.data_type for tensor in written.graph.initializer}
    assert kinds["first.bias"] == onnx.TensorProto.FLOAT16
    assert (
        float(said.partition("(")[2].partition(" dB")[0])
        > 60
        > float(said.partition("from ")[2].partition(" dB")[0])
    )


def test_bfloat16_is_kept_for_the_weights(loud: Loud, tmp_path: Path) -> None:
    proof = export(loud, X, tmp_path / "m.onnx", precision="bf16")
    assert proof.verdict is Verdict.FAITHFUL
    assert {
        t.data_type for t in onnx.load(tmp_path / "m.onnx").graph.initializer if len(t.dims) == 2
    } == {onnx.TensorProto.BFLOAT16}
    assert proof.export.choices["precision"].startswith("bf16 weights, float32 arithmetic (")


class Cancels(nn.Module):
    """Weights of a thousand whose differences are the answer: eight bits of mantissa hold the thousand and lose the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 8)
        self.second.weight.data += 1000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.last(torch.tanh(self.second(h - h.mean(-1, keepdim=True))))


def test_a_node_whose_weights_bfloat16_ruins_is_found_and_kept(tmp_path: Path) -> None:
    torch.manual_seed(0)
    proof = export(Cancels().eval(), X, tmp_path / "m.onnx", precision="bf16")
    said = proof.export.choices["precision"]
    kinds = {
        tensor.name: tensor.data_type for tensor in onnx.load(tmp_path / "m.onnx").graph.initializer
    }
    assert kinds["second.weight"] == onnx.TensorProto.FLOAT and {
        "first.weight_bf16",
        "last.weight_bf16",
    } <= set(kinds)
    assert (
        next(
            node.name
            for node in onnx.load(tmp_path / "m.onnx").graph.node
            if "second.weight" in node.input
        )
        in said
    )
    assert (
        float(said.partition("(")[2].partition(" dB")[0])
        > 30
        > float(said.partition("from ")[2].partition(" dB")[0])
    )


class Hidden(nn.Module):
    """Overflows half precision only where the mask hides nothing; the example hides all but one."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shown = torch.where(mask, x, torch.zeros_like(x))
        return shown / ((shown * 80) ** 2).sum(-1, keepdim=True).add(1).sqrt()


def test_half_precision_is_measured_on_several_cases_and_not_on_the_example_alone(
    tmp_path: Path,
) -> None:
    mask = torch.zeros(2, 64, dtype=torch.bool)
    mask[:, 0] = True
    x = torch.full((2, 64), 0.5) + 0.01 * torch.randn(2, 64)
    proof = export(Hidden(), (x, mask), tmp_path / "m.onnx", precision="fp16")
    said = proof.export.choices["precision"]
    total = next(
        node.name
        for node in onnx.load(tmp_path / "m.onnx").graph.node
        if node.op_type == "ReduceSum"
    )
    assert (
        total in said and "from 0 dB" in said
    )  # 64 squares of forty; the example has one of them, and four times as large it would still be harmless
    cases = int(said.partition(" on ")[2].partition(" cases")[0])
    assert 4 <= cases <= 10
    assert proof.verdict is Verdict.FAITHFUL


def test_the_newest_opset_is_asked_of_the_runtime(loud: Loud, tmp_path: Path) -> None:
    newest = opset.newest_readable("ort")
    assert newest >= 20
    with pytest.raises(
        onnxproof.OnnxproofError, match=rf"opset {newest + 1} is newer than what `ort` reads"
    ):
        export(loud, X, tmp_path / "m.onnx", opset=newest + 1)
    assert export(loud, X, tmp_path / "m.onnx", opset=min(newest, 23)).export.choices[
        "opset"
    ] == str(min(newest, 23))
    assert opset.choose(99, ("ort",)) == newest


DATED = """
import onnx
from onnxproof.runtimes import Description, ort
from onnxproof.errors import BackendError


def describe():
    return Description(name="dated", about="reads opsets up to 18", installed=True)


def open(model, option=""):
    if max(entry.version for entry in onnx.load(model, load_external_data=False).opset_import if entry.domain == "") > 18:
        raise BackendError("opset", "too new for me")
    return ort.open(model)
"""


def test_the_opset_is_lowered_to_what_the_chosen_runtime_reads(loud: Loud, tmp_path: Path) -> None:
    assert export(loud, X, tmp_path / "usual.onnx").export.choices["opset"] == "20"
    with outsider(tmp_path, DATED, "dated"):
        opset.newest_readable.cache_clear()
        proof = onnxproof.export(
            loud,
            X,
            tmp_path / "m.onnx",
            backends=("ort", "dated"),
            budget_s=BUDGET_S,
            explain=False,
        )
        assert proof.export.choices["opset"] == "18" and proof.verdict is Verdict.FAITHFUL
        with pytest.raises(
            onnxproof.OnnxproofError, match=r"opset 20 is newer than what `dated` reads"
        ):
            onnxproof.export(loud, X, tmp_path / "m.onnx", backends=("ort", "dated"), opset=20)
    opset.newest_readable.cache_clear()


def test_weights_that_a_protobuf_can_not_hold_go_into_a_file_of_their_own(
    loud: Loud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "onnxproof.exporter.translate._PROTOBUF_LIMIT", 1000
    )  # `make bench-export` does it with more than 2 GB
    proof = export(loud, X, tmp_path / "m.onnx")
    assert (
        proof.verdict is Verdict.FAITHFUL
        and proof.export.choices["external data"] == "yes"
        and (tmp_path / "m.onnx.data").is_file()
    )


def test_external_data_is_written_when_asked_for(loud: Loud, tmp_path: Path) -> None:
    proof = export(loud, X, tmp_path / "m.onnx", external_data=True)
    assert proof.verdict is Verdict.FAITHFUL and proof.export.choices["external data"] == "yes"
    assert (tmp_path / "m.onnx.data").stat().st_size > 1000


def test_names_are_the_users_and_are_checked(loud: Loud, tmp_path: Path) -> None:
    proof = export(
        loud, X, tmp_path / "m.onnx", input_names=("features",), output_names=("scores",)
    )
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert proof.verdict is Verdict.FAITHFUL
    assert ([port.name for port in graph.input], [port.name for port in graph.output]) == (
        ["features"],
        ["scores"],
    )
    with pytest.raises(
        onnxproof.OnnxproofError, match=r"`--input-names` gives 2 names for 1 tensors"
    ):
        export(loud, X, tmp_path / "m.onnx", input_names=("a", "b"))
    with pytest.raises(
        onnxproof.OnnxproofError, match=r"`--output-names` gives the name `a` twice"
    ):
        export(loud, X, tmp_path / "m.onnx", output_names=("a", "a"))


class Wordy(nn.Module):
    """Nodes that the exporter leaves and an optimizer need not: shapes are asked for, and a constant is taken apart and put together."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 8)
        self.register_buffer("table", torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = torch.stack([self.table[:, k] * 2 for k in range(8)])
        return (self.last(x).view(x.size(0), 2, 4).flatten(1) @ turned.T) * 1.0


@pytest.mark.parametrize("tool", optimizing.TOOLS)
def test_an_optimizer_that_keeps_the_meaning_is_taken_with_the_metadata(
    tool: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    proof = export(Wordy().eval(), X, tmp_path / "m.onnx", optimize=tool)
    said = proof.export.choices["optimised"]
    assert "verified against the file before" in said and proof.verdict is Verdict.FAITHFUL
    before, _, after = (
        said.removeprefix(f"{tool}: ").partition(" nodes")[0],
        "",
        said.partition(" to ")[2].partition(",")[0],
    )
    assert int(after) == len(onnx.load(tmp_path / "m.onnx").graph.node) <= int(before)
    assert "onnxproof.dims" in {prop.key for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert onnxruntime.InferenceSession(tmp_path / "m.onnx").get_inputs()[0].shape == [
        "batch",
        16,
    ]  # dims stay open


def test_a_tool_that_is_not_installed_is_told_before_the_export(
    loud: Loud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxslim", None)
    with pytest.raises(onnxproof.OnnxproofError, match=r"pip install 'onnxproof\[onnxslim\]'"):
        export(loud, X, tmp_path / "m.onnx", optimize="onnxslim")
    assert not (tmp_path / "m.onnx").exists()


def test_an_optimizer_that_changes_the_meaning_is_refused(
    loud: Loud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(tool: str, path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(model)
        bias = next(tensor for tensor in made.graph.initializer if tensor.name == "last.bias")
        bias.CopyFrom(
            onnx.numpy_helper.from_array(
                onnx.numpy_helper.to_array(bias) * np.float32(1.01), bias.name
            )
        )
        return made

    monkeypatch.setattr(optimizing, "run_tool", careless)
    proof = export(loud, X, tmp_path / "m.onnx", optimize="onnxscript")
    assert proof.verdict is Verdict.FAITHFUL  # the file is the exporter's own
    refused = next(found for found in proof.findings if found.code == "optimizer-refused")
    assert "onnxscript was not taken: its file is d" in refused.what


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "fp8"}, "error[unknown-precision]: `--precision fp8` is not known"),
        ({"optimize": "magic"}, "error[unknown-tool]: `--optimize magic` is not known"),
        (
            {"pipeline": "deploy.py:f"},
            "error[no-preprocessing]: `Loud` does not say how it is preprocessed",
        ),
    ],
)
def test_choices_that_are_not_known(
    loud: Loud, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(onnxproof.OnnxproofError) as caught:
        export(loud, X, tmp_path / "m.onnx", **options)
    assert words in str(caught.value) and not (tmp_path / "m.onnx").exists()


def test_the_commit_and_the_versions_are_in_the_file(loud: Loud, tmp_path: Path) -> None:
    export(loud, X, tmp_path / "m.onnx")
    metadata = {prop.key: prop.value for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert metadata["onnxproof.version.torch"] == torch.__version__
    assert (
        len(metadata.get("onnxproof.commit", "0" * 40).removesuffix("-dirty")) == 40
    )  # there is none outside of a repository


# ---------------------------------------------------------------- preprocessing

FACTORY = '''
import numpy as np
from deploy import read
import torch
from torch import nn

import onnxproof

MEAN, SPREAD = (0.48, 0.45, 0.40), (0.22, 0.21, 0.23)


def preprocess(image):
    """Channels last, 0 to 255, RGB: as a camera gives them."""
    image = torch.as_tensor(read(image)) if isinstance(image, str) else image
    x = image.permute(0, 3, 1, 2).float() / 255
    return (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(SPREAD).view(1, 3, 1, 1)


def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    image = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    return onnxproof.Subject(module=net, example_inputs=(image,), preprocess=preprocess)
'''
DEPLOY = """
import numpy as np

MEAN, SPREAD = np.array((0.48, 0.45, 0.40), np.float32), np.array((0.22, 0.21, 0.23), np.float32)


def read(path):
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))[None].copy()


def load(image):
    return read(image) if isinstance(image, str) else np.asarray(image)


def right(image):
    return ((load(image).astype(np.float32) / 255 - MEAN) / SPREAD).transpose(0, 3, 1, 2)


def reversed_channels(image):
    return right(image)[:, ::-1]


def unscaled(image):
    return ((load(image).astype(np.float32) - MEAN) / SPREAD).transpose(0, 3, 1, 2)


def channels_last(image):
    return right(image).transpose(0, 2, 3, 1)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(FACTORY)
    (tmp_path / "deploy.py").write_text(DEPLOY)
    (tmp_path / "images").mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
        tmp_path / "images" / "cat.png"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_preprocessing_is_exported_into_the_model(place: Path) -> None:
    proof = onnxproof.export("model.py:build", None, "m.onnx", budget_s=BUDGET_S, explain=False)
    assert proof.verdict is Verdict.FAITHFUL
    port = onnxruntime.InferenceSession("m.onnx").get_inputs()[0]
    assert (port.name, port.type, port.shape) == (
        "image",
        "tensor(uint8)",
        ["batch", "height", "width", 3],
    )


def test_the_pipeline_of_the_deployment_is_verified_on_image_files(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "export",
                "model.py:build",
                "-o",
                "m.onnx",
                "--pipeline",
                "deploy.py:right",
                "--data",
                "images",
                "--budget",
                "1",
            ]
        )
        == 0
    )
    assert "pipeline 2 raw inputs, the same tensors" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reversed_channels", "the channels are reversed (RGB and BGR)"),
        ("unscaled", "another scale, mean or standard deviation: factor [255.0, 255.0, 255.0]"),
        (
            "channels_last",
            "it makes float32[2, 8, 8, 3], and the model's own makes float32[2, 3, 8, 8]; the layout is (0, 2, 3, 1)",
        ),
    ],
)
def test_a_pipeline_that_differs_is_diverged_and_says_how(
    place: Path, name: str, words: str
) -> None:
    proof = onnxproof.export(
        "model.py:build",
        None,
        "m.onnx",
        budget_s=BUDGET_S,
        explain=False,
        options=ExportOptions(pipeline=f"deploy.py:{name}"),
    )
    assert proof.verdict is Verdict.DIVERGED
    assert words in proof.findings[0].what
    assert words in proof.sentence()
