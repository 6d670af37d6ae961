"""A model of Keras 3, on whichever backend it runs. Its truth is a copy of it in float64; its steps are its layers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from onnxproof.reference.loaders import ArrayModel, Inputs, PlainModel, Step, widened


def matches(thing: Any) -> bool:
    """Whether one of its classes is Keras's own Model."""
    return any(
        kind.__module__.startswith("keras.") and kind.__name__ == "Model"
        for kind in type(thing).__mro__
    )


def open(thing: Any) -> ArrayModel:
    """The model as it is."""
    return _KerasModel(thing)


class _KerasModel(PlainModel):
    def __init__(self, model: Any) -> None:
        self._model = model
        self._wide: Any = None
        self._compiled: dict[int, Any] = {}

    def call(self, inputs: Inputs) -> Any:
        """In inference mode."""
        return _as_numpy(self._inference(self._model)(_arguments(inputs)))

    def call_wide(self, inputs: Inputs) -> Any:
        """With a copy of the model in float64."""
        with _float64_allowed():
            return _as_numpy(self._inference(self._wide_model())(_arguments(widened(inputs))))

    def _inference(self, model: Any) -> Any:
        """The model as `predict` runs it. On JAX that is compiled as a whole: operation by operation, each new shape took five times as long (measured on a net of three layers)."""
        import keras

        def infer(arguments: Any) -> Any:
            return model(arguments, training=False)

        if keras.config.backend() != "jax" or not getattr(model, "jit_compile", True):
            return infer
        import jax

        return self._compiled.setdefault(id(model), jax.jit(infer))

    def steps(self, inputs: Inputs) -> Sequence[Step]:
        """What each layer of the float64 copy gives, in its order."""
        import keras

        with _float64_allowed():
            wide = self._wide_model()
            layers = [layer for layer in wide.layers if hasattr(layer, "output")]
            inner = keras.Model(wide.inputs, [layer.output for layer in layers])
            answers = inner(_arguments(widened(inputs)), training=False)
            return [
                (layer.name, keras.ops.convert_to_numpy(answer))
                for layer, answer in zip(layers, answers, strict=True)
                if not isinstance(answer, list | tuple | dict)
            ]

    def _wide_model(self) -> Any:
        if self._wide is None:
            config = _in_float64(self._model.get_config())
            self._wide = type(self._model).from_config(config)
            if not self._wide.built:
                self._wide.build(self._model.input_shape)
            weights = [np.asarray(weight, np.float64) for weight in self._model.get_weights()]
            self._wide.set_weights(weights)
        return self._wide


def _float64_allowed() -> AbstractContextManager[Any]:
    """On the backend JAX, x64: without it JAX makes float32 of every float64, and says nothing."""
    import keras

    if keras.config.backend() != "jax":
        return nullcontext()
    import jax

    return jax.enable_x64(True)  # type: ignore[no-any-return]


def _arguments(inputs: Inputs) -> Any:
    arrays = list(inputs.values())
    return arrays[0] if len(arrays) == 1 else arrays


def _as_numpy(answer: Any) -> Any:
    import keras

    if isinstance(answer, dict):
        return {name: keras.ops.convert_to_numpy(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [keras.ops.convert_to_numpy(value) for value in answer]
    return keras.ops.convert_to_numpy(answer)


def _in_float64(config: Any) -> Any:
    """A layer's config with float64 wherever it says float32."""
    if isinstance(config, dict):
        return {key: _in_float64(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return type(config)(_in_float64(value) for value in config)
    return "float64" if config == "float32" else config
