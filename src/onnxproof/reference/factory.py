"""Call a factory or a class with keyword arguments: from `--set`, from a config file, and from what a checkpoint keeps beside its weights."""

import difflib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxproof.errors import SubjectError
from onnxproof.reference.user_code import user_line
from onnxproof.system import user_files

_SEED = 0
"""Of the random weights of a class that is built without a checkpoint: the same in every command."""
_PLAIN = (int, float, str, bool, "int", "float", "str", "bool")
"""Annotations of parameters that take no whole config."""
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Config(dict[str, Any]):
    """A config that can be read both ways, `config["hidden"]` and `config.hidden`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the config has no `{name}`") from None


def build(factory: Any, name: str, arguments: Mapping[str, Any], origin: str) -> Any:
    """What the factory or class returns; an error in it is told with the user's line."""
    try:
        if not isinstance(factory, type):
            return factory(**arguments)
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            return factory(**arguments)
    except Exception as why:  # the user's own code: whatever it raises is told in its words
        raise SubjectError(
            "factory-raised",
            f"`{name}({_shown(arguments)})` raised {type(why).__name__}: {why}",
            where=user_line(why, origin),
            help="call it by itself to see the whole traceback, or add --debug",
        ) from why


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}"[:60] for name, value in arguments.items())


def keyword_arguments(
    factory: Any,
    name: str,
    *,
    config: str | Path | None,
    settings: Mapping[str, Any],
    stored: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """The keyword arguments for a factory, and what was concluded to get them.

    1. The config: the whole of it, or the one section that the parameters take; a single parameter takes it as it is.
    2. `settings` win over it; `a.b=1` sets `b` of the section `a`.
    3. What is still missing is taken from what a checkpoint keeps.
    """
    parameters = _parameters(factory)
    notes: list[str] = []
    content = read_config(config) if config is not None else {}
    for key, value in settings.items():  # 2
        _set(content, key.split("."), value)
    if config is None:
        arguments = dict(content)
    else:
        arguments, section = _section_for(parameters, content, str(config))  # 1
        if section:
            notes.append(f"the arguments are the section `{section}` of `{config}`")
    missing = [key for key in _required(parameters) if key not in arguments]
    taken = {key: stored[key] for key in missing if key in stored}  # 3
    if taken:
        notes.append(f"the checkpoint says {_shown(taken)}")
    arguments |= taken
    _check(parameters, arguments, name)
    return arguments, notes


def _parameters(factory: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError):  # written in C, or with a signature that lies
        return {}


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    return [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIABLE
    ]


def _takes(parameters: Mapping[str, inspect.Parameter], keys: Sequence[str]) -> bool:
    kinds = [parameter.kind for parameter in parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return True
    return set(keys) <= set(parameters)


def takes(function: Any, names: Sequence[str]) -> bool:
    """Whether these are parameters of a function, and all that it needs."""
    parameters = _parameters(function)
    return set(_required(parameters)) <= set(names) <= set(parameters)


def _section_for(
    parameters: Mapping[str, inspect.Parameter], content: dict[str, Any], where: str
) -> tuple[dict[str, Any], str]:
    """The arguments in a config, and the section that they stand in."""
    if _takes(parameters, list(content)):
        return content, ""
    sections = {
        key: value
        for key, value in content.items()
        if isinstance(value, dict) and value and _takes(parameters, list(value))
    }
    if len(sections) == 1:
        key, value = next(iter(sections.items()))
        return dict(value), key
    required = _required(parameters)
    if len(required) == 1 and parameters[required[0]].annotation not in _PLAIN:
        return {required[0]: _as_config(content)}, ""
    raise SubjectError(
        "config-does-not-fit",
        f"neither `{where}` nor one section of it has what is asked for",
        where=where,
        notes=[
            f"the parameters are {', '.join(parameters) or 'none'}",
            f"the config has {', '.join(map(str, content))}",
        ],
        help="name the section: `--config FILE:model`, or give the arguments by `--set NAME=VALUE`",
    )


def _as_config(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Config({str(key): _as_config(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_as_config(item) for item in value]
    return value


def _check(
    parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any], name: str
) -> None:
    if not parameters and not arguments:
        return
    unknown = [key for key in arguments if not _takes(parameters, [key])]
    if unknown:
        near = difflib.get_close_matches(unknown[0], parameters, n=1)
        advice = f"did you mean `--set {near[0]}=...`?" if near else ""
        raise SubjectError(
            "unknown-argument",
            f"`{name}` takes no argument `{unknown[0]}`",
            notes=[f"it takes {', '.join(parameters) or 'none'}"],
            help=advice,
        )
    missing = [key for key in _required(parameters) if key not in arguments]
    if missing:
        names = " and ".join(f"`{key}`" for key in missing)
        raise SubjectError(
            "missing-argument",
            f"`{name}` needs {names}",
            notes=[f"its parameters are {', '.join(parameters)}"],
            help=f"say `--set {missing[0]}=VALUE`, or give a file with `--config`; "
            f"if `{name}` is the reference itself, say what it takes: `--input {missing[0]}:float32[2,30]`",
        )


def _set(content: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    *folders, last = keys
    for key in folders:
        inner = content.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SubjectError("bad-set", f"`{key}` of `--set {'.'.join(keys)}` is no section")
        content = inner
    content[last] = value


def read_config(words: str | Path) -> dict[str, Any]:
    """A JSON or YAML file, or one section of it: `config.yaml:model.encoder`."""
    path, sections = _split_section(str(words))
    user_files.require_regular(
        path, SubjectError, most=user_files.DOCUMENT_BYTES, what="config file"
    )
    content = _parse(path)
    for section in sections:
        if not isinstance(content, dict) or section not in content:
            raise SubjectError(
                "no-section",
                f"`{path}` has no section `{section}`",
                where=str(path),
                notes=[f"it has {', '.join(map(str, content or ()))}"],
            )
        content = content[section]
    if not isinstance(content, dict):
        raise SubjectError(
            "bad-config",
            f"`{words}` holds a {type(content).__name__}, and names with values are needed",
            where=str(path),
        )
    return {str(key): value for key, value in content.items()}


def _split_section(words: str) -> tuple[Path, list[str]]:
    if Path(words).exists() or ":" not in words:
        return Path(words), []
    path, _, section = words.rpartition(":")
    return Path(path), section.split(".")


def _parse(path: Path) -> Any:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix.lower() == ".json":
        try:
            return json.loads(text)
        except ValueError as why:
            raise _unreadable(path, why) from why
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as why:
        raise SubjectError(
            "yaml-missing",
            f"reading `{path.name}` needs PyYAML",
            where=str(path),
            help="pip install pyyaml, or give the config as JSON",
        ) from why
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as why:
        raise _unreadable(path, why) from why


def _unreadable(path: Path, why: Exception) -> SubjectError:
    return SubjectError("bad-config", f"`{path.name}` can't be read: {why}", where=str(path))
