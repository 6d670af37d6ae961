"""What a quantization needs before it starts: known names, data where the scheme asks for it, and no option that would do nothing."""

from typing import Any

from onnxproof.errors import InputError, UsageError
from onnxproof.options import QuantizeOptions
from onnxproof.quantization import recipes, schemes
from onnxproof.quantization.calibration.ranges import calibrator
from onnxproof.quantization.tuning import RECIPES
from onnxproof.quantization.tuning_state import Budget

_NEEDS_NO_DATA = ("w8", "w4", "dynamic", "fp16", "bf16")
_OF_BLOCKS = ("max-kl", "max-perplexity", "bits", "max-size")
"""Budgets that only weights in blocks know."""


def check(calibration: Any, evaluate: Any, options: QuantizeOptions, budget: Budget) -> None:
    """Better now than after minutes of work."""
    scheme = schemes.load(options.scheme)
    if options.target not in ("", "avx2", "vnni"):
        raise UsageError(
            "unknown-target",
            f"there is no target `{options.target}`",
            help="say avx2 or vnni, or nothing for this CPU",
        )
    if options.calibrator != "auto":
        calibrator(options.calibrator)
    for name in options.recipes or ():
        recipes.load(name)
    _refuse_idle(scheme, options, budget)
    _check_text(calibration, options)
    _check_data(calibration, evaluate, options, budget)


def _refuse_idle(scheme: Any, options: QuantizeOptions, budget: Budget) -> None:
    """No option may do nothing: those of Q/DQ and ranges, and those of weights in blocks."""
    blocks = {name: getattr(budget, name.replace("-", "_")) is not None for name in _OF_BLOCKS}
    ranges = {
        "recipe": options.recipes not in (None, (), RECIPES),
        "calibrator": options.calibrator not in ("auto", "min-max"),
        "target": bool(options.target),
    }
    idle: dict[str, bool] = {}
    if not hasattr(scheme, "search"):
        idle |= blocks
    if not hasattr(scheme, "PLAN"):
        idle |= ranges
    if not hasattr(scheme, "PLAN") and not hasattr(scheme, "search"):
        idle["exclude"] = bool(options.exclude)
    name = next((name for name, is_chosen in idle.items() if is_chosen), "")
    if name:
        others = "w4" if name in _OF_BLOCKS else "u8s8, s8s8 or a16w8"
        raise UsageError(
            "option-does-nothing",
            f"`{name}` does nothing under the scheme `{options.scheme}`",
            help=f"leave it out, or use {others}",
        )


def _check_text(calibration: Any, options: QuantizeOptions) -> None:
    if options.tokenizer is not None and options.text is None:
        raise UsageError(
            "option-does-nothing",
            "`tokenizer` does nothing without a text",
            help="give `--text FILE`, or leave it out",
        )
    if options.text is not None and calibration is not None:
        raise UsageError(
            "two-calibrations",
            "both a text and calibration data are given",
            help="leave `--text` or `--calibration` out",
        )


def _check_data(calibration: Any, evaluate: Any, options: QuantizeOptions, budget: Budget) -> None:
    has_data = calibration is not None or options.text is not None
    if not has_data and options.scheme not in _NEEDS_NO_DATA:
        raise InputError(
            "no-calibration-data",
            f"the scheme `{options.scheme}` needs calibration data",
            help="give a few hundred inputs, as they are served: "
            f"`--calibration PATH`; or use a scheme without: {', '.join(_NEEDS_NO_DATA)}",
        )
    if budget.max_drop is not None and evaluate is None:
        raise UsageError(
            "no-evaluator",
            "a largest drop needs a metric to drop",
            help="give `--evaluate eval.py:accuracy`, or leave `--max-drop` out",
        )
    if budget.asks_losses and not has_data:
        raise UsageError(
            "no-texts",
            "losses of text need texts to be measured on",
            help="give `--text FILE`, or token ids with `--calibration tokens.npz`",
        )
