"""The main job on an example: a small conv net on scikit-learn's digits, its export, and a copy with a fault that allclose lets through."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.errors import OnnxproofError
from onnxproof.system import writing

if TYPE_CHECKING:
    import numpy as np

    from onnxproof.results.proof import Proof

EPSILON, WRONG_EPSILON = 1e-5, 1e-6
"""PyTorch's default, and the one of other frameworks: a mix-up that really happens when weights are converted."""
ATOL, RTOL = 1e-4, 1e-3
_TRAINED_ON = 1400
_EPOCHS, _BATCH = 4, 64
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One ONNX file before two judges: `allclose` on the test images, and onnxproof."""

    title: str
    path: Path
    same_answers: float
    """Share of the test images for which both models choose the same digit."""
    allowance: float
    """Share of the classical tolerance that the worst logit used."""
    allclose: bool
    proof: "Proof"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the demo found."""

    accuracy: float
    images: int
    healthy: Check
    broken: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digits:
    module: Any
    test: Any
    labels: Any

    def logits(self) -> "np.ndarray[Any, Any]":
        import torch

        with torch.no_grad():
            answer: np.ndarray[Any, Any] = self.module(self.test).numpy()
        return answer


def run(folder: Path, say: Say, *, budget_s: float = 10.0, seed: int = 0) -> Story:
    """Train, export, verify, spoil, verify again; files go to `folder`."""
    _require()
    with writing.explain_write_errors(folder, "the models"):
        folder.mkdir(parents=True, exist_ok=True)
    say("training a small conv net with BatchNorm on scikit-learn's digits")
    digits = _train(seed)
    say("exporting it to ONNX")
    good, bad = folder / "digits.onnx", folder / "digits.epsilon.onnx"
    _export(digits, good)
    _spoil(good, bad)
    say("verifying the export")
    healthy = _check("the export", good, digits, budget_s, seed)
    say(
        f"verifying a copy whose last BatchNorm has epsilon {WRONG_EPSILON:g} instead of {EPSILON:g}"
    )
    broken = _check("the copy", bad, digits, budget_s, seed)
    broken.proof.to_json(folder / "proof.json")
    accuracy = float((digits.logits().argmax(1) == digits.labels.numpy()).mean())
    return Story(accuracy=accuracy, images=len(digits.test), healthy=healthy, broken=broken)


def _require() -> None:
    try:
        import onnxscript  # noqa: F401
        import sklearn  # noqa: F401
        import torch  # noqa: F401
    except ImportError as why:
        raise OnnxproofError(
            "demo-missing",
            f"the demo needs a package that isn't installed: {why.name or why}",
            help="pip install 'onnxproof[torch]' scikit-learn",
        ) from why


def _train(seed: int) -> _Digits:
    import torch
    from sklearn.datasets import load_digits

    images, target = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    x, y = x[order], torch.tensor(target)[order]
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        module = _net()
        _fit(module, x[:_TRAINED_ON], y[:_TRAINED_ON])
    finally:
        torch.random.set_rng_state(state)
    return _Digits(module=module.eval(), test=x[_TRAINED_ON:], labels=y[_TRAINED_ON:])


def _net() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16, eps=EPSILON),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32, eps=EPSILON),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def _fit(module: Any, x: Any, y: Any) -> None:
    import torch

    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    for _ in range(_EPOCHS):
        for start in range(0, len(x), _BATCH):
            loss = torch.nn.functional.cross_entropy(
                module(x[start : start + _BATCH]), y[start : start + _BATCH]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def _export(digits: _Digits, path: Path) -> None:
    """torch's exporter without its optimizer, which would fold BatchNorm into the convolution and its epsilon out of sight."""
    import torch

    from onnxproof.exporter.export import quiet

    with writing.replace_file(path, what="the model") as draft, quiet():
        torch.onnx.export(
            digits.module,
            (digits.test[:2],),
            str(draft),
            dynamo=True,
            optimize=False,
            external_data=False,
            verbose=False,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: "batch"},),
        )


def _spoil(good: Path, bad: Path) -> None:
    """A copy in which one attribute of one node is another number."""
    import onnx

    model = onnx.load(good)
    last = [node for node in model.graph.node if node.op_type == "BatchNormalization"][-1]
    next(attribute for attribute in last.attribute if attribute.name == "epsilon").f = WRONG_EPSILON
    with writing.replace_file(bad, what="the model") as draft:
        onnx.save(model, draft)


def _check(title: str, path: Path, digits: _Digits, budget_s: float, seed: int) -> Check:
    import numpy as np

    from onnxproof.api import verify
    from onnxproof.runtimes import open_session

    session = open_session("ort", path)
    candidate = session.run({session.input_names[0]: digits.test.numpy()})[0]
    session.close()
    reference = digits.logits()
    assert candidate is not None
    used = float((np.abs(candidate - reference) / (ATOL + RTOL * np.abs(reference))).max())
    proof = verify(
        digits.module,
        path,
        (digits.test[:2],),
        dynamic_shapes=({0: "batch"},),
        data=[digits.test[:32]],
        budget_s=budget_s,
        seed=seed,
    )
    return Check(
        title=title,
        path=path,
        same_answers=float((candidate.argmax(1) == reference.argmax(1)).mean()),
        allowance=used,
        allclose=bool(np.allclose(candidate, reference, atol=ATOL, rtol=RTOL)),
        proof=proof,
    )
