"""Load a reference: a module in memory, `file.py:factory`, `package.module:factory`, .pt2, TorchScript, .onnx, a Hugging Face folder."""

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import SubjectError
from onnxproof.options import Input
from onnxproof.preprocessing import compose
from onnxproof.preprocessing.calling import Preprocessing
from onnxproof.reference import (
    archives,
    checkpoint,
    factory,
    loaders,
    missing_example,
    pretrained,
    replay,
)
from onnxproof.reference.kinds import (
    is_model,
    is_module,
    is_reference,
    name_of,
    plain_arguments,
    takes_arrays,
)
from onnxproof.reference.user_code import function as function
from onnxproof.results import Finding
from onnxproof.system import user_files

_FORMS = "an nn.Module, an estimator, a function of arrays, `file.py:factory`, `package.module:Class`, a .pt2, a TorchScript file, an .onnx, a Hugging Face folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be proven: a module, how it is called, and which of its dims may vary. A factory may return one."""

    module: Any = None
    example_inputs: Any = None
    dynamic_shapes: Any = None
    data: Any = None
    preprocess: Any = None
    """Raw inputs to the module's own: `example_inputs` are raw then, and the file takes raw inputs too (a pipeline apart)."""
    name: str = ""
    onnx: Path | None = None
    """Set instead of `module` when the reference is itself an ONNX file."""
    origin: str = ""
    """The words that load it again, for the line that replays a case; empty for a module in memory."""
    raw: Any = field(default=None, repr=False)
    """The raw example, where the preprocessing is verified beside the file instead of inside of it."""
    args: tuple[Any, ...] = field(default=(), repr=False)
    """How it is called, for a module that takes both: give `args` and `kwargs` instead of `example_inputs`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    source: str | Path | None = None
    """A path or a factory's name instead of a module, as `verify` takes it."""
    trust_remote_code: bool = False
    """Whether the code that a Hugging Face folder brings may be run; it is refused otherwise, and nobody is asked."""
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Keyword arguments of the factory or class that `source` names; `{"encoder.hidden": 64}` sets one of a section of `config`."""
    config: str | Path | None = None
    """A YAML or JSON file with keyword arguments, or a section of it: `config.yaml:model`."""
    weights: str | Path | None = None
    """A checkpoint for what `source` builds; `ckpt.pt:ema` names one dict of it."""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    """What inputs are, by name: the values that they may have, and their dtype and shape where there is no example."""
    dims: Mapping[str, str] = field(default_factory=dict)
    """Sizes that open dims may have: `1..512`, `8..512:8`, `128,256`, or how one follows from others: `past + seq`."""
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    """What was concluded while it was loaded."""
    arrays: bool = False
    """Whether `module` takes arrays: an estimator, a function of numpy, a model of another framework."""


def load(
    source: Any,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    require_example: bool = True,
    inside: bool = True,
    otherwise: Callable[[], Any] | None = None,
) -> Subject:
    """A subject from any of the forms; what the caller passes wins over what the factory returned.

    `inside` says whether its preprocessing, if it has one, is a part of the module; `otherwise` makes an example for
    TorchScript, which can't be handed one from the command line.
    """
    loaded = _load(source)
    changes: dict[str, Any] = {"example_inputs": example_inputs}
    changes |= {"dynamic_shapes": dynamic_shapes, "data": data}
    loaded = replace(loaded, **{name: v for name, v in changes.items() if v is not None})
    loaded = _with_example(loaded, otherwise)
    compared = otherwise is not None  # with a file; what is exported is PyTorch's
    loaded = replace(
        loaded,
        arrays=loaded.arrays
        or takes_arrays(loaded.module, loaded.example_inputs, functions=compared),
    )
    args, kwargs = _call_arguments(loaded, loaded.example_inputs)
    loaded = replace(loaded, args=args, kwargs=kwargs, raw=None)
    if require_example:
        _check_example(loaded)
    if loaded.preprocess is None:
        return loaded
    return _compose(loaded) if inside else _preprocess(loaded)


def _with_example(subject: Subject, otherwise: Callable[[], Any] | None) -> Subject:
    """The subject with an example, where one can be had: of the declared inputs, of a Lightning module, or of the file's own inputs."""
    if subject.example_inputs is not None or subject.args or subject.kwargs:
        return subject
    if subject.onnx is not None:
        example = missing_example.of_file(subject.onnx, subject.inputs)
        return replace(subject, example_inputs=example)
    missing_example.check_names(subject.module, subject.inputs)
    example = missing_example.of_declared(subject.module, subject.inputs)
    if example is None:
        example = getattr(subject.module, "example_input_array", None)
    if example is None and otherwise is not None:
        example = missing_example.of_call(subject.module, otherwise(), subject.inputs)
    return replace(subject, example_inputs=example)


def _check_example(subject: Subject) -> None:
    if subject.onnx is not None or subject.example_inputs is not None:
        return
    if not subject.args and not subject.kwargs:
        raise SubjectError(
            "no-example",
            f"`{subject.name}` needs example inputs to be called with",
            where=subject.origin,
            help="say what they are, as in `--input x:float32[2,3,224,224]`, pass example_inputs, "
            "or let the factory return (module, example_inputs)",
        )


def _compose(subject: Subject) -> Subject:
    """The preprocessing as a part of the module; without inputs there is nothing to preprocess."""
    module = subject.module
    if subject.args or subject.kwargs:
        module = compose(module, subject.preprocess)
    return replace(subject, module=module, preprocess=None)


def _preprocess(subject: Subject) -> Subject:
    """The module's own inputs, made of the raw ones, which are kept beside them."""
    if subject.kwargs:
        example = subject.preprocess(*subject.args, **subject.kwargs)
    else:
        example = Preprocessing(subject.preprocess)(subject.args, "the example")
    args, kwargs = arguments(example)
    return replace(
        subject,
        raw=subject.example_inputs,
        example_inputs=example,
        args=args,
        kwargs=kwargs,
    )


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword inputs, with numpy arrays made tensors: a tuple, a dict of keywords, or one value."""
    if example is None:
        return (), {}
    if isinstance(example, Mapping):
        return (), {str(name): _tensors(value) for name, value in example.items()}
    if isinstance(example, list | tuple):
        return tuple(_tensors(value) for value in example), {}
    return (_tensors(example),), {}


def _call_arguments(subject: Subject, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example as the arguments of a call; a subject without one may say them itself."""
    if subject.onnx is not None or subject.arrays:
        return plain_arguments(example)
    if example is not None:
        return arguments(example)
    return arguments(subject.args)[0], arguments(subject.kwargs)[1]


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        from onnxproof.reference.torch_session import from_numpy

        return from_numpy(value)
    if isinstance(value, Mapping) and type(value) is dict:
        return {name: _tensors(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_tensors(item) for item in value)
    return value


_OVERRIDES = (
    "example_inputs",
    "dynamic_shapes",
    "data",
    "preprocess",
    "name",
    "args",
    "kwargs",
    "inputs",
    "dims",
)
"""Fields of a subject that win over what its source gives."""


def _from_source(subject: Subject) -> Subject:
    """What the source gives, with whatever else the subject says."""
    loaded = _load_words(subject.source, subject)
    overrides: dict[str, Any] = {}
    for name in _OVERRIDES:
        value = getattr(subject, name)
        if value is not None and not _is_empty(value):
            overrides[name] = value
    return replace(loaded, **overrides, origin=loaded.origin + replay.options(subject))


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | tuple | Mapping) and not value


def _load(source: Any) -> Subject:
    if not isinstance(source, Subject):
        return _load_words(source, Subject())
    if source.source is not None:
        return _from_source(source)
    if source.weights is not None or source.config is not None or source.arguments:
        raise SubjectError(
            "no-source",
            "`weights`, `config` and `arguments` are for what `source` names",
            help="Subject(source='package.module:Class', weights=...), or load the weights yourself",
        )
    return source


def _load_words(source: Any, how: Subject) -> Subject:
    """What a path or a name stands for; `how` says with which arguments and weights it is built."""
    if not isinstance(source, str | Path) and (callable(source) or loaders.is_special(source)):
        return Subject(module=source, name=name_of(source))
    if not isinstance(source, str | Path):
        raise SubjectError(
            "unknown-subject",
            f"a {type(source).__name__} is not something onnxproof can load",
            help=f"give {_FORMS}",
        )
    text = str(source)
    path = Path(text)
    if ":" in text and path.suffix not in _FILES and not path.exists():
        return _factory(text, how)
    if how.weights is not None or how.config is not None or how.arguments:
        raise SubjectError(
            "nothing-to-build",
            f"`{text}` is not built by code, so it takes no arguments and no weights",
            help="`--weights`, `--config` and `--set` are for `file.py:factory` and `package.module:Class`",
        )
    return _load_file(path, how)


_FILES = (".onnx", ".pt2", ".pt", ".pth", ".ts", ".torchscript", ".jit", ".xml", ".tflite")


def _load_file(path: Path, how: Subject) -> Subject:
    if path.suffix == ".onnx":
        return Subject(onnx=path, name=path.name, origin=str(path))
    if path.is_dir():
        return _hugging_face(path, trust_remote_code=how.trust_remote_code)
    if path.suffix == ".pt2":
        return _exported_program(path)
    if path.suffix in (".xml", ".tflite"):
        from onnxproof.reference.loaders import openvino, tflite

        reader = openvino if path.suffix == ".xml" else tflite
        return Subject(module=reader.read(path), name=path.name, origin=str(path), arrays=True)
    if path.suffix in _FILES:
        return _torchscript(path)
    raise SubjectError(
        "unknown-subject", f"`{path}` is not something onnxproof can load", help=f"give {_FORMS}"
    )


def _factory(text: str, how: Subject) -> Subject:
    """What a factory or class builds, with its arguments and weights."""
    built = function(text)
    name = text.rpartition(":")[2]
    stored = checkpoint.read(how.weights) if how.weights is not None else None
    notes: list[str] = []
    declared = [key for key, said in how.inputs.items() if said.shape is not None]
    if is_reference(built, declared):
        return Subject(module=built, name=name, origin=text, arrays=True)
    if callable(built) and not is_module(built):
        arguments, notes = factory.keyword_arguments(
            built,
            name,
            config=how.config,
            settings=how.arguments,
            stored=stored.arguments if stored is not None else {},
        )
        is_class = isinstance(built, type)
        built = factory.build(built, name, arguments, text)
        if is_class and stored is None:
            notes.append(f"`{name}` has random weights; `--weights` loads a checkpoint")
    subject = _from_factory(built, name, text)
    findings = [Finding(code="built", what=note) for note in notes]
    if stored is not None:
        findings.append(checkpoint.load_into(subject.module, stored, name))
    return replace(subject, findings=tuple(findings))


def _from_factory(built: Any, name: str, origin: str) -> Subject:
    if isinstance(built, Subject):
        return replace(built, name=built.name or name, origin=origin)
    if isinstance(built, tuple) and len(built) == 2 and is_model(built[0]):
        return Subject(module=built[0], example_inputs=built[1], name=name, origin=origin)
    if is_model(built):
        return Subject(module=built, name=name, origin=origin)
    raise SubjectError(
        "bad-factory",
        f"`{name}()` returned a {type(built).__name__}",
        where=origin,
        help="return a module, an estimator or a function, (module, example_inputs), or an onnxproof.Subject",
    )


def _exported_program(path: Path) -> Subject:
    import torch

    with archives.plain_program(path) as plain:
        try:
            program = torch.export.load(plain)
            module = program.module()
        except Exception as why:  # torch raises several classes for a damaged archive
            raise SubjectError(
                "bad-pt2",
                f"`{path.name}` can't be read as an exported program: {why}",
                where=str(path),
            ) from why
    args, kwargs = program.example_inputs or ((), {})
    return Subject(
        module=module,
        args=tuple(args),
        kwargs=dict(kwargs),
        name=path.stem,
        origin=str(path),
    )


def _torchscript(path: Path) -> Subject:
    import torch

    if not zipfile.is_zipfile(user_files.require_regular(path, SubjectError)):
        raise archives.no_code(path)
    with archives.plain_script(path) as plain:
        try:
            module = torch.jit.load(plain, map_location="cpu")
        except RuntimeError as why:
            raise SubjectError(
                "bad-torchscript",
                f"`{path.name}` can't be read as TorchScript: {why}",
                where=str(path),
            ) from why
    archives.check_operators(module, path)
    return Subject(module=module, name=path.stem, origin=str(path))


def _hugging_face(path: Path, *, trust_remote_code: bool) -> Subject:
    model = pretrained.load(path, trust_remote_code=trust_remote_code)
    return Subject(
        module=model.module,
        example_inputs=model.example,
        dynamic_shapes=model.dims,
        name=path.name,
        origin=str(path),
    )
