"""The cause `integer-width`: a type that does not hold the integers."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import integer_width
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

IDS = {"x": np.array([7, 40_000, 3_000_001, 2**24 + 1], np.int64)}


class Hash(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 100_003


class Next(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


def bench_of(
    folder: Path, module: torch.nn.Module, op_type: str, dtype: int, factor: Any
) -> Workbench:
    """The integers are cast, combined with a number of that type, and cast back."""
    nodes = [
        node("Cast", "x", output="cast", to=dtype),
        node(op_type, "cast", "factor", output="narrow"),
        node("Cast", "narrow", to=TensorProto.INT64),
    ]
    file = file_of(nodes, IDS, {"factor": factor}, dtype=TensorProto.INT64)
    call = {"Mul": "mul", "Add": "add"}[op_type]
    return module_workbench(folder, module, file, IDS, located={"narrow": call})


def test_a_product_that_wraps_in_32_bits_is_named(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Hash(), "Mul", TensorProto.INT32, np.array(100_003, np.int32))
    outputs = bench.candidate_outputs
    assert outputs is not None
    assert outputs[0] is not None
    wrapped = IDS["x"].astype(np.int32) * np.int32(100_003)
    assert outputs[0].tolist() == wrapped.tolist()
    tried = integer_width.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        "the module with `mul` done in int32 gives what the candidate gives"
    )


def test_integers_that_are_counted_in_float32_are_named(tmp_path: Path) -> None:
    large = {"x": np.array([2**30 + 1, 2**31 + 77, 2**33 + 12345], np.int64)}
    narrow = {"x": np.array([7, 40_000, 3_000_001], np.int64)}
    nodes = [
        node("Cast", "x", output="cast", to=TensorProto.FLOAT),
        node("Cast", "cast", output="back", to=TensorProto.INT64),
        node("Mod", "back", "size"),
    ]

    class Bucket(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x % 1000

    file = file_of(nodes, large, {"size": np.array(1000)}, dtype=TensorProto.INT64)
    bench = module_workbench(tmp_path, Bucket(), file, large, located={"y": "remainder"})
    tried = integer_width.test(bench)
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == (
        "the module with `remainder` done in float32 gives what the candidate gives"
    )
    bench = module_workbench(tmp_path, Bucket(), file, narrow, located={"y": "remainder"})
    assert isinstance(integer_width.test(bench), str)  # there the two agree


def test_another_factor_is_no_narrower_type(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Hash(), "Mul", TensorProto.INT64, np.array(100_019))
    assert bench.before > 1e-5
    assert integer_width.test(bench) == (
        "no such change of the module gives what the candidate gives"
    )


def test_another_offset_is_no_narrower_type(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Next(), "Add", TensorProto.INT64, np.array(1000))
    assert isinstance(integer_width.test(bench), str)


def test_a_fraction_that_is_cut_to_an_integer_is_named(tmp_path: Path) -> None:
    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0.5

    odd = {"x": np.array([1.0, 3.0, -5.0, 8.0], np.float32)}
    nodes = [
        node("Mul", "x", "half", output="product"),
        node("Cast", "product", output="whole", to=TensorProto.INT64),
        node("Cast", "whole", to=TensorProto.FLOAT),
    ]
    file = file_of(nodes, odd, {"half": np.array(0.5, np.float32)})
    tried = integer_width.test(module_workbench(tmp_path, Half(), file, odd, located={"y": "mul"}))
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == (
        "the module with `mul` with its result cut to integers gives what the candidate gives"
    )
