"""From entries to models: wildcards over folders and tables of options, each combination a model with a name of its own."""

import datetime
import glob
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.suite.checking import as_date
from onnxproof.suite.manifest import (
    FIELD,
    WILD,
    WILD_KEYS,
    Entry,
    Manifest,
    filled_mistakes,
    raise_first,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A verdict that is known, why, and until when."""

    verdict: str
    reason: str = ""
    expires: datetime.date | None = None
    cause: str = ""
    """The code of its first cause; another cause is another fault."""

    def to_plain(self) -> dict[str, Any]:
        """For the store and for JSON."""
        expires = None
        if self.expires is not None:
            expires = self.expires.isoformat()
        plain = {"verdict": self.verdict, "reason": self.reason, "expires": expires}
        if self.cause:
            plain["cause"] = self.cause
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of a suite, with everything filled in."""

    name: str
    values: Mapping[str, Any]
    tags: tuple[str, ...] = ()
    expected: Expected | None = None
    line: int = 0
    problem: str = ""
    """Why it can't be run, where that is known already."""
    axes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def do(self) -> str:
        """What is done with it."""
        return str(self.values.get("do", "verify"))


def expand(manifest: Manifest) -> list[Model]:
    """All models in the order of the file; two of one name are an error that gives both lines."""
    models: dict[str, Model] = {}
    for entry in manifest.entries:
        for model in _expand_entry(entry, manifest):
            if model.name in models:
                raise _twice(model, models[model.name], manifest)
            models[model.name] = model
    return list(models.values())


def _expand_entry(entry: Entry, manifest: Manifest) -> Iterator[Model]:
    for combination in itertools.product(*entry.axes.values()):
        options = dict(zip(entry.axes, combination, strict=True))
        for found in _matches(entry, options, manifest.folder):
            fields = {**options, **found.fields}
            values = {**_filled(entry.values, fields), **found.paths}
            name = _model_name(entry, fields, found)
            values = {key: _filled(value, {"name": name}) for key, value in values.items()}
            where = ("model", entry.place)
            wrong = ((where, mistake) for mistake in filled_mistakes(values))
            raise_first(manifest.path, manifest.lines, wrong)
            yield Model(
                name=name,
                values=values,
                tags=tuple(values.get("tags", ())),
                expected=_expected(values),
                line=entry.line,
                problem=found.problem,
                axes=options,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """What a wildcard found."""

    paths: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def _matches(entry: Entry, options: Mapping[str, Any], folder: Path) -> Iterator[_Match]:
    """One for each file behind a wildcard; one that says why where there is none."""
    key = next((key for key in WILD_KEYS if WILD.search(str(entry.values.get(key, "")))), None)
    if key is None:
        yield _Match()
        return
    words = str(_filled(entry.values[key], options))
    pattern, factory = words, ""
    if key == "subject" and ".py:" in words:
        pattern, _, factory = words.rpartition(":")
    files = sorted(glob.glob(pattern, root_dir=folder, recursive=True))
    if not files and (folder / pattern).exists():
        files = [pattern]  # brackets that are part of a name
    if not files:
        fields = {"stem": pattern, "match": pattern}
        yield _Match(fields=fields, paths={key: words}, problem=f"no file matches `{pattern}`")
    first_wild = next(i for i, part in enumerate(Path(pattern).parts) if WILD.search(part))
    for file in files:
        below = PurePosixPath(*Path(file).parts[first_wild:]).with_suffix("")
        fields = {"stem": Path(file).stem, "match": str(below)}
        yield _Match(paths={key: f"{file}:{factory}" if factory else file}, fields=fields)


def _model_name(entry: Entry, fields: Mapping[str, Any], found: _Match) -> str:
    """The name with its placeholders filled in; what a wildcard found is added where no placeholder says it."""
    template = str(entry.values.get("name", "{match}"))
    name = str(_filled(template, fields, whole=False))
    if found.paths and not {"stem", "match"} & set(FIELD.findall(template)):
        name += f"/{fields['match']}"
    return name


def _filled(value: Any, fields: Mapping[str, Any], *, whole: bool = True) -> Any:
    """A value with its placeholders filled in; one that is a placeholder and nothing else takes over the type."""
    if isinstance(value, str):
        alone = FIELD.fullmatch(value)
        if whole and alone is not None and alone[1] in fields:
            return fields[alone[1]]
        return FIELD.sub(lambda match: str(fields.get(match[1], match[0])), value)
    if isinstance(value, list):
        return [_filled(item, fields) for item in value]
    if isinstance(value, Mapping):
        return {key: _filled(item, fields) for key, item in value.items()}
    return value


def _expected(values: Mapping[str, Any]) -> Expected | None:
    said = values.get("expect")
    if said is None:
        return None
    table = said if isinstance(said, Mapping) else {"verdict": said}
    return Expected(
        verdict=str(table["verdict"]),
        reason=str(table.get("reason", values.get("reason", ""))),
        expires=as_date(table.get("expires", values.get("expires"))),
        cause=str(table.get("cause", "")),
    )


def _twice(model: Model, other: Model, manifest: Manifest) -> UsageError:
    help = (
        "give each a name of its own; {stem}, {match} and the options of a table may be part of it"
    )
    return UsageError(
        "bad-manifest",
        f"two models have the name `{model.name}`",
        where=f"{manifest.path}:{model.line}",
        notes=[f"the other one is in line {other.line}"],
        help=help,
    )
