"""Subjects whose healthy file went through another tool after the export: fused or quantized by ONNX Runtime's tools."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bench.architectures import ConvNet, TransformerStack
from bench.clean._healthy import normal
from bench.corpus import Built, export, give_weights
from bench.zoo import ENTRIES


class IdsAlone(nn.Module):
    """A text encoder without padding: what the optimizer makes of a padded mask is wrong (see docs/mutants.md)."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: Tensor) -> Tensor:
        states: Tensor = getattr(self.model(input_ids=input_ids), self.output)
        return states


def fused(name: str, model_type: str, folder: Path) -> Built:
    """A text encoder of the zoo, exported by the older exporter, whose patterns the optimizer knows, and fused."""
    encoder, inputs = ENTRIES[name].build()
    given = inputs["input_ids"]
    module = IdsAlone(encoder.get_submodule("model"), "last_hidden_state").eval()
    path = folder / f"{name}.fused.onnx"
    if not path.exists():
        from onnxruntime.transformers.optimizer import optimize_model

        shapes = [{0: "batch", 1: "length"}]
        names = ["input_ids"]
        plain = folder / "plain.onnx"
        export(module, (given,), plain, shapes, dynamo=False, input_names=names)
        done = optimize_model(
            str(plain), model_type=model_type, num_heads=4, hidden_size=32, opt_level=0
        )
        done.save_model_to_file(str(path))
    return Built(model=module, example_inputs=(given,), correct=path)


QUANTIZED: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "quantized_conv": lambda: (ConvNet("batch", width=16, depth=2), (2, 3, 16, 16)),
    "quantized_mlp": lambda: (_mlp(), (4, 24)),
    "quantized_encoder": lambda: (TransformerStack(2, width=32), (2, 9, 32)),
}


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5)
    )


def quantized(name: str, folder: Path) -> Built:
    """A small network with Q/DQ by channel, calibrated on sixteen ordinary inputs."""
    network, shape = QUANTIZED[name]()
    module = give_weights(network, 19)
    path = folder / f"{name}.onnx"
    if not path.exists():
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

        class Inputs(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.waiting = [{"in0": normal(*shape, seed=k).numpy()} for k in range(16)]

            def get_next(self) -> dict[str, Any] | None:
                return self.waiting.pop() if self.waiting else None

        plain = export(
            module, (normal(*shape),), folder / "plain.onnx", [{0: "batch"}], dynamo=False
        )
        quantize_static(
            str(plain), str(path), Inputs(), per_channel=True, weight_type=QuantType.QInt8
        )
    return Built(
        model=module, example_inputs=(normal(*shape),), dynamic_shapes=({0: "batch"},), correct=path
    )


BUILDERS: dict[str, Callable[[Path], Built]] = {
    "fused_bert": partial(fused, "bert_eager", "bert"),
    "fused_distilbert": partial(fused, "distilbert_eager", "bert"),
    **{name: partial(quantized, name) for name in QUANTIZED},
}
