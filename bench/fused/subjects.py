"""The healthy files: fused by ONNX Runtime's tools or written with its operators, and weights of 4 bits."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from bench.architectures import ConvNet, TransformerStack
from bench.clean._healthy import integers, normal
from bench.corpus import Built, export, give_weights
from bench.fused.decoder import Decoder, Form, write
from bench.mutants.subjects import SubjectSource

BATCH = {0: "batch"}
TOKENS = {0: "batch", 1: "length"}


class MaskedEncoder(nn.Module):
    """A text encoder with its padding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        answer = self.model(input_ids=input_ids, attention_mask=attention_mask)
        states: Tensor = answer.last_hidden_state
        return states


def bert(folder: Path) -> Built:
    """A BERT fused by onnxruntime.transformers: Attention, SkipLayerNormalization, EmbedLayerNormalization, BiasGelu."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    module = MaskedEncoder(give_weights(BertModel(config, add_pooling_layer=False), 3)).eval()
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    inputs = (integers(64, 2, 9), mask)
    path = folder / "bert.onnx"
    if not path.exists():
        from onnxruntime.transformers.fusion_options import FusionOptions
        from onnxruntime.transformers.optimizer import optimize_model

        plain = folder / "plain.onnx"
        names = ["input_ids", "attention_mask"]
        export(module, inputs, plain, [TOKENS, TOKENS], dynamo=False, input_names=names)
        options = FusionOptions("bert")
        options.use_raw_attention_mask(True)  # the other form forgets the mask of this exporter
        fused = optimize_model(
            str(plain),
            model_type="bert",
            num_heads=4,
            hidden_size=32,
            opt_level=0,
            optimization_options=options,
        )
        fused.save_model_to_file(str(path))
    return Built(model=module, example_inputs=inputs, dynamic_shapes=(TOKENS, TOKENS), correct=path)


def offline(network: nn.Module, shape: tuple[int, ...], level: str, folder: Path) -> Built:
    """What ONNX Runtime saves after its own optimisation."""
    import onnxruntime

    module = give_weights(network, 23)
    path = folder / "offline.onnx"
    axes = [BATCH]
    if len(shape) == 3:
        axes = [TOKENS]
    inputs = (normal(*shape),)
    if not path.exists():
        plain = export(module, inputs, folder / "plain.onnx", axes, dynamo=False)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
    return Built(model=module, example_inputs=inputs, dynamic_shapes=tuple(axes), correct=path)


def decoder(form: Form, folder: Path) -> Built:
    """The decoder of fused operators."""
    module: Any = give_weights(Decoder(form), 29)
    path = folder / "decoder.onnx"
    if not path.exists():
        onnx.save(write(module), path)
    inputs = (integers(form.vocabulary, 2, 11),)
    return Built(model=module, example_inputs=inputs, dynamic_shapes=(TOKENS,), correct=path)


def four_bits(
    build: Callable[[Path], Built], packing: dict[str, Any], folder: Path, *, grouped: bool = False
) -> Built:
    """The same file with the weights of its MatMul nodes in 4 bits."""
    plain = folder / "float"
    plain.mkdir(parents=True, exist_ok=True)
    built = build(plain)
    assert built.correct is not None
    path = folder / "four_bits.onnx"
    if not path.exists():
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(onnx.load(built.correct), **packing)
        quantizer.process()
        model = quantizer.model.model
        if grouped:
            group_columns(model, onnx.load(built.correct), packing["block_size"])
        onnx.save(model, path)
    return replace(built, correct=path)


def group_columns(model: onnx.ModelProto, plain: onnx.ModelProto, block: int) -> None:
    """Blocks of columns that are alike (GPTQ's act-order) with `g_idx`, instead of neighbours."""
    floats = {tensor.name: numpy_helper.to_array(tensor) for tensor in plain.graph.initializer}
    sources = {n.output[0]: n.input[1] for n in plain.graph.node if n.op_type == "MatMul"}
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMulNBits":
            continue
        weight = floats[sources[node.output[0]]].T
        rows, columns = weight.shape
        blocks = -(-columns // block)
        order = np.argsort(np.abs(weight).max(0))
        groups = np.empty(columns, np.int32)
        groups[order] = np.arange(columns) // block
        scales = np.stack(
            [np.abs(weight[:, groups == g]).max(1) / 7 for g in range(blocks)], axis=1
        ).astype(np.float32)
        codes = np.clip(np.rint(weight / scales[:, groups]) + 8, 0, 15).astype(np.uint8)
        padded = np.full((rows, blocks * block), 8, np.uint8)
        padded[:, :columns] = codes
        packed = (padded[:, 0::2] | padded[:, 1::2] << 4).reshape(rows, blocks, -1)
        _replace(tensors[node.input[1]], packed)
        _replace(tensors[node.input[2]], scales.reshape(tensors[node.input[2]].dims))
        name = f"{node.input[1]}_g_idx"
        model.graph.initializer.append(numpy_helper.from_array(groups, name))
        node.input.extend(["", name])


def _replace(tensor: onnx.TensorProto, value: np.ndarray[Any, Any]) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))


def mlp(folder: Path) -> Built:
    """Three layers."""
    network = nn.Sequential(
        nn.Linear(96, 80), nn.GELU(), nn.Linear(80, 96), nn.ReLU(), nn.Linear(96, 24)
    )
    return _plain(network, (4, 96), folder)


def stack(folder: Path) -> Built:
    """Two blocks of an encoder."""
    return _plain(TransformerStack(2, width=64), (2, 9, 64), folder)


def _plain(network: nn.Module, shape: tuple[int, ...], folder: Path) -> Built:
    module = give_weights(network, 31)
    axes: list[Any] = [TOKENS]
    if len(shape) == 2:
        axes = [BATCH]
    inputs = (normal(*shape),)
    folder.mkdir(parents=True, exist_ok=True)
    path = export(module, inputs, folder / "plain.onnx", axes, dynamo=False)
    model = onnx.load(path)
    _gemm_as_matmul(model)
    onnx.save(model, path)
    return Built(model=module, example_inputs=inputs, dynamic_shapes=tuple(axes), correct=path)


def _gemm_as_matmul(model: onnx.ModelProto) -> None:
    """Gemm with a transposed weight as MatMul and Add: only MatMul gets 4 bits."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type != "Gemm":
            model.graph.node.append(node)
            continue
        weight = tensors[node.input[1]]
        _replace(weight, numpy_helper.to_array(weight).T)
        product = f"{node.output[0]}_product"
        model.graph.node.extend(
            [
                helper.make_node("MatMul", node.input[:2], [product], name=f"{node.name}_MatMul"),
                helper.make_node("Add", [product, node.input[2]], node.output, name=node.name),
            ]
        )


LLAMA = Form()
GEMMA = Form(softcap=4.0, window=5, shared=1)
ROTARY = Form(grouped=False, shared=4)
FUSED: dict[str, Callable[[Path], Built]] = {
    "bert_optimizer": bert,
    "encoder_offline": partial(
        offline, TransformerStack(2, width=32), (2, 9, 32), "ORT_ENABLE_EXTENDED"
    ),
    "conv_offline": partial(offline, ConvNet("batch", width=16), (2, 3, 16, 16), "ORT_ENABLE_ALL"),
    "llama_grouped": partial(decoder, LLAMA),
    "gemma_grouped": partial(decoder, GEMMA),
    "llama_rotary": partial(decoder, ROTARY),
}
SYMMETRIC = {"block_size": 16, "is_symmetric": True}
ASYMMETRIC = {"block_size": 32, "is_symmetric": False}
FOUR_BITS: dict[str, Callable[[Path], Built]] = {
    "mlp_symmetric": partial(four_bits, mlp, SYMMETRIC),
    "mlp_accuracy4": partial(four_bits, mlp, ASYMMETRIC | {"accuracy_level": 4}),
    "mlp_groups": partial(four_bits, mlp, SYMMETRIC, grouped=True),
    "stack_asymmetric": partial(four_bits, stack, ASYMMETRIC),
    "llama_symmetric": partial(four_bits, partial(decoder, LLAMA), SYMMETRIC),
    "rotary_asymmetric": partial(four_bits, partial(decoder, ROTARY), ASYMMETRIC),
}


def sources() -> dict[str, SubjectSource]:
    """Every subject by name."""
    return {
        name: SubjectSource(name=name, build=build) for name, build in (FUSED | FOUR_BITS).items()
    }
