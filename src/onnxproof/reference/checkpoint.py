"""Weights of a checkpoint in a module: the state dict is looked for, and its names are brought to the module's.

Training frameworks wrap a state dict in other dicts (`state_dict`, `model`), and its names in prefixes (`module.` of data
parallelism, `model.` of Lightning, `_orig_mod.` of torch.compile). The way in which most weights fit by name and shape is taken,
and told; what is missing, left over, or of another shape is an error. Nothing but tensors is unpickled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxproof.errors import SubjectError
from onnxproof.results import Finding
from onnxproof.system import user_files

_DEEPEST = 3
"""Dicts in dicts that are looked through."""
_COMPILED = "_orig_mod."
_KEPT_ARGUMENTS = ("hyper_parameters", "hparams", "model_args", "config")
"""Where training frameworks keep the arguments that a model was built with."""
_UNTRACKED = "num_batches_tracked"
"""Not in checkpoints older than PyTorch 0.4.1; torch fills it in."""
_EXTRA = "_extra_state"
"""What a module keeps beside its weights; it is no tensor."""
_FEW = 4
"""Names that one message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a file of weights holds."""

    path: Path
    content: Any
    section: str = ""
    """The dict in it that the user named."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the model was built with, where the checkpoint keeps them."""
        for name in _KEPT_ARGUMENTS:
            kept = self.content.get(name) if isinstance(self.content, Mapping) else None
            if isinstance(kept, Mapping):
                return {str(key): value for key, value in kept.items()}
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """One way to read a checkpoint: which dict, without which prefix, and the weights by the module's names."""

    section: str
    prefix: str
    state: Mapping[str, Any]
    outside: tuple[str, ...]
    """Names that don't have the prefix: weights of something else."""
    matched: int
    compiled: bool = False
    """Whether names had the mark of torch.compile, which was taken off."""


def read(words: str | Path) -> Checkpoint:
    """The file's content, tensors on the CPU; `ckpt.pt:ema` names one dict of it."""
    path, section = Path(words), ""
    if not path.exists() and ":" in str(words):
        name, _, section = str(words).rpartition(":")
        path = Path(name)
    user_files.require_regular(path, SubjectError, what="checkpoint")
    return Checkpoint(path=path, content=_content(path), section=section)


def _content(path: Path) -> Any:
    import pickle

    import torch

    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as why:
        reason = str(why).partition("\n")[0]
        raise SubjectError(
            "weights-pickle",
            f"`{path.name}` holds Python objects beside tensors, and these are not loaded: {reason}",
            where=str(path),
            help="save the weights alone: torch.save(model.state_dict(), PATH)",
        ) from why
    except Exception as why:  # damaged files raise half a dozen classes
        raise SubjectError(
            "bad-weights", f"`{path.name}` can't be read as a checkpoint: {why}", where=str(path)
        ) from why


def load_into(module: Any, checkpoint: Checkpoint, name: str) -> Finding:
    """Put the weights into the module, and say which were taken and how.

    Raises:
        SubjectError: `no-weights` where nothing fits, `weights-mismatch` where not everything does.
    """
    wanted = module.state_dict()
    fits = list(_ways(checkpoint, wanted))
    best = max(fits, key=lambda fit: fit.matched, default=None)
    if best is None or not best.matched:
        raise _no_weights(checkpoint, wanted, name)
    _require_all(best, wanted, checkpoint.path, name)
    module.load_state_dict(dict(best.state), strict=False)
    return Finding(code="weights", what=_summary(best, fits, checkpoint.path, wanted))


def _ways(checkpoint: Checkpoint, wanted: Mapping[str, Any]) -> Iterator[_Fit]:
    """Every dict of the checkpoint with every prefix that may be taken off or put on; the plainest come first."""
    for section, state in _state_dicts(checkpoint.content, ""):
        if checkpoint.section and section != checkpoint.section:
            continue
        plain = {key.replace(_COMPILED, ""): value for key, value in state.items()}
        compiled = plain.keys() != state.keys()
        for prefix in _prefixes(plain, wanted):
            yield replace(_fit(section, prefix, plain, wanted), compiled=compiled)


def _state_dicts(content: Any, path: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """The dicts that hold tensors by name, with the path to each."""
    if not isinstance(content, Mapping) or depth > _DEEPEST:
        return
    tensors = {
        key: value
        for key, value in content.items()
        if isinstance(key, str) and hasattr(value, "shape")
    }
    if tensors:
        yield path, tensors
    for key, value in content.items():
        yield from _state_dicts(value, f"{path}.{key}".lstrip("."), depth + 1)


def _prefixes(state: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Prefixes by which one of the first names of the module is one of the checkpoint's; `+` marks one to put on."""
    prefixes = [""]
    for own in list(wanted)[:_FEW]:
        prefixes += [key.removesuffix(own) for key in state if key.endswith(f".{own}")]
    for stored in list(state)[:_FEW]:
        prefixes += ["+" + key.removesuffix(stored) for key in wanted if key.endswith(f".{stored}")]
    return list(dict.fromkeys(prefixes))


def _fit(section: str, prefix: str, state: Mapping[str, Any], wanted: Mapping[str, Any]) -> _Fit:
    if prefix.startswith("+"):
        renamed = {prefix[1:] + key: value for key, value in state.items()}
        outside: tuple[str, ...] = ()
    else:
        renamed = {
            key.removeprefix(prefix): value
            for key, value in state.items()
            if key.startswith(prefix)
        }
        outside = tuple(key for key in state if not key.startswith(prefix))
    same = [
        key
        for key, value in renamed.items()
        if key in wanted and getattr(wanted[key], "shape", None) == value.shape
    ]
    return _Fit(section=section, prefix=prefix, state=renamed, outside=outside, matched=len(same))


def _require_all(fit: _Fit, wanted: Mapping[str, Any], path: Path, name: str) -> None:
    missing = [
        key for key in wanted if key not in fit.state and not key.endswith((_UNTRACKED, _EXTRA))
    ]
    unexpected = [key for key in fit.state if key not in wanted]
    common = {key: list(wanted[key].shape) for key in fit.state if key in wanted}
    reshaped = [
        f"{key} is {list(fit.state[key].shape)} and should be {shape}"
        for key, shape in common.items()
        if list(fit.state[key].shape) != shape
    ]
    notes = _notes(
        {
            "missing in the checkpoint": missing,
            "not in the module": unexpected,
            "of another shape": reshaped,
        }
    )
    if notes:
        raise SubjectError(
            "weights-mismatch",
            f"`{path.name}` does not fit `{name}`: {len(missing)} weights are missing, "
            f"{len(unexpected)} are unexpected, {len(reshaped)} have another shape",
            where=str(path),
            notes=notes,
            help="build the module as it was trained (`--set`, `--config`), or load the weights in a factory",
        )


def _notes(faults: Mapping[str, list[str]]) -> list[str]:
    return [f"{words}: {_listed(keys)}" for words, keys in faults.items() if keys]


def _no_weights(checkpoint: Checkpoint, wanted: Mapping[str, Any], name: str) -> SubjectError:
    content = checkpoint.content
    sections = [path or "the file itself" for path, _ in _state_dicts(content, "")]
    held = list(content) if isinstance(content, Mapping) else [type(content).__name__]
    notes = [
        f"the checkpoint holds {_listed(held)}",
        f"tensors are in {_listed(sections) or 'none of it'}",
        f"the module has {_listed(list(wanted))}",
    ]
    what = f"no weight of `{checkpoint.path.name}` fits `{name}` by name and shape"
    if checkpoint.section and checkpoint.section not in sections:
        what = f"`{checkpoint.path.name}` has no dict of tensors `{checkpoint.section}`"
    return SubjectError("no-weights", what, where=str(checkpoint.path), notes=notes)


def _listed(names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:_FEW])
    if len(names) > _FEW:
        shown += f" and {len(names) - _FEW} more"
    return shown


def _summary(best: _Fit, fits: list[_Fit], path: Path, wanted: Mapping[str, Any]) -> str:
    """One sentence on what was loaded, and on what else could have been."""
    words = f"{best.matched} weights of `{path.name}`"
    if best.section:
        words += f", from `{best.section}`"
    if best.compiled:
        words += f", without `{_COMPILED}`"
    if best.prefix.startswith("+"):
        words += f", with the prefix `{best.prefix[1:]}` put on"
    elif best.prefix:
        words += f", without the prefix `{best.prefix}`"
    if best.outside:
        words += f"; left out are {_listed(list(best.outside))}"
    words += _casts(best, wanted)
    others = {fit.section for fit in fits if fit.matched == best.matched} - {best.section}
    if others:
        other = sorted(others)[0]
        words += f"; `{other}` fits as well (`--weights {path.name}:{other}`)"
    return words


def _casts(fit: _Fit, wanted: Mapping[str, Any]) -> str:
    """Dtypes of the checkpoint that the module does not have."""
    casts = {
        f"{fit.state[key].dtype} as {value.dtype}".replace("torch.", "")
        for key, value in wanted.items()
        if key in fit.state and fit.state[key].dtype != value.dtype
    }
    if not casts:
        return ""
    return f"; {_listed(sorted(casts))}"
