"""What a suite is going to run: the models that were chosen, each with its key, its limits and what it is expected to cost.

A key is the hash of all that a verdict depends on and that is known before: the manifest's words, the files that they name, versions
and the processor. What else a model's process was seen to read is in the `depends` of its last result.
"""

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxproof.suite.dependencies import WRITES, declared_files, hash_file, own_package
from onnxproof.suite.expansion import Model
from onnxproof.suite.job import Job
from onnxproof.suite.records import Result
from onnxproof.system.environment import environment

_NOT_IN_KEY = frozenset(
    {"name", "tags", "expect", "reason", "expires", "time_limit_s", "memory_gb", "gpus", "depends"}
)
"""Keys of a model that don't change its verdict; what `depends` names is hashed."""
_LIMIT_S = 600.0
"""Seconds beyond twice the budget: for loading, exporting and a last explanation. Not measured."""
_BASE = 400 << 20
"""Bytes that a model without weights takes: 222 to 375 MB for the tiny models of `make bench-suite`."""
_TIMES_WEIGHTS = 8
"""Copies of the weights at the worst: the reference, float64 (twice as large), the file, a session, a mended one. Not measured."""
_SHARES = {"budget_s": 0.5, "tuning_s": 0.25}
"""What bounds a model's work, and the share of its time limit that it may take: the rest is for loading and exporting. Not measured."""
_WEIGHTS = frozenset({".onnx", ".data", ".pt", ".pth", ".pt2", ".ckpt", ".safetensors", ".bin"})
_MARGIN = 1.15
"""Of what was measured the last time."""
_VERSIONS = ("tract", "opencv-python-headless", "transformers", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One model with its key and its job."""

    model: Model
    key: str
    job: Job
    files: Mapping[str, str] = field(default_factory=dict)
    """What it declares, with hashes; paths below the suite's folder are relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a user may say for all models of a run."""

    time_s: float | None = None
    update_baseline: bool = False


def make(
    models: Sequence[Model],
    folder: Path,
    last: Mapping[str, tuple[int, Result]],
    limits: Limits,
) -> list[Planned]:
    """A plan for these models, in their order."""
    files = Files(folder)
    versions = current_versions()
    planned = []
    for model in models:
        declared = declared_files(model.values, folder)
        hashes = files.hashes(declared)
        values = {key: v for key, v in model.values.items() if key not in _NOT_IN_KEY}
        key = digest([values, hashes, versions, _package_version(model)])
        planned.append(
            Planned(
                model=model,
                key=key,
                files=hashes,
                job=_job(model, folder, declared, last.get(model.name), limits),
            )
        )
    return planned


def digest(content: Any) -> str:
    """The sha256 of plain content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def current_versions() -> dict[str, str]:
    """Versions of this machine that may move a verdict, and its processor."""
    from importlib import metadata

    facts = environment()
    del facts["time"]
    for package in _VERSIONS:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return facts


class Files:
    """Hashes of files by their path as a key has it; each file is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._known: dict[Path, str] = {}

    def hashes(self, paths: Iterable[Path]) -> dict[str, str]:
        """By path: relative to the suite's folder where it is below."""
        return {self.name(path): self.hash(path) for path in paths}

    def name(self, path: Path) -> str:
        """The same on every machine, where the file is below the suite's folder."""
        if path.is_relative_to(self._folder):
            return path.relative_to(self._folder).as_posix()
        return str(path)

    def hash(self, path: Path) -> str:
        """Of the content, as it was when it was first asked for."""
        if path not in self._known:
            self._known[path] = hash_file(path)
        return self._known[path]

    def changed(self, depends: Mapping[str, str]) -> list[str]:
        """Those that are no longer what they were."""
        return [name for name, was in depends.items() if self.hash(self._folder / name) != was]


def reason_to_run(
    item: Planned,
    last: tuple[int, Result] | None,
    files: Files,
    versions_then: Mapping[str, str],
) -> str:
    """What changed since the last result of a model; empty where nothing did."""
    if last is None:
        return "it has no result yet"
    _, result = last
    if result.verdict == "error":
        return "it ended in an error the last time"
    changed = files.changed(result.depends)
    if changed:
        others = "".join(f" and {len(changed) - 1} more" for _ in changed[1:2])
        return f"`{changed[0]}`{others} changed"
    if result.key != item.key:
        return _key_change(versions_then)
    output = item.model.values.get("file")
    writes = item.model.do in WRITES and output is not None
    if writes and not (Path(item.job.folder) / str(output)).exists():
        return f"`{output}` is gone"
    return ""


def _key_change(versions_then: Mapping[str, str]) -> str:
    now = current_versions()
    moved = [
        f"{name} {versions_then.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in sorted(now.keys() | versions_then.keys())
        if now.get(name) != versions_then.get(name)
    ]
    if moved:
        return ", ".join(moved)
    return "the manifest says something else, or names other files"


def _job(
    model: Model,
    folder: Path,
    declared: Sequence[Path],
    last: tuple[int, Result] | None,
    limits: Limits,
) -> Job:
    values = model.values
    limit_s = values.get("time_limit_s", _LIMIT_S + 2 * values.get("budget_s", 60.0))
    if limits.time_s is not None:
        limit_s = min(limit_s, limits.time_s) if "time_limit_s" in values else limits.time_s
    memory, seconds = _expected_costs(declared, last)
    return Job(
        name=model.name,
        values=_within(_plain(values), limit_s),
        folder=str(folder),
        limit_s=limit_s,
        memory=int(values.get("memory_gb", 0) * 1e9),
        cores=values.get("cores", 1),
        gpus=values.get("gpus", 0.0),
        expected_memory=memory,
        expected_s=seconds,
        update_baseline=limits.update_baseline,
        files=tuple(map(str, declared)),
    )


def _within(values: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """The values with budgets that end before the time limit does: a verdict on fewer cases says more than none."""
    from onnxproof.suite.doing import usual_seconds

    usual = usual_seconds(str(values.get("do", "verify")))
    for name, share in _SHARES.items():
        seconds = values.get(name, usual.get(name, 0.0))
        if seconds > share * limit_s:
            values[name] = share * limit_s
    return values


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold: the days of an expected verdict are no business of a worker."""
    kept = {key: v for key, v in values.items() if key not in ("expect", "reason", "expires")}
    plain: dict[str, Any] = json.loads(json.dumps(kept, default=_date))
    return plain


def _date(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"{value!r} is nothing that a worker can get")


def _expected_costs(declared: Sequence[Path], last: tuple[int, Result] | None) -> tuple[int, float]:
    """Bytes and seconds: as the last time, or guessed by the size of the weights."""
    weights = sum(path.stat().st_size for path in declared if path.suffix in _WEIGHTS)
    memory, seconds = _BASE + _TIMES_WEIGHTS * weights, weights / 1e7
    if last is not None and last[1].peak_mb:
        memory = int(_MARGIN * last[1].peak_mb * 1e6)
    if last is not None and last[1].verdict != "error":
        seconds = last[1].duration_s
    return memory, seconds


def _package_version(model: Model) -> str:
    """The version of the package that a subject such as `timm.models:create` comes from."""
    from importlib import metadata

    package = own_package(model.values)
    try:
        return metadata.version(package) if package else ""
    except metadata.PackageNotFoundError:
        return ""
