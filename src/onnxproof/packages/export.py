"""A Hugging Face model to a folder of files that Optimum, Transformers.js and onnxruntime run, with its cache."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxproof.errors import ExportError
from onnxproof.exporter.export import write
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.options import ExportOptions
from onnxproof.packages.component_module import DecoderModule, EncoderModule
from onnxproof.packages.examples import Example, cache_shapes, decoder_example, encoder_example
from onnxproof.packages.export_modules import (
    Decoder,
    FeatureEncoder,
    FirstDecoder,
    StepDecoder,
    TextEncoder,
    cache_names,
)
from onnxproof.packages.loaded_model import load_model
from onnxproof.packages.merged import write_merged
from onnxproof.packages.package import Role
from onnxproof.packages.tokenizers import FILES as TOKENIZER_FILES
from onnxproof.reference import subject as subjects
from onnxproof.reference import tree
from onnxproof.reference.subject import Subject
from onnxproof.system.user_files import is_regular

_COPIED = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "chat_template.jinja",
    *TOKENIZER_FILES,
)
"""What loaders read beside the ONNX files."""
_SIDES = ("decoder.", "encoder.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file to be exported: the module, its example, and the names of what goes in and out."""

    name: str
    module: Any
    example: Example
    outputs: tuple[str, ...]

    def subject(self) -> Subject:
        """What the exporter is handed."""
        return subjects.load(
            Subject(
                module=self.module.eval(),
                example_inputs=self.example.inputs,
                dynamic_shapes=self.example.dims,
                name=self.name,
            )
        )

    def options(self, options: ExportOptions) -> ExportOptions:
        """The user's options with this file's names."""
        names = tuple(name for name, _ in tree.flatten(self.example.inputs))
        return replace(options, input_names=names, output_names=self.outputs)


def export_folder(
    source: Any,
    folder: Path,
    options: ExportOptions,
    *,
    backends: Sequence[str] = ("ort",),
    tell: Callable[[str], None] | None = None,
) -> None:
    """Write the files of a model, and beside them what loaders read."""
    loaded = load_model(source, folder)
    model = loaded.model
    _require_cache(model)
    folder.mkdir(parents=True, exist_ok=True)
    planned = plan_files(model)
    for file in planned:
        path = folder / file.name
        write(file.subject(), path, file.options(options), backends=backends, tell=tell)
    if model.config.is_encoder_decoder:
        first, step = (folder / file.name for file in planned[1:])
        write_merged(first, step, folder / "decoder_model_merged.onnx")
    _copy_settings(model, loaded.folder, folder)


def _copy_settings(model: Any, saved: Path | None, folder: Path) -> None:
    if saved is None:
        model.config.save_pretrained(folder)
        return
    for name in _COPIED:
        if is_regular(saved / name) and saved.resolve() != folder.resolve():
            shutil.copyfile(saved / name, folder / name)


def plan_files(model: Any) -> list[PlannedFile]:
    """The files of a model: one decoder, or an encoder and a decoder's two calls."""
    layers = 1 + max(place.layer for place in cache_shapes(model))
    if not model.config.is_encoder_decoder:
        return [_decoder(model, layers)]
    return [_encoder(model), _first(model, layers), _step(model, layers)]


def _decoder(model: Any, layers: int) -> PlannedFile:
    outputs = ("logits", *cache_names(layers, "present"))
    inputs = ["input_ids", "attention_mask", "position_ids"]
    inputs += cache_names(layers, "past_key_values")
    module = Decoder(DecoderModule(model, Role.STEP, outputs))
    return _planned("model.onnx", module, decoder_example(model, _ports(inputs)), outputs)


def _encoder(model: Any) -> PlannedFile:
    outputs = ("last_hidden_state",)
    core = EncoderModule(model, outputs)
    if model.main_input_name == "input_features":
        example = encoder_example(model, _ports(["input_features"]))
        return _planned("encoder_model.onnx", FeatureEncoder(core), example, outputs)
    if model.main_input_name == "input_ids":
        example = encoder_example(model, _ports(["input_ids", "attention_mask"]))
        return _planned("encoder_model.onnx", TextEncoder(core), example, outputs)
    raise ExportError(
        "unknown-encoder",
        f"an encoder of `{model.main_input_name}` can't be exported with its decoder's cache yet",
        help="tokens and sound features are known; export the encoder by a factory of its own",
    )


def _first(model: Any, layers: int) -> PlannedFile:
    outputs = ("logits", *cache_names(layers, "present", _SIDES))
    inputs = ["input_ids", "encoder_hidden_states", *_masks(model)]
    module = FirstDecoder(DecoderModule(model, Role.FIRST, outputs))
    return _planned("decoder_model.onnx", module, decoder_example(model, _ports(inputs)), outputs)


def _step(model: Any, layers: int) -> PlannedFile:
    outputs = ("logits", *cache_names(layers, "present", _SIDES[:1]))
    inputs = ["input_ids", *cache_names(layers, "past_key_values", _SIDES), *_masks(model)]
    module = StepDecoder(DecoderModule(model, Role.STEP, outputs))
    example = decoder_example(model, _ports(inputs))
    return _planned("decoder_with_past_model.onnx", module, example, outputs)


def _masks(model: Any) -> list[str]:
    """An encoder of tokens hands its mask on; one of sounds has none."""
    return ["encoder_attention_mask"] if model.main_input_name == "input_ids" else []


def _planned(name: str, module: Any, example: Example, outputs: Sequence[str]) -> PlannedFile:
    return PlannedFile(name=name, module=module, example=example, outputs=tuple(outputs))


def _ports(names: Sequence[str]) -> list[Port]:
    return [Port(name=name, dtype="unknown", dims=None) for name in names]


def _require_cache(model: Any) -> None:
    if hasattr(model, "generate") and model.can_generate():
        return
    raise ExportError(
        "no-cache",
        f"{type(model).__name__} generates nothing, so it has no cache",
        help="leave `--with-cache` out",
    )
