"""The words of every error: what went wrong, where, the facts, and what to do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.made_proofs import full

import onnxproof
from onnxproof import errors
from onnxproof.errors import OnnxproofError
from onnxproof.exporter import export
from onnxproof.inputs import data_stream
from onnxproof.options import Policy
from onnxproof.reference import dynamic_shapes, subject
from onnxproof.results import Gap, NoiseKind, Status, Verdict


def every_error() -> Iterator[type[OnnxproofError]]:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, OnnxproofError):
            yield value


def test_the_tree_in_the_docstring_names_every_class() -> None:
    assert errors.__doc__ is not None
    for kind in every_error():
        assert kind.__name__ in errors.__doc__, kind


@pytest.mark.parametrize("kind", list(every_error()), ids=lambda kind: kind.__name__)
def test_every_error_renders_in_one_form(kind: type[OnnxproofError]) -> None:
    raised = kind(
        "input-missing",
        "the model has no input named `input`",
        where="model.onnx",
        notes=["its inputs are `x` and `mask`"],
        help="rename it in the data file",
    )
    assert str(raised) == (
        "error[input-missing]: the model has no input named `input`\n"
        "  --> model.onnx\n"
        "  = note: its inputs are `x` and `mask`\n"
        "  = help: rename it in the data file"
    )
    assert str(kind("c", "only what")) == "error[c]: only what"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.UsageError, ValueError),
        (errors.BackendMissing, ImportError),
        (errors.VerdictError, AssertionError),
    ],
)
def test_errors_are_also_what_python_calls_them(
    kind: type[OnnxproofError], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)


# ---------------------------------------------------------------- subjects


def told(call: Callable[[], Any]) -> str:
    with pytest.raises(OnnxproofError) as caught:
        call()
    return str(caught.value)


def test_a_subject_of_the_wrong_kind() -> None:
    assert told(lambda: subject.load(7)) == (
        "error[unknown-subject]: a int is not something onnxproof can load\n"
        f"  = help: give {subject._FORMS}"
    )


def test_pickled_weights_are_refused_with_a_way_out(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    words = told(lambda: subject.load(tmp_path / "weights.pt", (torch.randn(1, 2),)))
    assert words.startswith(
        "error[not-torchscript]: `weights.pt` holds no code, only pickled weights or a pickled module"
    )
    assert "onnxproof reads no pickle: it could run anything" in words
    assert "weights_only=True" in words


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, code in (("a.pt2", "bad-pt2"), ("a.ts", "not-torchscript")):
        (tmp_path / name).write_bytes(b"not an archive")
        assert told(lambda path=tmp_path / name: subject.load(path, (torch.randn(1),))).startswith(
            f"error[{code}]: `{name}` "
        )
    assert told(lambda: subject.load(tmp_path / "none.pt2")).startswith(
        "error[no-such-file]: there is no file"
    )


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    words = told(lambda: subject.load(tmp_path))
    assert words.startswith(f"error[not-a-model-folder]: `{tmp_path}` has no config.json")


def test_a_file_that_raises_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\nraise KeyError('LICENSE_KEY')\n")
    words = told(lambda: subject.load(f"{tmp_path / 'broken.py'}:build"))
    assert (
        f"error[file-raised]: importing `{tmp_path / 'broken.py'}` raised KeyError: 'LICENSE_KEY'"
        in words
    )
    assert f"--> {tmp_path / 'broken.py'}:2" in words


# ---------------------------------------------------------------- data


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "error[bad-data]: data is a int"),
        ({"y": np.zeros(3)}, "error[input-missing]: the data has no input named `x`"),
        ([(np.zeros(3),)], "error[data-too-short]: data[0] has 1 arrays for 2 inputs"),
    ],
)
def test_data_that_does_not_fit(given: Any, words: str) -> None:
    assert words in told(lambda: list(data_stream.stream(given, ["x", "mask"])))


def test_data_files_that_do_not_fit(tmp_path: Path) -> None:
    assert "error[no-data]" in told(lambda: list(data_stream.stream(tmp_path, ["x"])))
    (tmp_path / "a.npz").write_bytes(b"PK broken")
    assert "error[bad-data]: `a.npz` can't be read" in told(
        lambda: list(data_stream.stream(tmp_path / "a.npz", ["x"]))
    )
    np.save(tmp_path / "b.npy", np.array([{"a": 1}], dtype=object))
    assert "pickled arrays are not read; save plain ones" in told(
        lambda: list(data_stream.stream(tmp_path / "b.npy", ["x"]))
    )


# ---------------------------------------------------------------- signatures


def test_dynamic_shapes_that_name_another_input() -> None:
    words = told(lambda: dynamic_shapes.dim_specs({"x": torch.zeros(2, 3)}, {"y": {0: "batch"}}))
    assert (
        words
        == "error[unknown-input]: dynamic_shapes names `y`, which the reference does not take\n  = note: it takes x"
    )


# ---------------------------------------------------------------- export


class Operator(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x)


class Fixed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4, 1)


class Refuses(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 3)


@pytest.mark.parametrize(
    ("module", "shapes", "words"),
    [
        (
            Operator(),
            None,
            "error[export-failed]: torch can't export `Operator`: ONNX has no translation for the operator `prims.bessel_j0`",
        ),
        (
            Fixed(),
            ({0: "batch"},),
            "error[export-failed]: torch can't export `Fixed`: dim 0 of `x` should vary, and the module fixes it at 4",
        ),
        (
            Refuses(),
            None,
            "error[export-failed]: torch can't export `Refuses`: RuntimeError: a and b must have same reduction dim",
        ),
        (
            Operator(),
            {"y": {0: "batch"}},
            "error[unknown-input]: dynamic_shapes names `y`, which the reference does not take",
        ),
    ],
    ids=["operator", "dim", "refuses", "name"],
)
def test_an_export_that_fails_is_told_in_the_users_terms(
    tmp_path: Path, module: Any, shapes: Any, words: str
) -> None:
    said = told(
        lambda: onnxproof.export(
            module, (torch.randn(4, 2),), tmp_path / "m.onnx", dynamic_shapes=shapes
        )
    )
    assert words in said
    assert "\x1b" not in said
    if module.__class__ is Refuses:
        assert f"--> {__file__}:" in said


def test_an_export_that_cannot_begin(tmp_path: Path) -> None:
    module, x = torch.nn.Linear(2, 2), (torch.randn(1, 2),)
    assert "error[opset-too-new]: opset 99 is newer than what `ort` reads" in told(
        lambda: onnxproof.export(module, x, tmp_path / "m.onnx", opset=99)
    )
    assert "error[cannot-write]: there is no folder" in told(
        lambda: onnxproof.export(module, x, tmp_path / "no" / "m.onnx")
    )
    assert "error[nothing-to-export]: `a.onnx` is an ONNX file already" in told(
        lambda: onnxproof.export("a.onnx", None, tmp_path / "m.onnx")
    )


def test_without_torch_the_pip_command_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    found: Any = SimpleNamespace(onnx=None, module=None, arrays=None, dynamic_shapes=None, name="m")
    assert told(lambda: export.write(found, tmp_path / "m.onnx")) == (
        "error[torch-missing]: exporting needs a package that isn't installed: torch\n"
        "  = help: pip install 'onnxproof[torch]'"
    )


# ---------------------------------------------------------------- verdicts


def test_raise_for_verdict_is_all_that_a_log_needs() -> None:
    from dataclasses import replace

    gap = Gap(
        case="float-x-zeros",
        group="floats",
        backend="ort",
        output="y",
        status=Status.COMPARED,
        compared=12,
        noise_kind=NoiseKind.DOUBLE,
        noise_ratio=1988.0,
        worst_ratio=1120.0,
        max_abs=1.2e-4,
        allowance=0.3,
    )
    proof = replace(
        full(),
        verdict=Verdict.DRIFT,
        gaps=(gap,),
        policy=Policy(strict=True),
        replay="onnxproof verify build model.onnx --case 'float-x-zeros'",
    )
    with pytest.raises(onnxproof.VerdictError) as caught:
        proof.raise_for_verdict()
    words = str(caught.value)
    assert (
        "error[verdict-drift]: model.onnx drifts from build: output `y`, case `float-x-zeros` on ort, 1,988 times the rounding noise"
        in words
    )
    assert "model.py:13" in words
    assert "cause proven: attribute" in words
    assert "replay: onnxproof verify build model.onnx --case 'float-x-zeros'" in words
    replace(proof, policy=Policy(), findings=()).raise_for_verdict()


def test_a_proof_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"use proof\.verdict or proof\.raise_for_verdict\(\)"):
        bool(full())
