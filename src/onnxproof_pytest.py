"""The pytest plug-in: a proof in one line of a test.

    from onnxproof_pytest import assert_faithful

    def test_export(tmp_path):
        assert_faithful(model, "model.onnx", (x,))

It stands outside the package and imports onnxproof only when a test asks for a proof, so it costs a test run nothing.
"""

import itertools
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof

_MARKER = "onnxproof(backends=('ort',), opsets=(), strict=None, budget_s=None): run the test's proofs on each backend, and its exports with each opset"
_SUITE_MARKER = "onnxproof_suite(path, tags=(), models=()): one test for each model of a suite file; its fixture is `suite_model`"
_BUDGET_S = 20.0
"""Seconds for one proof, unless the test or the marker says otherwise: a suite has many."""
_strict = False
_folder: Any = None
_kept: Path | None = None
"""Where this process keeps its proofs, when a report is to be written at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options."""
    group = parser.getgroup("onnxproof")
    group.addoption(
        "--onnxproof-html",
        metavar="PATH",
        default=None,
        help="write one HTML report of all proofs of this run",
    )
    group.addoption(
        "--onnxproof-strict", action="store_true", help="a proof with drift fails its test"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker; keep proofs where somebody will want to see them."""
    global _strict, _kept
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _SUITE_MARKER)
    _strict = bool(config.getoption("--onnxproof-strict"))
    if path := config.getoption("--onnxproof-html"):
        _check(path)
        given = getattr(config, "workerinput", {}).get(
            "onnxproof"
        )  # a worker of pytest-xdist writes where the first process looks
        if (
            given is not None or _kept is None
        ):  # named by `-p` as well as by its entry point, it is configured twice
            _kept = Path(given or _own_folder())


def _own_folder() -> str:
    """A folder of this process, which goes with it."""
    global _folder
    from onnxproof.system.temporary import Folder

    _folder = folder = Folder()
    return folder.name


def _check(path: str) -> None:
    """Better an error now than after the whole run."""
    from onnxproof.errors import OnnxproofError
    from onnxproof.report.writers import html

    try:
        html.check()
    except OnnxproofError as why:
        raise pytest.UsageError(str(why)) from why
    if not Path(path).absolute().parent.is_dir():
        raise pytest.UsageError(
            f"--onnxproof-html {path}: there is no folder `{Path(path).parent}`"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where its proofs go."""
    if _kept is not None:
        node.workerinput["onnxproof"] = str(_kept)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the report of all proofs and say where it is."""
    path = config.getoption("--onnxproof-html")
    if (
        _kept is None or not path or hasattr(config, "workerinput")
    ):  # a worker leaves it to the first process
        return
    files = sorted(_kept.glob("*.json"))
    if not files:
        terminalreporter.write_line("onnxproof: no test made a proof, so there is no report")
        return
    from onnxproof.report.writers import html, json
    from onnxproof.system.writing import write_text

    proofs = [json.read(file) for file in files]
    write_text(html.page(proofs, title=f"onnxproof: {len(proofs)} proofs of a test run"), path)
    terminalreporter.write_line(f"onnxproof: {len(proofs)} proofs in {path}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind, also after a run that made no proof or was stopped."""
    global _kept
    if _kept is not None and not hasattr(config, "workerinput"):
        shutil.rmtree(_kept, ignore_errors=True)
        _kept = None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The markers make one test for each backend and opset, or for each model of a suite."""
    suite = metafunc.definition.get_closest_marker("onnxproof_suite")
    if suite is not None and "suite_model" in metafunc.fixturenames:
        models = _suite_models(metafunc, suite)
        names = [model.name for model in models]
        metafunc.parametrize("suite_model", models, indirect=True, ids=names)
    marker = metafunc.definition.get_closest_marker("onnxproof")
    if marker is None or "onnxproof" not in metafunc.fixturenames:
        return
    if unknown := sorted(set(marker.kwargs) - {"backends", "opsets", "strict", "budget_s"}) or list(
        marker.args
    ):
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the marker `onnxproof` has no `{unknown[0]}`; it is {_MARKER.partition(':')[0]}"
        )
    backends = _several(marker.kwargs.get("backends", ("ort",)))
    opsets = _several(marker.kwargs.get("opsets", ())) or (None,)
    pairs = list(itertools.product(backends, opsets))
    names = [backend if opset is None else f"{backend}-opset{opset}" for backend, opset in pairs]
    metafunc.parametrize("onnxproof", pairs, indirect=True, ids=names)


def _suite_models(metafunc: pytest.Metafunc, marker: pytest.Mark) -> list["SuiteModel"]:
    """The models of the file that a marker names, relative to the test's own folder; the manifest alone is read."""
    from onnxproof.errors import OnnxproofError
    from onnxproof.suite.expansion import expand
    from onnxproof.suite.manifest import read
    from onnxproof.suite.run import SuiteOptions, choose

    if len(marker.args) != 1 or set(marker.kwargs) - {"tags", "models"}:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: the marker is {_SUITE_MARKER}")
    options = SuiteOptions(
        tags=_several(marker.kwargs.get("tags", ())),
        names=_several(marker.kwargs.get("models", ())),
    )
    try:
        manifest = read(metafunc.definition.path.parent / marker.args[0])
        return [SuiteModel(model, manifest.folder) for model in choose(expand(manifest), options)]
    except OnnxproofError as why:
        raise pytest.UsageError(str(why)) from why


class SuiteModel:
    """One model of a suite, to be run by a test."""

    def __init__(self, model: Any, folder: Path) -> None:
        self.name: str = model.name
        self.tags: tuple[str, ...] = model.tags
        self._model, self._folder = model, folder

    def check(self) -> Any:
        """Do what the manifest says, in a process of its own, and fail the test on a new fault; a known one is an expected failure."""
        __tracebackhide__ = True
        from onnxproof.suite.gate import Gate
        from onnxproof.suite.run import run_one

        result, decision = run_one(self._model, self._folder)
        if decision.gate is Gate.KNOWN:
            pytest.xfail(f"known {result.verdict}: {decision.why}")
        if decision.gate is not Gate.PASS or (_strict and result.verdict == "drift"):
            pytest.fail(
                "\n".join(filter(None, (result.summary, decision.why, result.error))), False
            )
        return result


@pytest.fixture
def suite_model(request: pytest.FixtureRequest) -> SuiteModel:
    """A model of the suite that the marker `onnxproof_suite` names."""
    model: SuiteModel = request.param
    return model


def _several(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str | int) else tuple(value)


class Onnxproof:
    """What the fixture gives: proofs with the backend and the opset of this test."""

    def __init__(
        self, folder: Path, name: str, backend: str, opset: int | None, options: dict[str, Any]
    ) -> None:
        self.folder, self.name, self.backend, self.opset, self._options = (
            folder,
            name,
            backend,
            opset,
            options,
        )

    def assert_faithful(
        self, model: Any, onnx: str | Path, inputs: Any = None, **options: Any
    ) -> "Proof":
        """As the function of that name, on the backend of this test."""
        __tracebackhide__ = True
        return assert_faithful(
            model,
            onnx,
            inputs,
            name=self.name,
            **{"backends": (self.backend,), **self._options, **options},
        )

    def assert_exports(
        self, model: Any, inputs: Any = None, path: str | Path | None = None, **options: Any
    ) -> "Proof":
        """Export with the opset of this test, then prove; the file goes to the test's own folder unless a path is given."""
        __tracebackhide__ = True
        from onnxproof.api import export

        settings = _settings(
            {"backends": (self.backend,), "opset": self.opset, **self._options, **options}
        )
        return _checked(
            export(model, inputs, path or self.folder / "model.onnx", **settings), self.name
        )


@pytest.fixture
def onnxproof(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Onnxproof]:
    """Proofs for this test; the marker `onnxproof` chooses backends and opsets."""
    backend, opset = getattr(request, "param", ("ort", None))
    marker = request.node.get_closest_marker("onnxproof")
    given = {
        key: value
        for key, value in (marker.kwargs if marker else {}).items()
        if key in ("strict", "budget_s") and value is not None
    }
    yield Onnxproof(tmp_path, request.node.nodeid, backend, opset, given)


def assert_faithful(
    model: Any,
    onnx: str | Path,
    inputs: Any = None,
    *,
    strict: bool | None = None,
    name: str = "",
    **options: Any,
) -> "Proof":
    """Verify and fail the test unless the proof passes; gives the proof. Other options are those of `onnxproof.verify`."""
    __tracebackhide__ = True
    from onnxproof.api import verify

    return _checked(verify(model, onnx, inputs, **_settings({"strict": strict, **options})), name)


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Options of `verify` or `export`, with the run's own strictness and a budget that fits a suite."""
    from dataclasses import replace

    from onnxproof.options import Policy

    strict = options.pop("strict", None)
    policy = options.pop("policy", None) or Policy()
    return {
        "budget_s": _BUDGET_S,
        "policy": replace(policy, strict=policy.strict or _strict if strict is None else strict),
        **options,
    }


def _checked(proof: "Proof", name: str) -> "Proof":
    """Keep the proof for the report, then fail the test on what, where and how to replay it; nothing compared is never a pass."""
    __tracebackhide__ = True
    if _kept is not None:
        _keep(proof, name, _kept)
    if not proof.passed:
        pytest.fail(_story(proof), pytrace=False)
    return proof


def _story(proof: "Proof") -> str:
    from onnxproof.errors import VerdictError

    try:
        proof.raise_for_verdict()
    except VerdictError as why:
        return why.render()
    raise AssertionError("a proof that did not pass has a reason")


def _keep(proof: "Proof", name: str, folder: Path) -> None:
    """One JSON file a proof, numbered so that two proofs of one test don't meet."""
    stem = re.sub(r"\W+", "-", name)[-80:] or "proof"
    for number in itertools.count():
        path = folder / f"{stem}-{number}.json"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        proof.to_json(path)
        return


__all__: Sequence[str] = ["Onnxproof", "SuiteModel", "assert_faithful", "onnxproof", "suite_model"]
