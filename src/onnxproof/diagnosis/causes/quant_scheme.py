"""The scheme has too few levels where the values are.

What it is: symmetric ranges for values that lie on one side of zero waste half of the levels; one scale for a whole weight
tensor leaves its small filters two or three; 4 bits are 16 levels.

Why it happens: defaults made for another target (S8S8, per tensor), or the wish for a smaller file.

How to see it: with all levels where the data is, with a scale for each filter, or with more bits, the answers are right. Of weights in blocks (MatMulNBits, GatherBlockQuantized) the costliest matrices get 8 bits, until the answers
are right: those are named.

How to fix it: uint8 activations and per-channel weights on x86 (`--scheme u8s8`), 16 bits where the target has them; `--scheme w4` gives bits to the matrices that need them.

Example: activations between 0 and 8 quantized symmetrically around zero.
"""

from collections.abc import Iterator

import onnx

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.block_forms import FinerFile, finer_files
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.quantization.attribution import Study

TITLE = "the scheme has too few levels where the values are"
PRICE = -16
_FEW = 3
"""Matrices that are named."""


def test(workbench: Workbench) -> Tried | str:
    """Blocks of more bits, asymmetric ranges, a scale for each filter, float weights: the first that mends names what is lacking."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    likely: list[Tried] = []
    for model, what, fix in _trials(workbench, study):
        tried = quantized_study.granted(workbench, study, model, what=what, fix=fix)
        if isinstance(tried, str):
            continue
        if tried.proven:
            return tried
        likely.append(tried)
    if not likely:
        return "neither asymmetric ranges nor finer weights make the difference"
    return min(likely, key=lambda tried: tried.error_left or 0.0)


def _trials(
    workbench: Workbench, study: Study
) -> Iterator[tuple[onnx.ModelProto | None, str, str]]:
    """Other graphs, what each has, and how to come by it."""
    for finer in finer_files(workbench, study):
        names = _names(finer)
        how = (
            f"store {names} in 8 bits (+{finer.more_bytes:,} bytes), or quantize anew: --scheme w4"
        )
        yield finer.model, f"with {names} in 8 bits", how
    yield (
        study.use_asymmetric_ranges(),
        "with all levels where the data is (asymmetric)",
        "quantize activations asymmetrically: --scheme u8s8",
    )
    yield (
        study.use_filter_scales(),
        "with a scale for each filter of the weights",
        "quantize weights per channel: --scheme u8s8",
    )
    yield (
        study.restore_float_weights(),
        "with the float weights",
        "give the weights more bits: --scheme u8s8, or w8",
    )


def _names(finer: FinerFile) -> str:
    shown = ", ".join(f"`{name}`" for name in finer.names[:_FEW])
    rest = len(finer.names) - _FEW
    return f"{shown} and {rest} more" if rest > 0 else shown
