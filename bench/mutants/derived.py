"""Subjects whose healthy file went through another tool after the export: fused by ONNX Runtime's optimizer for transformers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.corpus import Built, export
from bench.zoo import ENTRIES


def fused(name: str, model_type: str, folder: Path) -> Built:
    """A text encoder of the zoo, exported by the older exporter, whose patterns the optimizer knows, and fused."""
    module, inputs = ENTRIES[name].build()
    path = folder / f"{name}.fused.onnx"
    given = tuple(inputs.values()) if isinstance(inputs, dict) else tuple(inputs)
    shapes = [{0: "batch", 1: "length"} for _ in given]
    if not path.exists():
        from onnxruntime.transformers.optimizer import optimize_model

        names = list(inputs) if isinstance(inputs, dict) else None
        plain = export(
            module, given, folder / "plain.onnx", shapes, dynamo=False, input_names=names
        )
        done = optimize_model(
            str(plain), model_type=model_type, num_heads=4, hidden_size=32, opt_level=0
        )
        done.save_model_to_file(str(path))
    return Built(model=module, example_inputs=inputs, correct=path)


BUILDERS: dict[str, Callable[[Path], Built]] = {
    "fused_bert": partial(fused, "bert_eager", "bert"),
    "fused_distilbert": partial(fused, "distilbert_eager", "bert"),
}
