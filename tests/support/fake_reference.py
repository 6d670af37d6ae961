"""A reference whose answers, truth and re-runs are plain functions: what a verification is tested with, without torch."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxproof.results import NoiseKind

Array = np.ndarray[Any, Any]
Function = Callable[[Mapping[str, Array]], list[Array]]


class FakeReference:
    """Answers by `function` in float32, and in float64 where there is a truth; `rerun_noise` is what each re-run adds."""

    kind = NoiseKind.DOUBLE

    def __init__(
        self,
        function: Function,
        *,
        has_truth: bool = True,
        rerun_noise: Callable[[float, int], float] = lambda amplitude, seed: 0.0,
        ties: Function | None = None,
        example: Mapping[str, Array] | None = None,
    ) -> None:
        self._function = function
        self._has_truth = has_truth
        self._rerun_noise = rerun_noise
        self._ties = ties
        self._example = example or {}
        self.reruns = 0

    def example(self) -> dict[str, Array]:
        return dict(self._example)

    def parameter(self, name: str) -> Array | None:
        return None

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        return self._function(inputs)

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        if not self._has_truth:
            return None
        return self._function({name: array.astype(np.float64) for name, array in inputs.items()})

    def rerun(
        self, inputs: Mapping[str, Array], seed: int, *, amplitude: float = 1.0, move: bool = False
    ) -> list[Array]:
        self.reruns += 1
        noise = np.float32(self._rerun_noise(amplitude, seed))
        return [(output + noise).astype(output.dtype) for output in self._function(inputs)]

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        narrow = {name: array.astype(dtype) for name, array in inputs.items()}
        return [output.astype(np.float64) for output in self._function(narrow)]

    def ties(
        self, inputs: Mapping[str, Array], rule: str, *, wide: bool = False
    ) -> list[Array] | None:
        if self._ties is None or wide:
            return None
        return self._ties(inputs)
