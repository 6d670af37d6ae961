"""The number of tokens seen was traced as a Python number, so every step keeps the position of the example's step."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto, helper
from onnx.numpy_helper import from_array

from bench.architectures import CachedCausalLM
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="positions start at the example's cache length whatever the cache holds",
    cause="cache",
    also=("baked-dimension",),
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(32)
    model = give_weights(CachedCausalLM(), 32)
    ids, past = torch.randint(0, 61, (1, 3)), torch.randn(2, 2, 1, 4, 4, 8)
    shapes = ({0: "batch", 1: "new"}, {2: "batch", 4: "seen"})
    correct = export(model, (ids, past), folder / "correct.onnx", shapes)

    def freeze(graph: GraphProto) -> list[str]:
        lookup = next(n for n in nodes(graph, "Gather") if n.input[0] == "positions.weight")
        graph.initializer.append(from_array(np.array(4, dtype=np.int64), "seen_in_example"))
        count = nodes(graph, "Range")[0]
        shifted = helper.make_node(
            "Add",
            [count.output[0], "seen_in_example"],
            ["frozen_positions"],
            name="frozen_positions",
        )
        graph.node.insert(list(graph.node).index(lookup), shifted)
        lookup.input[1] = "frozen_positions"
        return [shifted.name, lookup.name]

    guilty = edit(correct, folder / "faulty.onnx", freeze)
    return Built(
        model=model,
        example_inputs=(ids, past),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 61, (2, 2)), torch.randn(2, 2, 2, 4, 9, 8)),
    )
