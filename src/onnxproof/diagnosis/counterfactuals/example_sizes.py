"""Sizes and branches of the example in the place of a case's own: in the module by tracing it, in the file by its constants."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import torch

from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench, node_name
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.reference import tree
from onnxproof.reference.torch_session import TorchSession, from_numpy, to_numpy

_MOST_CONSTANTS = 24
"""Constants of the file that are tried one by one. Not measured."""
_MOST_ELEMENTS = 8
"""Elements of a constant that may hold sizes: a shape has no more. Not measured."""
_SAME_NUMBER = 1e-6
"""Relative distance up to which a constant is a size of the example: it is rounded to float32."""
_FORMULAS: tuple[Callable[[float], float], ...] = (
    lambda n: n,
    lambda n: 1 / n,
    lambda n: n - 1,
    lambda n: n + 1,
    math.sqrt,
    lambda n: 1 / math.sqrt(n),
    lambda n: 2 * n,
    lambda n: n / 2,
)
"""What a constant may be made of a size by."""


class _Flat(torch.nn.Module):
    """The module as a function of tensors alone, which is what can be traced."""

    def __init__(self, session: TorchSession, names: Sequence[str]) -> None:
        super().__init__()
        self.module = session.module
        self._session = session
        self._names = list(names)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tensors in the order of the names, leaves of the outputs in theirs."""
        args, kwargs = self._session.arguments(dict(zip(self._names, tensors, strict=True)))
        leaves = [leaf for _, leaf in tree.flatten(self.module(*args, **kwargs))]
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def traced_on_example(workbench: Workbench) -> Counterfactual | None:
    """The module in float64 as it was traced on its example; None where it can't be traced."""
    session = workbench.located.module_session
    if session is None or not isinstance(session.module, torch.nn.Module):
        return None
    example = workbench.scene.reference.example()
    names = list(example)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(
                _Flat(session, names),
                _tensors(example, names),
                check_trace=False,
                strict=False,
            )
    except Exception:  # the user's module may do what tracing refuses
        return None

    def error(case: TrialCase) -> float:
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs = [to_numpy(leaf) for leaf in traced(*_tensors(case.inputs, names))]
        except Exception:  # sizes that the traced module refuses, as a file may
            return 0.0 if case.outputs is None else float("inf")
        return case.scene.error(case.outputs, outputs)

    return Counterfactual(error=error, in_reference=True)


def _tensors(inputs: Mapping[str, Array], names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    tensors = [from_numpy(np.asarray(inputs[name])) for name in names]
    return tuple(t.double() if t.is_floating_point() else t for t in tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSize:
    """A constant of the file that holds a size of the example, or what a formula makes of one."""

    node: str
    output: str
    """The first output of the node that reads it."""
    place: int
    value: Array
    dim: str
    element: int
    formula: Callable[[float], float]


def sizes_in_file(workbench: Workbench, dim: str) -> Iterator[list[ConstantSize]]:
    """Constants that hold a size of the example, of the separating dim or of any: each alone, then all together."""
    examples = {
        info.name: info.example
        for info in workbench.scene.signature.dims
        if info.example > 1 and (not dim or info.name == dim)
    }
    located = [node.output[0] for node in workbench.nodes]
    nodes = sorted(workbench.model.graph.node, key=lambda node: node.output[0] not in located)
    found = [
        constant
        for node in nodes
        for place, _, value in workbench.constants(node)
        for constant in _sizes_in_constant(node, place, value, examples)
    ]
    for constant in itertools.islice(found, _MOST_CONSTANTS):
        yield [constant]
    if len(found) > 1:
        yield found


def _sizes_in_constant(
    node: onnx.NodeProto, place: int, value: Array, examples: Mapping[str, int]
) -> Iterator[ConstantSize]:
    if value.size > _MOST_ELEMENTS or value.dtype.kind not in "fi":
        return
    formulas = _FORMULAS[:1] if value.size > 1 else _FORMULAS
    for element, number in enumerate(value.reshape(-1).tolist()):
        for (dim, size), formula in itertools.product(examples.items(), formulas):
            if math.isclose(number, formula(size), rel_tol=_SAME_NUMBER):
                yield ConstantSize(
                    node=node_name(node),
                    output=node.output[0],
                    place=place,
                    value=value,
                    dim=dim,
                    element=element,
                    formula=formula,
                )
                break


def with_own_sizes(workbench: Workbench, constants: Sequence[ConstantSize]) -> Counterfactual:
    """The file with each case's own sizes in the place of the example's."""

    def error(case: TrialCase) -> float:
        sizes = case.sizes
        model = workbench.copy_model()
        by_output = {node.output[0]: node for node in model.graph.node}
        values: dict[tuple[str, int], Array] = {}
        for constant in constants:
            where = (constant.output, constant.place)
            value = values.setdefault(where, np.array(constant.value))
            number = constant.formula(sizes[constant.dim])
            value.reshape(-1)[constant.element] = np.asarray(number).astype(value.dtype)
        for (output, place), value in values.items():
            name = f"{output}_own_size_{place}"
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            by_output[output].input[place] = name
        return case.scene.error(workbench.run(model, inputs=case.inputs))

    return Counterfactual(error=error, in_reference=False)
