"""The arguments of the public functions in words, each with an example: for `help()` and for the page of the Python API."""

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, get_args, get_type_hints

from onnxproof.report.progress import in_notebooks

Function = TypeVar("Function", bound=Callable[..., object])
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Argument:
    """What an argument means, and how it is written."""

    meaning: str
    example: str


ARGUMENTS: Mapping[str, Argument] = {
    "model": Argument(
        "the reference: a module, `file.py:factory`, a .pt2, TorchScript, a Hugging Face folder, an .onnx file, or a `Subject`",
        'model="model.py:build"',
    ),
    "onnx": Argument("the ONNX file that should match it", 'onnx="model.onnx"'),
    "first": Argument("the ONNX file that is the reference", 'first="before.onnx"'),
    "second": Argument("the ONNX file that should match it", 'second="after.onnx"'),
    "path": Argument(
        "where the ONNX file is written; it appears whole or not at all", 'path="model.onnx"'
    ),
    "inspect.path": Argument("the ONNX file", 'path="model.onnx"'),
    "reference": Argument(
        "a module, or any other reference, whose weights are counted beside the file's",
        'reference="model.py:build"',
    ),
    "output": Argument(
        "where the mended file is written, if it is faithful or better; None writes none",
        'output="fixed.onnx"',
    ),
    "example_inputs": Argument(
        "what the module is called with: a tuple, a dict of keyword inputs, or one tensor; a factory may return it beside the module",
        "example_inputs=(torch.randn(4, 16),)",
    ),
    "dynamic_shapes": Argument(
        "dims that may vary, as `torch.onnx.export` takes them; without it, those that the file leaves open",
        'dynamic_shapes={"x": {0: "batch"}}',
    ),
    "export.dynamic_shapes": Argument(
        "dims that may vary, as `torch.onnx.export` takes them; without it, every dim that can vary does",
        'dynamic_shapes={"x": {0: "batch"}}',
    ),
    "data": Argument(
        "your own inputs: a .npz, .npy or .safetensors, a folder of them, a dict of arrays, or an iterable of inputs such as a DataLoader",
        'data="test.npz"',
    ),
    "calibration": Argument(
        "what a quantized file is, or was, calibrated on; it is given as `data` is, or is a folder of images",
        'calibration="calib.npz"',
    ),
    "pipeline": Argument(
        "the deployment's own preprocessing, compared with `Subject(preprocess=...)` on raw inputs; the file takes what it makes",
        'pipeline="deploy.py:preprocess"',
    ),
    "progress": Argument(
        "called with a `Progress` before each case and each step; a notebook shows a bar where it is left out",
        "progress=lambda state: print(state.case)",
    ),
    "opset": Argument("the opset of the file; the newest that the backends read", "opset=18"),
    "options": Argument(
        "what else an export may be asked for: `ExportOptions`",
        'options=ExportOptions(precision="fp16")',
    ),
    "evaluate": Argument(
        "what decides: a function of `predict`, `file.py:function`, or (inputs, labels)",
        'evaluate="eval.py:accuracy"',
    ),
    "budget": Argument(
        "what it may cost: a `Budget`, or the largest drop of the metric as a number",
        "budget=0.005",
    ),
    "backends": Argument(
        "the runtimes that the file is run on, each with its options",
        'backends=("ort", "ort:disabled")',
    ),
    "policy": Argument("what counts as faithful: a `Policy`", "policy=Policy(strict=True)"),
    "budget_s": Argument("seconds for the cases and the explanation together", "budget_s=20"),
    "seed": Argument("the same seed gives the same cases", "seed=7"),
    "explain": Argument(
        "look for the node and the cause where the verdict is not FAITHFUL", "explain=False"
    ),
    "only": Argument(
        "the cases to run, by name; `dim=size` is made where no case has that size",
        'only=("batch=1", "batch=128")',
    ),
    "serving": Argument(
        "how runtimes are run: in processes of their own, with limits of time and memory",
        "serving=Serving(memory_gb=4)",
    ),
    "profile": Argument(
        "measure the noise along the graph of a faithful file, too", "profile=True"
    ),
    "scheme": Argument("the kind of quantization, such as u8s8, s8s8 or w4", 'scheme="s8s8"'),
    "calibrator": Argument("how ranges are chosen from the data", 'calibrator="entropy"'),
    "recipes": Argument(
        "what may be tried to keep the answers, by name; None is all of them", "recipes=()"
    ),
    "exclude": Argument("nodes that stay float, by name", 'exclude=("/head/MatMul",)'),
    "target": Argument(
        "the precision of the device that will run the file (fp16, bf16, tf32): what it would lose there decides",
        'target="fp16"',
    ),
    "quantize.target": Argument("the CPU that will serve: avx2 or vnni; this one", 'target="avx2"'),
    "loop": Argument(
        "which output is which input's next value; `auto` finds out, None leaves loops out",
        'loop={"present_k": "past_k"}',
    ),
    "steps": Argument(
        "calls after the prompt in the longest rollouts; None decides by itself", "steps=64"
    ),
    "replay.path": Argument("the bundle", 'path="model.proof"'),
    "replay.model": Argument(
        "the ONNX file; None takes the one in the bundle, or the one of its name beside it",
        'model="model.onnx"',
    ),
    "replay.policy": Argument(
        "what counts as faithful: a `Policy`, or a function of the bundle's; None judges as the bundle was judged",
        "policy=Policy(strict=True)",
    ),
    "allow_other_model": Argument(
        "replay a file with another hash; the proof says so", "allow_other_model=True"
    ),
    "verify": Argument(
        "a public key (PEM) that must have signed the bundle", 'verify="public.pem"'
    ),
    "cache": Argument(
        "a folder in which statistics and trials are kept for the next run", 'cache="quantizing"'
    ),
    "preprocess": Argument(
        "makes inputs of an image, where the calibration data is a folder of images",
        'preprocess="deploy.py:preprocess"',
    ),
    "text": Argument(
        "a text file to calibrate a language model on, in the place of `calibration`",
        'text="novel.txt"',
    ),
    "tokenizer": Argument(
        "the tokenizer.json (or its folder) for `text`; None looks beside the model",
        'tokenizer="tokenizer.json"',
    ),
    "proof_s": Argument("seconds for the proof of the quantized file", "proof_s=20"),
}
"""By name; `export.path` is the `path` of `export` alone."""


def public(function: Function) -> Function:
    """What every function of the API gets: its arguments in `help()`, and a bar in notebooks if it tells its progress."""
    documented = document(function)
    if "progress" in inspect.signature(function).parameters:
        return in_notebooks(documented)  # type: ignore[return-value]
    return documented


def document(function: Function) -> Function:
    """The function with a list of its arguments at the end of its docstring, or before its example."""
    lines = ["Args:"]
    for name, argument in arguments_of(function):
        text = f"{name}: {argument.meaning}. Example: `{argument.example}`"
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="        ")
    text, example, rest = inspect.cleandoc(function.__doc__ or "").partition("\n>>> ")
    function.__doc__ = "\n".join([text.rstrip(), "", *lines, "", f"{example.lstrip()}{rest}"])
    return function


def arguments_of(function: Callable[..., object]) -> Iterator[tuple[str, Argument]]:
    """Each argument that has a description, in the order of the signature, the fields of its keywords last."""
    for name in parameter_names(function):
        argument = ARGUMENTS.get(f"{function.__name__}.{name}", ARGUMENTS.get(name))
        if argument is not None:
            yield name, argument


def parameter_names(function: Callable[..., object]) -> list[str]:
    """The names that a caller may write, `**options: Unpack[Keywords]` as the keywords themselves."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            names.append(name)
            continue
        (keywords,) = get_args(parameter.annotation)
        names += get_type_hints(keywords)
    return names
