"""Both sides of a rollout of a folder: the Hugging Face model with its own cache, and the files called in turn with theirs."""

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from onnxproof.inputs.space import as_dtype
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.packages.cache_names import CachePlace, cache_place
from onnxproof.packages.caches import make_cache
from onnxproof.packages.merged import SWITCH
from onnxproof.packages.package import Component, Package, Role
from onnxproof.reference.rounding import Jitter, Promote
from onnxproof.reference.torch_session import from_numpy, to_numpy
from onnxproof.runtimes import Session, open_session
from onnxproof.verification.rollout.model_sides import NoAnswer

Array = np.ndarray[Any, Any]
CacheShapes = Mapping[CachePlace, tuple[int, int]]
"""Heads and their width of every tensor of a cache."""


class _OwnCaches:
    """A side whose caches nobody else may see: two sides keep them in other places."""

    def __init__(self) -> None:
        self.states: dict[str, Array] = {}
        self.called = ""
        """The file that answered last."""

    def call(
        self, feeds: Mapping[str, Array], states: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """There is no call with the states of another side."""
        raise NoAnswer


class HuggingFaceSide(_OwnCaches):
    """The whole model, step by step, as `generate` calls it."""

    def __init__(
        self, model: Any, *, wide: bool = False, jitter: int | None = None, half: str = ""
    ) -> None:
        super().__init__()
        self._model = model
        if wide or half:
            dtype = torch.float64 if wide else getattr(torch, half)
            self._model = copy.deepcopy(model).to(dtype)
        self._wide, self._jitter, self._half = wide, jitter, half
        self._two_parts = bool(model.config.is_encoder_decoder)
        self._names = inspect.signature(model.forward).parameters
        self._calls = 0
        self.cache: Any = None
        self._hidden: Any = None

    def reset(self, batch: int) -> None:
        """Forget the cache and the encoder's answer."""
        self.cache = make_cache({}, two_parts=self._two_parts)
        self._hidden = None

    def step(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The logits of the next tokens."""
        tensors = {name: self._tensor(array) for name, array in feeds.items()}
        with torch.no_grad(), self._arithmetic():
            if self._two_parts:
                tensors = self._decoder_arguments(tensors)
            tensors = {name: value for name, value in tensors.items() if name in self._names}
            answer = self._model(
                **tensors, past_key_values=self.cache, use_cache=True, return_dict=True
            )
        self.cache = answer.past_key_values
        self._calls += 1
        logits = answer.logits.float() if self._half else answer.logits
        return {"logits": to_numpy(logits)}

    def _tensor(self, array: Array) -> torch.Tensor:
        tensor = from_numpy(array)
        if tensor.is_floating_point():
            return tensor.to(self._model.dtype)
        return tensor

    def _decoder_arguments(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """The encoder runs at the first step; the decoder is handed what it said."""
        decoder = {"decoder_input_ids": tensors.pop("decoder_input_ids")}
        if self._hidden is None:
            encoder = self._model.get_encoder()
            self._hidden = encoder(**tensors, return_dict=True).last_hidden_state
        if "attention_mask" in tensors:
            decoder["attention_mask"] = tensors["attention_mask"]
        return {**decoder, "encoder_outputs": (self._hidden,)}

    def _arithmetic(self) -> AbstractContextManager[object]:
        """Float64 throughout for the truth, other roundings for a sample of the noise."""
        if self._wide:
            return Promote()
        if self._jitter is None:
            return nullcontext()
        return Jitter(self._jitter + self._calls, 1.0)


class FolderSide(_OwnCaches):
    """The files of a folder, called in turn as their layout says."""

    def __init__(self, package: Package, shapes: CacheShapes, backend: str) -> None:
        super().__init__()
        self._package, self._shapes = package, shapes
        self._sessions: dict[str, _OpenFile] = {}
        for part in package.components:
            if part.file not in self._sessions:
                self._sessions[part.file] = _OpenFile(package, part, backend)
        self._batch = 0
        self._first = True
        self.cache: dict[CachePlace, Array] = {}
        """What the files answered as their cache."""
        self._hidden: Array | None = None

    def reset(self, batch: int) -> None:
        """Forget the cache and the encoder's answer."""
        self._batch, self._first, self._hidden, self.cache = batch, True, None, {}

    def step(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The logits of the next tokens."""
        inputs = self._decoder_inputs(feeds)
        part = self._decoder()
        self.called = part.file
        file = self._sessions[part.file]
        inputs[SWITCH] = np.array([not self._first])
        cache = {**self._empty_cache(part, file), **self.cache}
        outputs = file.run(inputs, cache)
        self._keep(outputs)
        self._first = False
        return {"logits": _in_single(outputs["logits"])}

    def close(self) -> None:
        """Let the sessions go."""
        for file in self._sessions.values():
            file.session.close()

    def _decoder(self) -> Component:
        first = self._package.component(Role.FIRST)
        if self._first and first is not None:
            return first
        part = self._package.component(Role.STEP) or first
        assert part is not None
        return part

    def _decoder_inputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """By the file's names; the encoder runs first where there is one."""
        encoder = self._package.component(Role.ENCODER)
        if encoder is None:
            return dict(feeds)
        sources = {name: array for name, array in feeds.items() if name != "decoder_input_ids"}
        if self._hidden is None:
            self.called = encoder.file
            answers = self._sessions[encoder.file].run(sources, {})
            self._hidden = next(iter(answers.values()))
        inputs = {"input_ids": feeds["decoder_input_ids"], "encoder_hidden_states": self._hidden}
        if "attention_mask" in sources:
            inputs["encoder_attention_mask"] = sources["attention_mask"]
        return inputs

    def _empty_cache(self, part: Component, file: "_OpenFile") -> dict[CachePlace, Array]:
        """Caches without a token, for a file that asks for them at its first call; one shared buffer is there from the start."""
        if not self._first:
            return {}
        empty: dict[CachePlace, Array] = {}
        for place, port in file.caches.items():
            heads, width = self._shapes[place]
            shape = (self._batch, heads, self._package.buffer, width)
            empty[place] = as_dtype(np.zeros(shape, np.float32), np.dtype(port.dtype))
        return empty

    def _keep(self, outputs: Mapping[str, Array]) -> None:
        """The new cache; what attends to the encoder is computed at the first call alone."""
        for name, array in outputs.items():
            place = cache_place(name)
            if place is not None and (self._first or not place.cross):
                self.cache[place] = array


def _in_single(logits: Array) -> Array:
    """Logits of a file in half precision as float32: whoever chooses a token reads them so."""
    if logits.dtype.itemsize < np.dtype(np.float32).itemsize:
        return logits.astype(np.float32)
    return logits


class _OpenFile:
    """A file on a runtime, fed by name; what it does not take is left out."""

    def __init__(self, package: Package, part: Component, backend: str) -> None:
        path = package.folder / part.file
        self._file: OnnxFile = onnx_file.read(path)
        self.session: Session = open_session(backend, path)
        self.caches = {
            place: port
            for port in self._file.inputs
            if (place := cache_place(port.name)) is not None
        }

    def run(
        self, inputs: Mapping[str, Array], cache: Mapping[CachePlace, Array]
    ) -> dict[str, Array]:
        """The outputs by name."""
        fed: dict[str, Array] = {}
        for port in self._file.inputs:
            place = cache_place(port.name)
            array = inputs.get(port.name) if place is None else cache.get(place)
            if array is not None:
                fed[port.name] = as_dtype(np.ascontiguousarray(array), np.dtype(port.dtype))
        outputs = zip(self.session.output_names, self.session.run(fed), strict=True)
        return {name: value for name, value in outputs if value is not None}


@contextmanager
def open_sides(
    package: Package, model: Any, shapes: CacheShapes, backend: str
) -> Iterator[tuple[HuggingFaceSide, HuggingFaceSide, FolderSide]]:
    """Reference, truth and candidate; the candidate's sessions are closed at the end."""
    with ExitStack() as stack:
        candidate = FolderSide(package, shapes, backend)
        stack.callback(candidate.close)
        yield HuggingFaceSide(model), HuggingFaceSide(model, wide=True), candidate
