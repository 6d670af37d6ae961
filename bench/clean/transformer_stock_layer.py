"""torch's own `nn.TransformerEncoder`, which takes a fused fast path in eval mode that the export does not take."""

from pathlib import Path

from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="transformer", about="nn.TransformerEncoder, three layers, fast path in eager mode only"
)


def build(folder: Path) -> Built:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    model = give_weights(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), 41)
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_stock_layer.onnx", model, (normal(2, 9, 32),), axes, dynamo=True
    )
