"""With whom a node has exchanged its weights: who holds its module's own weight is asked first, and few others."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.misplaced_weights import _exchanges

BLOCKS, HERE, THERE = 40, 3, 37


def deep_net(swapped: tuple[int, int]) -> tuple[nn.Module, onnx.ModelProto]:
    """Forty layers, and a graph of them in which two read each other's weights."""
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(BLOCKS)))
    order = list(range(BLOCKS))
    one, other = swapped
    order[one], order[other] = order[other], order[one]
    nodes = [
        helper.make_node("MatMul", [f"v{place}", f"w{place}"], [f"v{place + 1}"], name=f"n{place}")
        for place in range(BLOCKS)
    ]
    weights = [
        numpy_helper.from_array(
            np.ascontiguousarray(module[which].weight.detach().numpy().T), f"w{place}"
        )
        for place, which in enumerate(order)
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        for name in ("v0", f"v{BLOCKS}")
    ]
    return module, helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], weights))


def workbench(module: nn.Module | None, model: onnx.ModelProto, located: str) -> Any:
    session = None if module is None else SimpleNamespace(module=module)
    return SimpleNamespace(
        model=model,
        location=SimpleNamespace(module=located),
        scene=SimpleNamespace(reference=SimpleNamespace(session=session)),
    )


def test_the_holder_of_the_modules_own_weight_comes_first_however_far() -> None:
    module, model = deep_net((HERE, THERE))
    bench = workbench(module, model, str(HERE))
    tried = [other.name for other, _ in _exchanges(bench, model.graph.node[HERE])]
    assert tried[0] == f"n{THERE}"
    assert len(tried) <= 1 + limits.EXCHANGES_TRIED


def test_without_a_module_the_nearest_are_tried_and_no_more() -> None:
    _, model = deep_net((HERE, THERE))
    bench = workbench(None, model, "")
    tried = [other.name for other, _ in _exchanges(bench, model.graph.node[HERE])]
    assert set(tried[:2]) == {f"n{HERE - 1}", f"n{HERE + 1}"}
    assert len(tried) == limits.EXCHANGES_TRIED
