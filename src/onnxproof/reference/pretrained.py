"""A Hugging Face folder as a reference: its configuration is read first, its weights from safetensors alone, and its code only where that is asked for."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.errors import SubjectError
from onnxproof.system.user_files import is_regular, readable_bytes, require_regular

_MOST_CONFIG = 16 << 20
"""Bytes of a configuration. Not measured: those of published models have a few kB."""
_MOST_INDEX = 1 << 28
"""Bytes of an index of weights. Not measured."""
_SAFETENSORS = re.compile(r"[\w\-.]+\.safetensors")
_DEPTH = re.compile(r"(n|num)?_?(\w*_)?(layers?|blocks?|depth|depths)(_\w+)?")
_DEEPEST = 4096
"""Layers, blocks, depth: the deepest published models have a few hundred, and building a module of a billion layers never ends."""
_SAVE = "save it with `model.save_pretrained(folder)`: weights are read from safetensors alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """A module that transformers built, an example for it, and the dims that may vary."""

    module: Any
    example: dict[str, Any]
    dims: dict[str, Any]


def load(folder: Path, *, trust_remote_code: bool) -> Pretrained:
    """The module of a folder, called without a cache: each call is given the whole text."""
    module = load_module(folder, trust_remote_code=trust_remote_code)
    return _example(module, module.config)


def load_module(folder: Path, *, trust_remote_code: bool) -> Any:
    """Build the module of a folder; code that lies in it is run only with `trust_remote_code`.

    Raises:
        SubjectError: `not-a-model-folder`, `bad-config`, `remote-code`, `unknown-architecture`, `bad-model-folder` or `transformers-missing`.
    """
    settings = _settings(folder)
    remote = _names_code(settings)
    if remote and not trust_remote_code:
        raise SubjectError(
            "remote-code",
            f"`{folder.name}` brings code of its own, and that is not run unasked",
            where=str(folder),
            notes=[f"its config.json names {remote}"],
            help="read the code, then say `--trust-remote-code`, or Subject(source=..., trust_remote_code=True)",
        )
    _check_files(folder)
    try:
        import transformers
    except ImportError as why:
        raise SubjectError(
            "transformers-missing",
            "a Hugging Face folder needs the package transformers",
            where=str(folder),
            help="pip install 'onnxproof[transformers]'",
        ) from why
    try:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as why:  # a value of the wrong type fails anywhere in a configuration's class
        raise SubjectError(
            "bad-config",
            f"transformers can't read the config.json of `{folder.name}`: {why}",
            where=str(folder / "config.json"),
        ) from why
    kind = _model_class(transformers, settings, folder, remote)
    options: dict[str, Any] = {
        "local_files_only": True,
        "use_safetensors": True,
        "attn_implementation": "eager",
    }
    if remote:
        options["trust_remote_code"] = True
    try:
        if not remote:
            _check_size(kind, config, folder)
        return kind.from_pretrained(folder, **options).eval()
    except SubjectError:
        raise
    except Exception as why:  # the same, for a module's class
        raise SubjectError(
            "bad-model-folder",
            f"transformers can't load `{folder.name}`: {why}",
            where=str(folder),
            help=_SAVE,
        ) from why


def _settings(folder: Path) -> dict[str, Any]:
    """What config.json says, if it is an object with plain fields."""
    path = folder / "config.json"
    if not path.is_file():
        if path.exists():
            require_regular(path, SubjectError)
        raise SubjectError(
            "not-a-model-folder",
            f"`{folder}` has no config.json",
            where=str(folder),
            help="give a folder that `model.save_pretrained(folder)` wrote",
        )
    try:
        settings = json.loads(
            require_regular(path, SubjectError, most=_MOST_CONFIG).read_text(encoding="utf-8")
        )
    except (ValueError, RecursionError) as why:
        raise SubjectError(
            "bad-config", f"the config.json of `{folder.name}` is no JSON: {why}", where=str(path)
        ) from why
    if not isinstance(settings, dict):
        raise SubjectError(
            "bad-config",
            f"the config.json of `{folder.name}` is a {type(settings).__name__}, and an object is needed",
            where=str(path),
        )
    for name, value in settings.items():
        if isinstance(value, int) and value > _DEEPEST and _DEPTH.fullmatch(name):
            raise SubjectError(
                "bad-config",
                f"the config.json of `{folder.name}` asks for {value:,} of `{name}`",
                where=str(path),
                help=f"at most {_DEEPEST:,} are built",
            )
    return settings


def _names_code(settings: Any) -> str:
    """The files of Python that a configuration names, in itself or in a part of it."""
    if isinstance(settings, list):
        return next(filter(None, map(_names_code, settings)), "")
    if not isinstance(settings, dict):
        return ""
    named = settings.get("auto_map") or settings.get("custom_pipelines")
    if isinstance(named, dict) and named:
        named = sorted(named.values(), key=str)
    if named:
        return str(named)[:200]
    return next(filter(None, map(_names_code, settings.values())), "")


def _check_files(folder: Path) -> None:
    """Regular files alone, and an index that names nothing but safetensors of this folder."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir() and path.exists() and not is_regular(path):
            require_regular(path, SubjectError)
    index = folder / "model.safetensors.index.json"
    if not is_regular(index):
        return
    try:
        text = require_regular(index, SubjectError, most=_MOST_INDEX).read_text(encoding="utf-8")
        names = {str(name) for name in set(json.loads(text)["weight_map"].values())}
        odd = sorted(name for name in names if not _SAFETENSORS.fullmatch(name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as why:
        raise SubjectError(
            "bad-model-folder",
            f"the index of `{folder.name}` is damaged: {why}",
            where=str(index),
            help=_SAVE,
        ) from why
    if odd:
        raise SubjectError(
            "bad-model-folder",
            f"the index of `{folder.name}` names `{odd[0]}`, which is no safetensors file of this folder",
            where=str(index),
            help=_SAVE,
        )


def _model_class(
    transformers: Any,
    settings: dict[str, Any],
    folder: Path,
    remote: str,
) -> Any:
    """The class of the module: one of transformers' own models, or the one that the folder's code maps."""
    names = settings.get("architectures") or []
    where = str(folder / "config.json")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SubjectError(
            "bad-config",
            f"`architectures` of `{folder.name}` is no list of names: {str(names)[:80]}",
            where=where,
        )
    if remote:
        return _remote_class(transformers, settings.get("auto_map"), names)
    if not names:
        return transformers.AutoModel
    for name in names:
        if not name.isidentifier():
            continue
        kind = getattr(transformers, name, None)
        if _is_model_class(transformers, kind):
            return kind
    raise SubjectError(
        "unknown-architecture",
        f"`{names[0]}` is not a model of transformers {transformers.__version__}",
        where=where,
        help="install the version that the folder was saved with, or write a factory: `file.py:factory`",
    )


def _remote_class(transformers: Any, auto_map: Any, names: list[str]) -> Any:
    """The automatic class that maps the first architecture to the folder's code, or else the first that maps any."""
    mapped: dict[str, Any] = auto_map if isinstance(auto_map, dict) else {}
    keys = [key for key in mapped if key.startswith("AutoModel")]
    best = [key for key in keys if names and str(mapped[key]).endswith(f".{names[0]}")]
    chosen = (best or keys or ["AutoModel"])[0]
    return getattr(transformers, chosen, transformers.AutoModel)


def _is_model_class(transformers: Any, kind: Any) -> bool:
    base = transformers.PreTrainedModel
    return isinstance(kind, type) and issubclass(kind, base) and kind is not base


def _check_size(kind: Any, config: Any, folder: Path) -> None:
    """Build the module without memory first: what its sizes ask for must fit."""
    import torch

    if not hasattr(kind, "_from_config"):
        return
    with torch.device("meta"):
        skeleton = kind._from_config(config)
    needed = sum(
        tensor.numel() * tensor.element_size()
        for tensor in (*skeleton.parameters(), *skeleton.buffers())
    )
    if needed > readable_bytes():
        raise SubjectError(
            "model-too-large",
            f"`{folder.name}` needs {needed:,} bytes for its weights, and {readable_bytes():,} fit into memory",
            where=str(folder / "config.json"),
        )


def _example(module: Any, config: Any) -> Pretrained:
    import torch

    if hasattr(config, "use_cache"):
        # A cache object among the outputs is not a tensor anyone asked for.
        module.config.use_cache = False
    example: dict[str, Any] = {
        name: value
        for name, value in module.dummy_inputs.items()
        if isinstance(value, torch.Tensor)
    }
    dims: dict[str, Any] = {name: {0: "batch"} for name in example}
    if "input_ids" in example:
        vocabulary = int(getattr(config, "vocab_size", 100))
        ids = torch.arange(2 * 8).reshape(2, 8) % vocabulary
        example = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        dims = {name: {0: "batch", 1: "sequence"} for name in example}
    if getattr(config, "is_encoder_decoder", False):
        example["decoder_input_ids"] = _target_ids(example, config)
        dims["decoder_input_ids"] = {0: "batch", 1: "target"}
    return Pretrained(module=module, example=example, dims=dims)


def _target_ids(example: dict[str, Any], config: Any) -> Any:
    """Five ids for a decoder, in as many rows as its encoder gets."""
    import torch

    rows = next((len(value) for value in example.values()), 1)
    vocabulary = int(getattr(config, "vocab_size", 100))
    return torch.arange(1, 1 + rows * 5).reshape(rows, 5) % vocabulary
