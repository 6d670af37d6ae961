"""The store of a suite: one SQLite file, written by the driver alone.

A result is committed the moment it is there (write-ahead log, synchronised), so that a kill loses at most what was running. The
primary key (run, name) keeps a verdict from being there twice: `add` of one that is known already raises.

Tables (JSON as text; numbers that are not finite are the strings that a proof's JSON has):

    runs(id, suite, started, finished, commit_id, engine, versions, hardware, seed, options)
    results(run, name, verdict, backends, noise_ratio, quality, duration_s, key, tags, error, expected, proof,
            passed, summary, cause, peak_mb, attempts, depends, reused_from)
    measures(run, name, backend, verdict, noise_ratio, quality, latency_ms)

`runs.options` has what the command line chose, `plan` (the hash by which an unfinished run is found again) and `driver` (the process).
`results.proof` is the proof's JSON, compressed by zlib, or NULL; a reused result has none of its own (`proof` reads that of the run
it came from). `noise_ratio` may be infinite: SQLite keeps it as such. Readers need no lock; a second writer is refused (`busy`).
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from onnxproof.errors import UsageError
from onnxproof.suite.records import Measure, Result, Run

VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS runs(
    id INTEGER PRIMARY KEY, suite TEXT NOT NULL, started TEXT NOT NULL, finished TEXT, commit_id TEXT,
    engine TEXT NOT NULL, versions TEXT NOT NULL, hardware TEXT NOT NULL, seed INTEGER NOT NULL, options TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results(
    run INTEGER NOT NULL REFERENCES runs(id), name TEXT NOT NULL, verdict TEXT NOT NULL, backends TEXT NOT NULL,
    noise_ratio REAL, quality REAL, duration_s REAL NOT NULL, key TEXT NOT NULL, tags TEXT NOT NULL, error TEXT NOT NULL,
    expected TEXT, proof BLOB, passed INTEGER NOT NULL, summary TEXT NOT NULL, cause TEXT NOT NULL, peak_mb REAL,
    attempts INTEGER NOT NULL, depends TEXT NOT NULL, reused_from INTEGER, PRIMARY KEY(run, name));
CREATE TABLE IF NOT EXISTS measures(
    run INTEGER NOT NULL, name TEXT NOT NULL, backend TEXT NOT NULL, verdict TEXT NOT NULL, noise_ratio REAL,
    quality REAL, latency_ms REAL, PRIMARY KEY(run, name, backend));
CREATE INDEX IF NOT EXISTS results_by_name ON results(name, run);
"""
_JSON = frozenset({"backends", "tags", "expected", "depends"})
_COLUMNS = tuple(field.name for field in fields(Result) if field.name != "measures")
_MEASURES = tuple(field.name for field in fields(Measure))
_RUN = tuple(field.name for field in fields(Run))


class Store:
    """One file of history; a context manager."""

    def __init__(self, path: str | Path, *, write: bool = False) -> None:
        """Open it to read, or to write, then it is made where it is missing."""
        self.path = Path(path)
        if not write and not self.path.is_file():
            raise UsageError(
                "no-such-file",
                f"there is no history `{path}`",
                where=str(path),
                help="`onnxproof suite suite.toml --history FILE` writes one",
            )
        with self._told():
            self._database = _open(self.path, write=write)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, run: Run) -> Run:
        """Write a new run (its `id` is ignored); gives it with its number."""
        values = [_plain(getattr(run, name)) for name in _RUN if name != "id"]
        names = [name for name in _RUN if name != "id"]
        with self._told(), self._database:
            cursor = self._database.execute(_insert("runs", names), values)
        return self.run(int(cursor.lastrowid or 0))

    def add(self, run: int, result: Result) -> None:
        """Commit one result with its measures, all or nothing."""
        row = [run, *(_result_value(name, result) for name in _COLUMNS)]
        with self._told(), self._database:
            self._database.execute(_insert("results", ["run", *_COLUMNS]), row)
            self._database.executemany(
                _insert("measures", ["run", "name", *_MEASURES]),
                [
                    [run, result.name, *(getattr(measure, name) for name in _MEASURES)]
                    for measure in result.measures
                ],
            )

    def claim(self, run: int, driver: Mapping[str, Any]) -> None:
        """Note which process works on a run, so that no second one goes on with it."""
        options = {**self.run(run).options, "driver": dict(driver)}
        with self._told(), self._database:
            self._database.execute(
                "UPDATE runs SET options = ? WHERE id = ?", [json.dumps(options), run]
            )

    def finish(self, run: int) -> None:
        """Every model of this run has its result."""
        with self._told(), self._database:
            self._database.execute("UPDATE runs SET finished = ? WHERE id = ?", [now(), run])

    def runs(self, suite: str | None = None, *, finished: bool = False) -> list[Run]:
        """All runs, the oldest first; those of one suite, or those that were finished."""
        rows = self._all(f"SELECT {', '.join(_RUN)} FROM runs ORDER BY id")
        runs = [_run(row) for row in rows]
        return [
            run
            for run in runs
            if (suite is None or run.suite == suite) and (run.finished or not finished)
        ]

    def run(self, number: int) -> Run:
        """One run."""
        rows = self._all(f"SELECT {', '.join(_RUN)} FROM runs WHERE id = ?", [number])
        if not rows:
            known = ", ".join(str(run.id) for run in self.runs()[-10:])
            raise UsageError(
                "no-such-run",
                f"there is no run {number}",
                where=str(self.path),
                notes=[f"the last ones are {known or 'none'}"],
            )
        return _run(rows[0])

    def unfinished(self, suite: str, plan: str) -> Run | None:
        """The last run of a suite, if it was not finished and had this very plan."""
        runs = self.runs(suite)
        if not runs or runs[-1].finished or runs[-1].options.get("plan") != plan:
            return None
        return runs[-1]

    def results(self, run: int) -> list[Result]:
        """What a run has so far, without the proofs."""
        columns = [name for name in _COLUMNS if name != "proof"]
        rows = self._all(
            f"SELECT {', '.join(columns)} FROM results WHERE run = ? ORDER BY name", [run]
        )
        measures = self._measures(run)
        return [_result(columns, row, measures) for row in rows]

    def last(self, suite: str) -> dict[str, tuple[int, Result]]:
        """The newest result of every model of a suite with its run, also of runs that were not finished."""
        newest = self._all(
            "SELECT name, max(run) FROM results JOIN runs ON runs.id = run WHERE suite = ? GROUP BY name",
            [suite],
        )
        names: dict[int, set[str]] = {}
        for name, run in newest:
            names.setdefault(run, set()).add(name)
        return {
            result.name: (run, result)
            for run, wanted in names.items()
            for result in self.results(run)
            if result.name in wanted
        }

    def proof(self, run: int, name: str) -> dict[str, Any] | None:
        """The proof's JSON of one model; of the run that it was taken over from, where it was."""
        rows = self._all(
            "SELECT proof, reused_from FROM results WHERE run = ? AND name = ?", [run, name]
        )
        if not rows:
            return None
        packed, reused_from = rows[0]
        if packed is None and reused_from is not None and reused_from != run:
            return self.proof(reused_from, name)
        if packed is None:
            return None
        document: dict[str, Any] = json.loads(zlib.decompress(packed))
        return document

    def _measures(self, run: int) -> dict[str, list[Measure]]:
        rows = self._all(
            f"SELECT name, {', '.join(_MEASURES)} FROM measures WHERE run = ? ORDER BY rowid", [run]
        )
        measures: dict[str, list[Measure]] = {}
        for name, *values in rows:
            measure = Measure(**dict(zip(_MEASURES, values, strict=True)))
            measures.setdefault(name, []).append(measure)
        return measures

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._told():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite raises, as an error that says what to do; a verdict that is there already is a bug of ours."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.OperationalError as why:
            raise UsageError(
                "busy" if "locked" in str(why) else "cannot-write",
                f"the history `{self.path}` can't be used: {why}",
                where=str(self.path),
                help="wait for the other run that writes it, or give another file",
            ) from why
        except sqlite3.DatabaseError as why:
            raise UsageError(
                "not-a-history",
                f"`{self.path}` is no history of a suite: {why}",
                where=str(self.path),
                help="give a file that `onnxproof suite --history` wrote",
            ) from why


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _open(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection; commits are synchronised, so that not even a power failure takes one back."""
    mode = "rwc" if write else "ro"
    address = f"{path.absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(address, uri=True, timeout=10.0)
    try:
        if write:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(_TABLES)
            database.execute(f"PRAGMA user_version={VERSION}")
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found != VERSION:
            raise sqlite3.DatabaseError(f"its form is {found}, and {VERSION} is understood here")
        database.execute("SELECT count(*) FROM runs").fetchone()
    except BaseException:
        database.close()
        raise
    return database


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table}({', '.join(columns)}) VALUES ({marks})"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping | tuple | list):
        return json.dumps(value)
    return value


def _result_value(name: str, result: Result) -> Any:
    value = getattr(result, name)
    if name == "proof" and value is not None:
        return zlib.compress(json.dumps(value).encode())
    return _plain(value)


def _run(row: Sequence[Any]) -> Run:
    values = dict(zip(_RUN, row, strict=True))
    for name in ("versions", "hardware", "options"):
        values[name] = json.loads(values[name])
    return Run(**values)


def _result(
    columns: Sequence[str], row: Sequence[Any], measures: Mapping[str, list[Measure]]
) -> Result:
    values = dict(zip(columns, row, strict=True))
    for name in _JSON:
        values[name] = json.loads(values[name] or "null")
    for name in ("backends", "tags"):
        values[name] = tuple(values[name])
    values["passed"] = bool(values["passed"])
    return Result(measures=tuple(measures.get(values["name"], ())), **values)
