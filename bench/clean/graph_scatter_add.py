"""Message passing with repeated targets: the order in which messages are added is free, so sums differ by rounding."""

from pathlib import Path

from bench.architectures import MessagePassing
from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="graph", about="three rounds of scatter_add with many duplicate indices")


def build(folder: Path) -> Built:
    inputs = (normal(12, 16), integers(12, 2, 80))
    axes = ({0: "nodes"}, {1: "edges"})
    return healthy(
        folder / "graph_scatter_add.onnx",
        give_weights(MessagePassing(), 70),
        inputs,
        axes,
        dynamo=False,
    )
