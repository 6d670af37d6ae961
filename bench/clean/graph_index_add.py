"""The same by index_add."""

from pathlib import Path

from bench.architectures import MessagePassing
from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="graph", about="three rounds of index_add")


def build(folder: Path) -> Built:
    inputs = (normal(12, 16), integers(12, 2, 80))
    model = give_weights(MessagePassing(use_scatter=False), 71)
    return healthy(
        folder / "graph_index_add.onnx", model, inputs, ({0: "nodes"}, {1: "edges"}), dynamo=True
    )
