"""A suite from its manifest to its results: the driver, which alone writes the store, and which loads neither torch nor a model."""

import atexit
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from onnxproof.errors import UsageError
from onnxproof.suite import gate, machine, manifest, plan
from onnxproof.suite.engines import ENGINES
from onnxproof.suite.expansion import Model, expand
from onnxproof.suite.job import Event, Job, Outcome, Setting
from onnxproof.suite.plan import Planned
from onnxproof.suite.pool import Pool
from onnxproof.suite.recording import expected, record
from onnxproof.suite.records import Result, Run
from onnxproof.suite.store import Store, now
from onnxproof.system import guard, temporary

_HARDWARE = ("machine", "system", "processor")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """How a suite is run, beside its manifest."""

    history: Path | None = None
    """A file that keeps every run; None keeps nothing."""
    engine: str = "local"
    address: str = ""
    """Of a Ray cluster; empty starts one here."""
    time_s: float | None = None
    """Seconds that one model may take."""
    memory_gb: float | None = None
    """Memory that all models together may take; None is three quarters of the machine's."""
    jobs: int | None = None
    """Models at a time; None is one for each core."""
    changed: bool = False
    """Take the last result over where nothing changed."""
    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Only these models."""
    fresh: bool = False
    """Begin anew, also where a run of the same plan was not finished."""
    update_baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """A run with all that is there of it, in the manifest's order."""

    manifest: manifest.Manifest
    run: Run
    results: tuple[Result, ...]
    missing: tuple[str, ...] = ()
    """Models without a result: the run was stopped."""
    resumed: int = 0
    """Results that were there already, from before a kill."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Models whose last result was taken over, each with why."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Of those that were run under `changed`: what changed."""
    decisions: Mapping[str, gate.Decision] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """That of the gate; 2 for a run that was stopped, unless a fault was seen."""
        code = gate.exit_code(self.decisions.values())
        return code or (2 if self.missing else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a suite is."""

    event: Event
    total: int
    done: int
    running: tuple[Job, ...]
    seconds_left: float | None
    result: Result | None = None


Report = Callable[[Progress], None]


After = Callable[[Store, SuiteResult], None]


def run(
    path: str | Path,
    options: SuiteOptions,
    report: Report | None = None,
    after: After | None = None,
) -> SuiteResult:
    """Run a suite to its end, or until Ctrl-C; what an earlier start of the same plan has done is not done again.

    `after` gets the store while it is open, which is the only time for one that nobody keeps.
    """
    suite = manifest.read(path)
    models = choose(expand(suite), options)
    with _store(options) as store:
        last = store.last(suite.name)
        limits = plan.Limits(time_s=options.time_s, update_baseline=options.update_baseline)
        planned = plan.make(models, suite.folder, last, limits)
        driver = _Driver(suite, options, store, planned, report)
        result = driver.run(last)
        if after is not None:
            after(store, result)
        return result


def run_one(model: Model, folder: Path) -> tuple[Result, gate.Decision]:
    """One model without a store, by the local engine; for tests. Workers are kept for the next."""
    [item] = plan.make([model], folder, {}, plan.Limits())
    outcome = Outcome(failure=f"error[no-match]: {model.problem}")
    if not model.problem:
        events = _pool_for_tests().run([item.job])
        outcome = next(e.outcome for e in list(events) if e.kind == "ended" and e.outcome)
    result = record(item, outcome, plan.Files(folder))
    return result, gate.decide(result)


@cache
def _pool_for_tests() -> Pool:
    """One worker, which ends with this process."""
    search = (str(Path.cwd()), str(Path.cwd() / "src"))
    pool = Pool(Setting(jobs=1, memory=guard.most_bytes(), search=search))
    atexit.register(pool.close)
    return pool


def choose(models: Sequence[Model], options: SuiteOptions) -> list[Model]:
    """The models that were asked for."""
    chosen = _with_tags(models, options.tags)
    if not options.names:
        return chosen
    unknown = set(options.names) - {model.name for model in models}
    if unknown:
        raise UsageError("no-models", f"there is no model `{min(unknown)}` in this suite")
    return [model for model in chosen if model.name in options.names]


def _with_tags(models: Sequence[Model], tags: Sequence[str]) -> list[Model]:
    """Those that have any of the tags; all where there are none."""
    chosen = [model for model in models if not tags or set(tags) & set(model.tags)]
    if chosen:
        return chosen
    known = sorted({tag for model in models for tag in model.tags})
    raise UsageError(
        "no-models",
        f"no model has the tag `{'`, `'.join(tags)}`",
        notes=[f"tags are {', '.join(known) or 'none'}"],
    )


@contextmanager
def _store(options: SuiteOptions) -> Iterator[Store]:
    if options.history is not None:
        with Store(options.history, write=True) as store:
            yield store
        return
    with temporary.Folder() as folder, Store(folder / "history.sqlite", write=True) as store:
        yield store


class _Driver:
    """One run of a suite."""

    def __init__(
        self,
        suite: manifest.Manifest,
        options: SuiteOptions,
        store: Store,
        planned: Sequence[Planned],
        report: Report | None,
    ) -> None:
        self._suite, self._options, self._store = suite, options, store
        self._planned = {item.model.name: item for item in planned}
        self._report = report or (lambda state: None)
        self._files = plan.Files(suite.folder)
        self._jobs = options.jobs or machine.cores()
        self._done: dict[str, Result] = {}
        self._running: dict[str, Job] = {}
        self._skipped: dict[str, str] = {}
        self._reasons: dict[str, str] = {}

    def run(self, last: Mapping[str, tuple[int, Result]]) -> SuiteResult:
        """Everything that has no result yet."""
        digest = plan.digest([[item.model.name, item.key] for item in self._planned.values()])
        current = self._begin(digest)
        self._done = {result.name: result for result in self._store.results(current.id)}
        resumed = len(self._done)
        self._settle_at_once(current, last)
        try:
            with closing(self._events()) as events:
                for event in events:
                    self._take(current, event)
        except KeyboardInterrupt:
            pass  # what is there is written, and the run can be gone on with
        else:
            self._store.finish(current.id)
        return self._result(self._store.run(current.id), resumed)

    def _begin(self, digest: str) -> Run:
        """The unfinished run of this plan, or a new one."""
        me = machine.this_process()
        unfinished = None
        if not self._options.fresh:
            unfinished = self._store.unfinished(self._suite.name, digest)
        if unfinished is not None:
            machine.refuse_if_alive(unfinished, me)
            self._store.claim(unfinished.id, me)
            return unfinished
        facts = plan.current_versions()
        hardware = {name: facts[name] for name in _HARDWARE if name in facts}
        seeds = {item.model.values.get("seed", 0) for item in self._planned.values()}
        return self._store.begin(
            Run(
                id=0,
                suite=self._suite.name,
                started=now(),
                commit_id=machine.commit(self._suite.folder),
                engine=self._options.engine,
                versions=facts,
                hardware={**hardware, "cores": machine.cores(), "memory_gb": machine.memory_gb()},
                seed=min(seeds, default=0),
                options={
                    "plan": digest,
                    "driver": me,
                    "manifest": str(self._suite.path),
                    "models": len(self._planned),
                    "tags": list(self._options.tags),
                    "time_s": self._options.time_s,
                    "changed": self._options.changed,
                },
            )
        )

    def _settle_at_once(self, current: Run, last: Mapping[str, tuple[int, Result]]) -> None:
        """What needs no process: models that can't be run at all, and those that did not change."""
        for name, item in self._planned.items():
            if name in self._done:
                continue
            if item.model.problem:
                failure = f"error[no-match]: {item.model.problem}"
                self._keep(current, record(item, Outcome(failure=failure), self._files))
            elif self._options.changed:
                self._reuse(current, item, last.get(name))

    def _reuse(self, current: Run, item: Planned, last: tuple[int, Result] | None) -> None:
        versions: Mapping[str, str] = {}
        if last is not None:
            versions = self._store.run(last[0]).versions
        reason = plan.reason_to_run(item, last, self._files, versions)
        name = item.model.name
        if reason or last is None:
            self._reasons[name] = reason
            return
        number, result = last
        source = result.reused_from or number
        self._skipped[name] = f"nothing changed since run {source}"
        self._keep(
            current,
            replace(
                result,
                reused_from=source,
                tags=item.model.tags,
                expected=expected(item.model),
            ),
        )

    def _events(self) -> Generator[Event, None, None]:
        todo = [item.job for name, item in self._planned.items() if name not in self._done]
        if not todo:
            return
        todo.sort(key=lambda job: (-job.expected_s, -job.expected_memory))
        setting = Setting(
            jobs=self._jobs,
            memory=machine.memory_bytes(self._options.memory_gb),
            preload=self._suite.preload,
            doings=tuple(sorted({item.model.do for item in self._planned.values()})),
            search=(str(Path.cwd()), str(Path.cwd() / "src")),
            address=self._options.address,
            transport=self._suite.transport,
            folder=str(self._suite.folder),
        )
        yield from ENGINES.load(self._options.engine).run(todo, setting)

    def _take(self, current: Run, event: Event) -> None:
        result = None
        if event.job is not None:
            name = event.job.name
            if event.kind == "started":
                self._running[name] = event.job
            else:
                self._running.pop(name, None)
            if event.kind == "ended" and event.outcome is not None:
                result = record(self._planned[name], event.outcome, self._files)
                self._keep(current, result)
        self._report(
            Progress(
                event=event,
                total=len(self._planned),
                done=len(self._done),
                running=tuple(self._running.values()),
                seconds_left=self._seconds_left(),
                result=result,
            )
        )

    def _seconds_left(self) -> float | None:
        """By what the others took; None before the first."""
        fresh = [result for result in self._done.values() if result.reused_from is None]
        if not fresh:
            return None
        mean = sum(result.duration_s for result in fresh) / len(fresh)
        return mean * (len(self._planned) - len(self._done)) / self._jobs

    def _keep(self, current: Run, result: Result) -> None:
        self._store.add(current.id, result)
        self._done[result.name] = replace(result, proof=None)

    def _result(self, current: Run, resumed: int) -> SuiteResult:
        results = tuple(self._done[name] for name in self._planned if name in self._done)
        return SuiteResult(
            manifest=self._suite,
            run=current,
            results=results,
            missing=tuple(name for name in self._planned if name not in self._done),
            resumed=resumed,
            skipped=self._skipped,
            reasons=self._reasons,
            decisions={result.name: gate.decide(result) for result in results},
        )
