"""A changed copy of a module on the witness."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals.module_run import module_session, run_module

X = np.array([1.0, 2.0], np.float32)
MASK = np.array([True, False])


class Several(torch.nn.Module):
    """A dict of tensors among other things, and a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        self.calls += 1
        return {"masked": x * mask, "calls": self.calls, "nothing": None, "pair": (x, ~mask)}


def test_the_tensors_of_what_a_copy_returns_come_in_order_and_nothing_is_put_back(
    tmp_path: Path,
) -> None:
    inputs = {"x": X, "mask": MASK}
    module = Several()
    file = file_of([node("Identity", "x")], inputs)
    bench = module_workbench(tmp_path, module, file, inputs)
    session = module_session(bench)
    assert session is not None
    other = Several()
    outputs = run_module(session, other, inputs)
    assert [output.tolist() for output in outputs] == [[1.0, 0.0], [1.0, 2.0], [False, True]]
    assert outputs[0].dtype == np.float32
    assert (other.calls, module.calls) == (1, 0)


def test_a_copy_that_writes_into_its_input_leaves_the_witness_alone(tmp_path: Path) -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x.mul_(5)

    inputs = {"x": X.copy(), "mask": MASK}
    bench = module_workbench(tmp_path, Several(), file_of([node("Identity", "x")], inputs), inputs)
    session = module_session(bench)
    assert session is not None
    (output,) = run_module(session, Writes(), inputs)
    assert output.tolist() == [5.0, 10.0]
    assert inputs["x"].tolist() == [1.0, 2.0]


def test_a_reference_that_is_a_file_has_no_session(tmp_path: Path) -> None:
    file = file_of([node("Identity", "x")], {"x": X})
    assert module_session(workbench(tmp_path, file, X, {"x": X})) is None
