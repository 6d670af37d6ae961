"""`onnxproof explain`: where and why on one screen, a repro, a mended file, an overlay; and what it refuses."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.planted_faults import Examined, attributes, examine, nodes, told

import onnxproof
from onnxproof.cli import main
from onnxproof.diagnosis import remedy
from onnxproof.options import Policy
from onnxproof.report import overlay
from onnxproof.results import Verdict

SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.a(x), 0.2)
        return self.b(self.n(x * 0.05))


def build():
    torch.manual_seed(3)
    return Net().eval(), (torch.randn(3, 8),)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module, its export, and two files with one and with two faults."""
    folder = tmp_path_factory.mktemp("explain")
    (folder / "net.py").write_text(SOURCE)
    onnxproof.export(
        f"{folder}/net.py:build",
        None,
        folder / "right.onnx",
        dynamic_shapes=({0: "batch"},),
        budget_s=2,
        explain=False,
    )
    faults = {
        "one": [attributes("LayerNormalization", epsilon=1e-3)],
        "two": [
            attributes("LayerNormalization", epsilon=1e-3),
            attributes("LeakyRelu", alpha=0.01),
        ],
    }
    for name, changes in faults.items():
        model = onnx.load(folder / "right.onnx")
        for change in changes:
            change(model.graph)
        onnx.save(model, folder / f"{name}.onnx")
    return folder


def explain(place: Path, *words: str) -> int:
    return main(
        ["explain", f"{place}/net.py:build", *words, "--budget", "20", "--dynamic", "x:0=batch"]
    )


def test_a_fault_is_explained_reproduced_mended_and_shown(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (place / "one.onnx").read_bytes()
    code = explain(
        place,
        f"{place}/one.onnx",
        "--repro",
        f"{tmp_path}/repro",
        "--fix",
        "-o",
        f"{tmp_path}/fixed.onnx",
        "--overlay",
        f"{tmp_path}/o.json",
        "--json",
        f"{tmp_path}/p.json",
    )
    out = capsys.readouterr().out
    assert code == 1, out
    assert (
        "where: stage export, " in out
        and "net.py:13" in out
        and "return self.b(self.n(x * 0.05))" in out
    )
    assert (
        "proven cause attribute" in out
        and "times the noise before" in out
        and "(tried: faithful)" in out
    )
    assert f"fix: {tmp_path}/fixed.onnx is verified from scratch: faithful" in out
    assert (
        tmp_path / "repro" / "repro.py"
    ).is_file() and f"repro: {tmp_path}/repro/repro.py" in out
    assert (place / "one.onnx").read_bytes() == before
    data = json.loads((tmp_path / "o.json").read_text())
    (graph,) = data.values()
    assert list(data) == [onnx.load(place / "one.onnx").graph.name]
    assert (
        graph["results"][nodes(onnx.load(place / "one.onnx").graph, "LayerNormalization")[0].name][
            "value"
        ]
        > 1000
    )
    assert (
        main(["verify", f"{place}/net.py:build", f"{tmp_path}/fixed.onnx", "--budget", "2", "-q"])
        == 0
    )
    capsys.readouterr()
    assert main(["explain", f"{tmp_path}/p.json"]) == 1
    stored = capsys.readouterr().out
    assert (
        "where: stage export" in stored
        and "proven cause attribute" in stored
        and "replay the worst case" in stored
    )
    lines = stored[stored.index("where") : stored.index("replay")].strip().splitlines()
    assert len([line for line in lines if line.strip()]) <= 10


def test_several_causes_are_removed_one_after_the_other(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = explain(place, f"{place}/two.onnx", "--fix", "-o", f"{tmp_path}/fixed.onnx", "-q")
    out = capsys.readouterr().out
    assert code == 1
    assert (
        "faithful" in out
        and out.count("removed attribute") == 2
        and "`alpha`" in out
        and "`epsilon`" in out
    )
    fixed, right = onnx.load(tmp_path / "fixed.onnx"), onnx.load(place / "right.onnx")
    for op_type in ("LeakyRelu", "LayerNormalization"):
        found, wanted = (
            helper.get_node_attr_value(
                nodes(m.graph, op_type)[0], "alpha" if op_type == "LeakyRelu" else "epsilon"
            )
            for m in (fixed, right)
        )
        np.testing.assert_allclose(found, wanted)


def test_a_faithful_file_needs_nothing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        explain(
            place,
            f"{place}/right.onnx",
            "--repro",
            f"{tmp_path}/repro",
            "--fix",
            "-o",
            f"{tmp_path}/fixed.onnx",
        )
        == 0
    )
    assert "the file is faithful: there is nothing to write" in capsys.readouterr().out
    assert not (tmp_path / "repro").exists() and not (tmp_path / "fixed.onnx").exists()


def test_json_on_standard_output_is_alone_there(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        explain(place, f"{place}/one.onnx", "--overlay", f"{tmp_path}/o.json", "--json", "-", "-q")
        == 1
    )
    captured = capsys.readouterr()
    assert json.loads(captured.out)["location"]["stage"] == "export"
    assert "overlay: " in captured.err


def test_the_file_is_never_written_over(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        explain(place, f"{place}/one.onnx", "--fix", "-o", f"{place}/../{place.name}/one.onnx") == 2
    )
    assert "it is never written over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fix"], "`--fix` and `-o` go together"),
        (["-o", "x.onnx"], "`--fix` and `-o` go together"),
        (["--fix", "-o", "/no/such/folder/x.onnx"], "there is no folder `/no/such/folder`"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_runs(
    place: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(place, f"{place}/one.onnx", *words) == 2
    assert message in capsys.readouterr().err


def test_a_stored_proof_can_be_neither_cut_nor_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "p.json", "--repro", str(tmp_path)]) == 2
    assert "a stored proof holds no tensors" in capsys.readouterr().err
    assert main(["explain", "net.py:build"]) == 2
    assert "SUBJECT and MODEL are needed, or a stored proof" in capsys.readouterr().err


def test_the_pages_of_the_causes(capsys: pytest.CaptureFixture[str]) -> None:
    from onnxproof.diagnosis import causes

    assert main(["explain", "--causes"]) == 0
    listed = capsys.readouterr().out
    for code, hypothesis in causes.codes().items():
        assert f"{code} " in listed and hypothesis.TITLE in listed
    assert main(["explain", "--cause", "train-mode"]) == 0
    assert capsys.readouterr().out.strip() == causes.page("train-mode")
    for code in ("integer-width", "weight-layout", "output-order", "baked-branch", "scatter"):
        assert main(["explain", "--cause", code]) == 0
    assert main(["explain", "--cause", "trane-mode"]) == 2
    assert "did you mean `train-mode`?" in capsys.readouterr().err


def mended(found: Examined) -> remedy.Mended:
    """What `mend` makes of a planted fault; nothing is written."""
    model = found.model
    return onnxproof.mend(
        model.module, found.path, None, model.example, dynamic_shapes=model.shapes, budget_s=60
    )


def test_a_session_option_is_a_remedy_without_a_file() -> None:
    found = examine("quantized-pool-fused")
    done = mended(found)
    assert (
        done.model is None
        and done.options == ("QDQSelectorActionTransformer",)
        and done.verdict is Verdict.FAITHFUL
        and done.better
    )


def test_without_a_remedy_nothing_is_mended() -> None:
    found = examine("sums-length-baked")
    done = mended(found)
    assert (
        done.model is None
        and done.causes == ()
        and done.verdict is Verdict.DIVERGED
        and not done.better
    ), told(found.proof)


def test_an_overlay_needs_a_location() -> None:
    from dataclasses import replace

    with pytest.raises(onnxproof.OnnxproofError, match="there is nothing to show"):
        overlay.make(replace(examine("sums-length-baked").proof, location=None))
    made = overlay.make(examine("batch-statistics-shared").proof)
    limit = Policy().noise_limit
    assert json.dumps(made, allow_nan=False) and [
        t["value"] for t in next(iter(made.values()))["thresholds"]
    ] == [limit, 10 * limit, 100 * limit, 1e15]
