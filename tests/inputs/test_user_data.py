"""The user's own data: opened before anything runs, and told of wherever it is not compared as it is."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxproof import api
from onnxproof.cli import main
from onnxproof.errors import InputError
from onnxproof.inputs import user_data
from onnxproof.numerics import array_files
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof
from onnxproof.verification.pacing import Pacing

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
BUILD = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.linear(x)
def build():
    return Net().eval(), (torch.randn(3, 4),)
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    module, path = Net().eval(), tmp_path_factory.mktemp("linear") / "linear.onnx"
    example = torch.randn(3, 4)
    torch.onnx.export(
        module,
        (example,),
        path,
        input_names=["x"],
        dynamic_shapes=({0: "batch"},),
        dynamo=True,
        verbose=False,
    )
    return module, path


def verified(linear: tuple[nn.Module, Path], data: Any, **options: Any) -> Proof:
    options = {"budget_s": 1, "explain": False, **options}
    return api.verify(linear[0], linear[1], (torch.from_numpy(X),), data=data, **options)


def told(proof: Proof, code: str) -> str:
    found = [finding.what for finding in proof.findings if finding.code == code]
    assert len(found) == 1, [(finding.code, finding.what) for finding in proof.findings]
    return found[0]


def test_data_as_the_model_takes_it_is_not_told_of(
    linear: tuple[nn.Module, Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "good.npz", x=X)
    proof = verified(linear, tmp_path / "good.npz")
    assert proof.verdict is Verdict.FAITHFUL and "data-good.npz" in proof.sizes
    assert not [finding for finding in proof.findings if finding.code.startswith("data-")]


class Counted(nn.Module):
    """Counts its forward passes: none may happen before the data was opened."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        Counted.passes += 1
        return x * 2


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("nope.npz", "no-such-file"),
        ([], "no-data"),
        (iter(()), "no-data"),
        ({}, "no-data"),
        (7, "bad-data"),
        (["words"], "bad-data"),
        ([object()], "bad-data"),
    ],
)
def test_data_that_is_not_there_is_told_before_anything_runs(
    linear: tuple[nn.Module, Path], data: Any, code: str
) -> None:
    Counted.passes = 0
    with pytest.raises(InputError) as caught:
        api.verify(Counted(), linear[1], (torch.from_numpy(X),), data=data, budget_s=1)
    assert caught.value.code == code and Counted.passes == 0


def test_a_generator_that_raises_is_told_before_anything_runs(
    linear: tuple[nn.Module, Path],
) -> None:
    def items() -> Iterator[Any]:
        raise FileNotFoundError("images/1.png")
        yield

    Counted.passes = 0
    with pytest.raises(FileNotFoundError):
        api.verify(Counted(), linear[1], (torch.from_numpy(X),), data=items(), budget_s=1)
    assert Counted.passes == 0


def test_a_generator_loses_nothing_to_being_opened(linear: tuple[nn.Module, Path]) -> None:
    proof = verified(linear, (X * scale for scale in (1.0, 2.0, 3.0)), budget_s=10)
    assert {"data-0", "data-1", "data-2"} <= set(proof.sizes)


def test_what_was_taken_from_an_iterator_is_given_again() -> None:
    kept = user_data.open_data(iter([1.0, 2.0, 3.0]))
    assert list(kept) == [1.0, 2.0, 3.0] and list(kept) == [1.0, 2.0, 3.0]
    assert user_data.open_data(kept) is kept


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool"])
def test_a_cast_is_told_with_both_dtypes(linear: tuple[nn.Module, Path], dtype: str) -> None:
    proof = verified(linear, [np.abs(X).astype(dtype)])
    assert f"`x` is {dtype}, and the model takes float32" in told(proof, "data-cast").replace(
        "your data for ", ""
    )
    assert proof.verdict is Verdict.FAITHFUL


def test_an_item_that_the_reference_refuses_is_told_with_its_name(
    linear: tuple[nn.Module, Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "a-good.npz", x=X)
    np.savez(tmp_path / "b-wrong.npz", x=np.ones((3, 5), np.float32))
    what = told(verified(linear, tmp_path, budget_s=10), "data-dropped")
    assert (
        what.startswith(
            "1 of 2 items of your data were not compared: `b-wrong.npz`: the reference refuses it: RuntimeError"
        )
        and "a-good" not in what
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([np.ones((3, 5), np.float32)], "the reference refuses it"),
        ([np.ones((3, 5), np.float32), np.ones(7, np.float32)], "the reference refuses it"),
        ([X.astype(np.complex64)], "the imaginary part would be lost"),
        ([np.full((3, 4), 1e300)], "values are too large for it"),
        ([np.full((3, 4), "a")], "holds <U1, not numbers"),
    ],
    ids=["shape", "shapes", "complex", "large", "text"],
)
def test_data_of_which_nothing_can_be_compared_is_an_error(
    linear: tuple[nn.Module, Path], data: Any, why: str
) -> None:
    with pytest.raises(
        InputError,
        match=rf"error\[data-unusable\]: none of the {len(data)} items of your data can be compared",
    ) as caught:
        verified(linear, data)
    assert why in str(caught.value)


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


@pytest.mark.parametrize(
    ("values", "unfit"),
    [([1.0, 2.0], False), ([0.5, 1.0], True), ([float("nan"), 1.0], True), ([1e30, 1.0], True)],
)
def test_floats_for_ids_are_taken_where_no_value_changes(
    tmp_path: Path, values: list[float], unfit: bool
) -> None:
    module, path = Rows().eval(), tmp_path / "rows.onnx"
    torch.onnx.export(
        module, (torch.tensor([1, 2]),), path, input_names=["ids"], dynamo=True, verbose=False
    )
    data = [np.array([1, 2]), np.array(values)]
    proof = api.verify(module, path, (torch.tensor([1, 2]),), data=data, budget_s=10, explain=False)
    if unfit:
        assert "`1`: `ids` is float64 and the model takes int64: values would change" in told(
            proof, "data-dropped"
        )
    else:
        assert "your data for `ids` is float64, and the model takes int64" in told(
            proof, "data-cast"
        )


def test_arrays_that_no_input_takes_are_told(
    linear: tuple[nn.Module, Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "rows.npz", x=X, labels=np.arange(3), extra=X)
    assert (
        told(verified(linear, tmp_path / "rows.npz"), "data-unused")
        == "no input takes these arrays of your data: `extra`, `labels`"
    )


def test_the_only_array_under_a_wrong_name_is_taken_and_told(
    linear: tuple[nn.Module, Path],
) -> None:
    words = told(verified(linear, {"image": X}), "data-renamed")
    assert "has no `x`" in words and "`image`, was taken" in words


def test_the_names_of_the_file_are_as_good_as_those_of_the_module(tmp_path: Path) -> None:
    module, path = Net().eval(), tmp_path / "m.onnx"
    torch.onnx.export(
        module,
        (torch.randn(3, 4),),
        path,
        input_names=["pixels"],
        dynamic_axes={"pixels": {0: "batch"}},
        dynamo=False,
    )
    proof = verified((module, path), {"pixels": X})
    codes = {finding.code for finding in proof.findings}
    assert "data-renamed" not in codes and "data-data" in {gap.case for gap in proof.gaps}


def test_data_that_the_time_did_not_reach_fails_the_run(
    linear: tuple[nn.Module, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pacing, "over", property(lambda self: True))
    proof = verified(linear, [X])
    if not any(name.startswith("data-") for name in proof.sizes):
        assert (
            "none of your data was compared" in told(proof, "data-not-compared")
            and not proof.passed
        )


@pytest.fixture
def folder(linear: tuple[nn.Module, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(BUILD)
    (tmp_path / "m.onnx").write_bytes(linear[1].read_bytes())
    for beside in linear[1].parent.glob("*.data"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_tells_of_the_data_under_quiet(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    np.savez(folder / "double.npz", x=X.astype(np.float64))
    assert (
        main(["verify", "model.py:build", "m.onnx", "--data", "double.npz", "--budget", "1", "-q"])
        == 0
    )
    out = capfd.readouterr().out
    assert (
        out.startswith("FAITHFUL")
        and "note data-cast: your data for `x` is float64, and the model takes float32" in out
    )


def test_the_command_ends_with_an_error_where_no_data_is_there_or_fits(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "model.py:build", "m.onnx", "--data", "nope.npz", "--budget", "1"]) == 2
    assert "error[no-such-file]: there is no file `nope.npz`" in capfd.readouterr().err
    np.savez(folder / "wrong.npz", x=np.ones((3, 5), np.float32))
    assert (
        main(["verify", "model.py:build", "m.onnx", "--data", "wrong.npz", "--budget", "1", "-q"])
        == 2
    )
    assert (
        "error[data-unusable]: none of the 1 items of your data can be compared"
        in capfd.readouterr().err
    )


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "A.NPZ", "a.safetensors"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path, name: str, order: Any) -> None:
    array, path = (
        np.asarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4), order=order),
        tmp_path / name,
    )
    if name.endswith(".npy"):
        np.save(path, array)
    elif name.endswith(".safetensors"):
        from safetensors.numpy import save_file

        save_file({"x": np.ascontiguousarray(array)}, path)
    else:
        with path.open("wb") as stream:
            np.savez_compressed(
                stream, x=array, empty=np.zeros((0, 3)), scalar=np.float64(2), flag=np.array([True])
            )
    found = array_files.read_arrays(path)
    assert np.array_equal(next(iter(found.values())), array)
    if "empty" in found:
        assert (
            found["empty"].shape == (0, 3) and found["scalar"] == 2 and found["flag"].dtype == bool
        )


def _claims(shape: str) -> bytes:
    """An .npy whose header claims a shape, with eight bytes behind it."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 8


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(1 << 40, 1 << 40)", "(-1,)", "(2,)"])
@pytest.mark.parametrize("zipped", [True, False])
def test_an_array_that_claims_more_than_the_file_holds_is_refused(
    tmp_path: Path, shape: str, zipped: bool
) -> None:
    path = tmp_path / ("a.npz" if zipped else "a.npy")
    path.write_bytes(_claims(shape))
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", _claims(shape))
    with pytest.raises(InputError) as caught:
        array_files.read_arrays(path)
    assert caught.value.code == "bad-data"


def test_an_archive_that_does_not_fit_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros(1 << 20))
    monkeypatch.setattr(array_files, "readable_bytes", lambda: 1 << 20)
    monkeypatch.setattr(array_files, "_read_npy", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(
        InputError,
        match=r"error\[data-too-large\]: `zeros.npz` unpacks to 8,388,736 bytes, and 1,048,576 fit",
    ):
        array_files.read_arrays(tmp_path / "zeros.npz")


@pytest.mark.parametrize("kind", ["fifo", "socket", "loop", "device", "fifo-beside"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    import socket

    data = tmp_path / "data"
    data.mkdir()
    path = data / "a.npz"
    np.savez(data / "b.npz", x=X)
    words = {
        "fifo": "is a FIFO",
        "socket": "is a socket",
        "loop": "is a link that leads to itself",
        "device": "is a device",
    }
    if kind.startswith("fifo"):
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    with pytest.raises(InputError, match=words[kind.partition("-")[0]]) as caught:
        user_data.open_data(data if kind.endswith("beside") else path)
    assert caught.value.code == "not-a-file"


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    np.savez(tmp_path / "real.npz", x=X)
    (tmp_path / "link.npz").symlink_to(tmp_path / "real.npz")
    assert np.array_equal(array_files.read_arrays(tmp_path / "link.npz")["x"], X)
