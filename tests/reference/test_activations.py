"""Every activation of torch.nn, exported as torch exports it: the kernels' known rounding is no alarm, and another alpha is one."""

import contextlib
import inspect
import io
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxproof
from onnxproof.reference.activations import natural_scale
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

ACTIVATIONS: dict[str, nn.Module] = {
    "CELU": nn.CELU(),
    "CELU, 0.5": nn.CELU(0.5),
    "CELU, 8": nn.CELU(8.0),
    "ELU": nn.ELU(),
    "ELU, 8": nn.ELU(8.0),
    "GELU": nn.GELU(),
    "GELU, tanh": nn.GELU("tanh"),
    "GLU": nn.GLU(),
    "GLU, first dim": nn.GLU(0),
    "Hardshrink": nn.Hardshrink(),
    "Hardsigmoid": nn.Hardsigmoid(),
    "Hardswish": nn.Hardswish(),
    "Hardtanh": nn.Hardtanh(),
    "LeakyReLU": nn.LeakyReLU(),
    "LogSoftmax": nn.LogSoftmax(-1),
    "Mish": nn.Mish(),
    "PReLU": nn.PReLU(),
    "ReLU": nn.ReLU(),
    "ReLU6": nn.ReLU6(),
    "SELU": nn.SELU(),
    "SiLU": nn.SiLU(),
    "Sigmoid": nn.Sigmoid(),
    "Softmax": nn.Softmax(-1),
    "Softmin": nn.Softmin(-1),
    "Softplus": nn.Softplus(),
    "Softplus, 0.1": nn.Softplus(0.1),
    "Softshrink": nn.Softshrink(),
    "Softsign": nn.Softsign(),
    "Tanh": nn.Tanh(),
    "Tanhshrink": nn.Tanhshrink(),
    "Threshold": nn.Threshold(0.1, 20.0),
}
OTHERS = {
    "LogSigmoid": "its file takes the logarithm of 0",
    "RReLU": "torch does not export it",
    "MultiheadAttention": "no function of one tensor",
    "Softmax2d": "Softmax",
}


class Pointwise(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)  # type: ignore[operator,no-any-return]


def _verified(path: Path, module: nn.Module, exported: nn.Module, x: torch.Tensor) -> Proof:
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(exported.eval(), (x,), path, external_data=False, verbose=False)
    return onnxproof.verify(module.eval(), path, (x,), budget_s=4, explain=False)


def _example() -> torch.Tensor:
    return torch.randn(4, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_faithful(tmp_path: Path, name: str) -> None:
    proof = _verified(tmp_path / "m.onnx", ACTIVATIONS[name], ACTIVATIONS[name], _example())
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()


def test_no_activation_is_left_out() -> None:
    known = {name.split(",")[0] for name in ACTIVATIONS} | set(OTHERS)
    found = {
        name
        for name, kind in inspect.getmembers(nn.modules.activation, inspect.isclass)
        if issubclass(kind, nn.Module) and kind.__module__ == "torch.nn.modules.activation"
    }
    assert found - {"Module"} <= known


@pytest.mark.parametrize(
    ("module", "other"),
    [
        (nn.CELU(1.0), nn.CELU(1.01)),
        (nn.ELU(1.0), nn.ELU(1.001)),
        (nn.Softplus(1.0), nn.Softplus(1.001)),
        (nn.LeakyReLU(0.01), nn.LeakyReLU(0.0101)),
        (nn.GELU(), nn.GELU("tanh")),
        (nn.GLU(), Pointwise(lambda x: nn.functional.glu(x) * 1.001)),
        (nn.SiLU(), Pointwise(lambda x: x * torch.sigmoid(1.001 * x))),
        (nn.Tanh(), Pointwise(lambda x: torch.tanh(1.0001 * x))),
        (nn.Mish(), nn.SiLU()),
        (nn.SELU(), nn.ELU(1.67)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_another_alpha_is_caught(tmp_path: Path, module: nn.Module, other: nn.Module) -> None:
    proof = _verified(tmp_path / "m.onnx", module, other, _example())
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED), proof.sentence()


def test_a_logarithm_of_zero_is_still_diverged(tmp_path: Path) -> None:
    """torch exports LogSigmoid as Log(Sigmoid(x)), which is infinite where the module gives -100."""
    proof = _verified(tmp_path / "m.onnx", nn.LogSigmoid(), nn.LogSigmoid(), _example())
    assert proof.verdict is Verdict.DIVERGED
    assert any(gap.lost for gap in proof.gaps)


PRODUCTS = {
    "of a row": lambda x: x.prod(-1),
    "of all": lambda x: x.prod(),
    "of a column": lambda x: x.prod(0),
    "of factors near 1": lambda x: (1 + 0.01 * x).prod(-1),
    "in bins": lambda x: torch.histc(x, bins=10, min=-3, max=3),
    "in few bins": lambda x: torch.histc(x, bins=7, min=0, max=1),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("width", [32, 512])
def test_products_and_counts_are_faithful_where_torch_itself_has_two_answers(
    tmp_path: Path, name: str, width: int
) -> None:
    """0.75**512 is 0 in one order and the smallest denormal in another; a value on the edge of a bin lies on either side."""
    module = Pointwise(PRODUCTS[name])
    proof = _verified(
        tmp_path / "m.onnx",
        module,
        module,
        torch.randn(4, width, generator=torch.Generator().manual_seed(2)),
    )
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()


@pytest.mark.parametrize(
    ("module", "other"),
    [
        (lambda x: (1 + 0.1 * x).prod(-1), lambda x: (1 + 0.1 * x)[..., 1:].prod(-1)),
        (PRODUCTS["in bins"], lambda x: torch.histc(x, bins=10, min=-3, max=3.1)),
        (PRODUCTS["in bins"], lambda x: torch.histc(x[1:], bins=10, min=-3, max=3)),
    ],
    ids=["a factor left out", "another end", "a row left out"],
)
def test_wrong_products_and_counts_are_caught(
    tmp_path: Path, module: object, other: object
) -> None:
    proof = _verified(tmp_path / "m.onnx", Pointwise(module), Pointwise(other), _example())
    assert proof.verdict is Verdict.DIVERGED, proof.sentence()


def test_the_scale_of_a_gate_is_what_it_multiplies() -> None:
    x = torch.tensor([[3.0, -0.001, 5.0, 1.0]])
    scale = natural_scale("glu", {"self": x, "dim": -1})
    assert scale is not None
    assert scale.tolist() == [[3.0, pytest.approx(0.001)]]
    assert float(natural_scale("celu", {"self": x, "alpha": 8.0})) == 8.0  # type: ignore[arg-type]
    assert float(natural_scale("softplus", {"self": x, "beta": 0.1})) == pytest.approx(10.0)  # type: ignore[arg-type]
    assert natural_scale("mul", {"self": x}) is None
