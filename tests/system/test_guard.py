"""Whatever a file asks for, it is given no more than its time and memory: every way to run a graph ends, with a verdict or a clear error."""

import contextvars
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import hostile_graphs as hostile

import onnxproof
from onnxproof.errors import Crashed, ModelError, OnnxproofError, Refused
from onnxproof.onnxmodel import expansion, onnx_file
from onnxproof.options import Serving
from onnxproof.results import Verdict
from onnxproof.runtimes import ort, reference, use_serving
from onnxproof.system import guard

SOURCE = Path(__file__).parents[2] / "src"
LATE_S = 120.0
"""Far beyond every limit here, and far below what these files ask for: the machine may be busy."""
X = np.ones((2, 2), np.float32)


class Negative(torch.nn.Module):
    """What none of the hostile files says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x


def test_the_guard_gives_what_the_work_gives() -> None:
    assert guard.run(lambda: 7, limit_s=5, what="it") == 7
    with pytest.raises(KeyError, match="gone"):
        guard.run(lambda: {}["gone"], limit_s=5, what="it")


def test_the_work_sees_the_context_of_its_caller() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    variable.set(3)
    assert guard.run(variable.get, limit_s=5, what="it") == 3


def test_work_that_stops_when_told_is_stopped() -> None:
    told = threading.Event()
    with pytest.raises(
        Crashed, match=r"error\[hung\]: `it` gave no answer within 0.2 s and was stopped"
    ):
        guard.run(lambda: told.wait(30), limit_s=0.2, what="`it`", stop=told.set)


def test_work_that_does_not_stop_is_left_behind_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "GRACE_S", 0.1)
    release = threading.Event()
    with pytest.raises(Crashed, match="was left behind") as caught:
        guard.run(lambda: release.wait(60), limit_s=0.1, what="it")
    assert "goes on in the background" in caught.value.notes[0]
    assert guard.run(lambda: 1, limit_s=5, what="it") == 1
    release.set()


@pytest.fixture
def nothing_behind() -> None:
    """What another test left behind has ended, and the limit of memory is the usual one."""
    deadline = time.monotonic() + 60
    guard.run(lambda: None, limit_s=60, what="`x`")
    while guard._left_behind and time.monotonic() < deadline:
        time.sleep(0.1)
        guard.run(lambda: None, limit_s=60, what="`x`")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_more_memory_than_there_is_fails_at_once_and_the_limit_is_taken_back(
    nothing_behind: None,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError):
        guard.run(lambda: np.ones(guard.most_bytes() // 4), limit_s=60, what="it")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert guard.run(lambda: np.ones(1000).sum(), limit_s=5, what="it") == 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
def test_a_forked_process_has_a_guard_of_its_own() -> None:
    code = (
        "import os\nfrom onnxproof.system import guard\nguard.run(lambda: 1, limit_s=5, what='it')\npid = os.fork()\n"
        "if pid == 0:\n    os._exit(guard.run(lambda: 5, limit_s=5, what='it'))\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )


@pytest.mark.parametrize("name", [*hostile.ENDLESS, *hostile.LARGE])
@pytest.mark.parametrize("backend", ["ort", "ort:disabled", "reference", "reference:float64"])
def test_no_backend_is_held_up(name: str, backend: str) -> None:
    model = (hostile.ENDLESS | hostile.LARGE)[name]().SerializeToString()
    kind, _, option = backend.partition(":")
    start = time.perf_counter()
    with use_serving(Serving(time_s=1.0)), pytest.raises((Refused, Crashed)) as caught:
        {"ort": ort, "reference": reference}[kind].open(model, option).run({"x": X})  # type: ignore[attr-defined]
    assert time.perf_counter() - start < LATE_S
    assert (
        caught.value.code in ("hung", "too-slow")
        if name in hostile.ENDLESS
        else caught.value.code in ("out-of-memory", "refused", "unevaluated", "hung", "too-slow")
    )


def test_one_long_node_is_left_behind_in_the_evaluator_and_its_session_is_not_used_again() -> None:
    """In a process of its own, since the product goes on."""
    code = (
        "import sys\nsys.path.insert(0, sys.argv[1])\nfrom support import hostile_graphs\nimport numpy as np\nfrom onnxproof.system import guard\nfrom onnxproof.runtimes import reference, use_serving\n"
        "from onnxproof.errors import Refused\nfrom onnxproof.options import Serving\n"
        "with use_serving(Serving(time_s=0.5)):\n    session = reference.open(hostile_graphs.long_product().SerializeToString())\n"
        "for _ in range(2):\n    try:\n        session.run({'x': np.ones((2, 2), np.float32)})\n    except Refused as why:\n        print(why.what)\n"
        "sys.stdout.flush()\nguard.leave(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parents[1])],
        check=True,
        timeout=LATE_S,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
    )
    lines = done.stdout.splitlines()
    assert "ran out of time" in lines[0]
    assert len(lines) == 2


def test_the_evaluator_looks_at_the_clock_inside_functions() -> None:
    session = reference.open(hostile.calls(16, 2).SerializeToString())
    session.limit_s = 0.5
    with pytest.raises(Refused, match=r"error\[too-slow\]"):
        session.run({"x": X})


@pytest.mark.parametrize(
    "name", ["endless_condition", "collecting", "growing", "large_constant", "large_range"]
)
@pytest.mark.parametrize("isolate", [None, True])
def test_verify_ends(name: str, isolate: bool | None, tmp_path: Path) -> None:
    path = hostile.save((hostile.ENDLESS | hostile.LARGE)[name], tmp_path)
    start = time.perf_counter()
    proof = onnxproof.verify(
        Negative().eval(),
        path,
        (torch.ones(2, 2),),
        budget_s=5,
        serving=Serving(isolate=isolate, time_s=1.5),
    )
    assert time.perf_counter() - start < LATE_S
    assert proof.verdict is Verdict.DIVERGED
    if name in ("endless_condition", "collecting"):
        found = {finding.code: finding.what for finding in proof.findings}
        assert "gave no answer within 1.5 s" in found["hung"]
        assert (
            found["unexplained"]
            == "the file gave no answer within the time limit, and nothing more was asked of it"
        )


@pytest.mark.parametrize("name", ["endless_count", "nested_loops", "large_expand"])
@pytest.mark.parametrize("first", [True, False])
def test_diff_ends(name: str, first: bool, tmp_path: Path) -> None:
    path, healthy = (
        hostile.save((hostile.ENDLESS | hostile.LARGE)[name], tmp_path),
        hostile.save(lambda: hostile.calls(2, 1), tmp_path),
    )
    start = time.perf_counter()
    try:
        proof = onnxproof.diff(
            *((path, healthy) if first else (healthy, path)),
            budget_s=5,
            serving=Serving(time_s=1.5),
        )
    except OnnxproofError as why:
        assert first
        assert why.code in ("hung", "out-of-memory", "refused")
    else:
        assert not first
        assert proof.verdict is Verdict.DIVERGED
    assert time.perf_counter() - start < LATE_S


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (lambda: hostile.calls(30, 2), "too-large-when-inlined", "1,610,612,735 nodes"),
        (lambda: hostile.calls(60, 9), "too-large-when-inlined", r"more than 10\*\*56 nodes"),
        (lambda: hostile.calls(3000, 1), "functions-too-deep", "65 deep"),
        (hostile.recursive, "recursive-function", "`f` calls itself"),
    ],
)
def test_a_file_that_grows_when_it_is_opened_is_refused_before(
    kind: Callable[[], onnx.ModelProto], code: str, words: str, tmp_path: Path
) -> None:
    path = hostile.save(kind, tmp_path)
    for run in (
        lambda: onnxproof.verify(Negative(), path, (torch.ones(2, 2),)),
        lambda: onnxproof.diff(path, path),
        lambda: onnxproof.inspect(path),
    ):
        with pytest.raises(ModelError, match=words) as caught:
            run()
        assert caught.value.code == code


@pytest.mark.parametrize("depth", [40, 1000, 30_000])
def test_graphs_nested_deeper_than_protobuf_reads_are_refused(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "deep.onnx"
    path.write_bytes(hostile.deep_bytes(depth))
    for run in (lambda: onnxproof.diff(path, path), lambda: onnxproof.inspect(path)):
        with pytest.raises(ModelError, match=r"error\[not-onnx\]: this file is not an ONNX model"):
            run()


def test_deep_branches_that_protobuf_reads_are_run(tmp_path: Path) -> None:
    path = hostile.save(lambda: hostile.deep_branches(25), tmp_path)
    assert onnxproof.diff(path, path, budget_s=5).verdict is Verdict.FAITHFUL


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=8))
def test_the_size_after_inlining_is_the_size_after_inlining(wanted: list[list[int]]) -> None:
    """Functions that call any of those before them: counted without inlining, and by inlining."""
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("local", 1)]
    callees = [
        [other % place for other in others] if place else [] for place, others in enumerate(wanted)
    ]
    functions = [
        onnx.helper.make_function(
            "local",
            f"f{place}",
            ["a"],
            ["b"],
            [
                onnx.helper.make_node("Neg", ["a"], ["b"]),
                *(
                    onnx.helper.make_node(f"f{other}", ["a"], [f"t{turn}"], domain="local")
                    for turn, other in enumerate(others)
                ),
            ],
            opsets,
        )
        for place, others in enumerate(callees)
    ]

    def inlined(place: int) -> int:
        return 1 + sum(1 + inlined(other) for other in callees[place])

    model = hostile.model(
        [onnx.helper.make_node(f"f{len(wanted) - 1}", ["x"], ["y"], domain="local")],
        functions=functions,
    )
    sizes: dict[tuple[str, str], int] = {}
    by_key = {("local", f"f{place}"): function for place, function in enumerate(functions)}
    for key in expansion._callees_first(by_key, Path("f.onnx")):
        sizes[key] = expansion._size(by_key[key].node, sizes)
    assert expansion._size(model.graph.node, sizes) == 1 + inlined(len(wanted) - 1)


def test_walking_a_graph_gives_every_node_in_order() -> None:
    names = [node.op_type for node in onnx_file.walk(hostile.nested_loops())]
    assert names == ["Loop", "Identity", "Loop", "Identity", "Neg"]


@pytest.mark.parametrize(
    ("name", "command", "isolated"),
    [
        ("endless_condition", "verify", False),
        ("endless_condition", "verify", True),
        ("endless_condition", "diff", False),
        ("endless_count", "explain", False),
        ("folded_product", "verify", True),
        ("long_product", "verify", False),
        ("endless_condition", "inspect", False),
    ],
)
def test_the_program_ends_in_time_without_a_signal(
    name: str, command: str, isolated: bool, tmp_path: Path
) -> None:
    path, healthy = (
        hostile.save(getattr(hostile, name), tmp_path),
        hostile.save(lambda: hostile.calls(2, 1), tmp_path),
    )
    (tmp_path / "model.py").write_text(
        "import torch\nclass Negative(torch.nn.Module):\n    def forward(self, x):\n        return -x\n"
        "def build():\n    return Negative(), (torch.ones(2, 2),)\n"
    )
    reference_of = {"diff": str(healthy), "inspect": None}.get(
        command, f"{tmp_path / 'model.py'}:build"
    )
    options = (
        []
        if command == "inspect"
        else ["--time-limit", "4", "--budget", "6", *(["--isolate"] if isolated else [])]
    )
    words = [command, *([reference_of] if reference_of else []), str(path), *options]
    done = subprocess.run(
        [sys.executable, "-m", "onnxproof.cli", *words],
        timeout=2 * LATE_S,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode in ((0,) if command == "inspect" else (1, 2)), done.stderr
    assert "Traceback" not in done.stderr
    assert "error[internal]" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_a_run_that_is_left_behind_leaves_no_small_limit_of_memory_behind(
    nothing_behind: None,
) -> None:
    before, end = resource.getrlimit(resource.RLIMIT_DATA), threading.Event()
    with pytest.raises(Crashed, match="left behind"):
        guard.run(end.wait, limit_s=0.01, what="`x`", memory_gb=0.3)
    meanwhile, _ = resource.getrlimit(resource.RLIMIT_DATA)
    assert meanwhile == before[0] or meanwhile > 2 << 30, (
        "other runs still get what the machine has"
    )
    end.set()
    deadline = time.monotonic() + 30
    while guard._left_behind and time.monotonic() < deadline:
        guard.run(lambda: None, limit_s=60, what="`x`")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_case_for_which_memory_is_short_is_dropped_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file answered others: what the machine lacks at the moment says nothing about it."""
    path, asked = tmp_path / "negative.onnx", []
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 18]> negative (float[batch, width] x) => (float[batch, width] y) { y = Neg(x) }'
        ),
        path,
    )
    run = ort.OrtSession.run

    def short(session: ort.OrtSession, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        asked.append(max(array.size for array in inputs.values()))
        if asked[-1] > 1000:
            raise Refused("out-of-memory", "onnxruntime would need more memory than there is")
        return run(session, inputs)

    class Negative(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -x

    monkeypatch.setattr(ort.OrtSession, "run", short)
    proof = onnxproof.verify(Negative(), path, (torch.ones(2, 2),), budget_s=20, explain=False)
    assert max(asked) > 1000 and proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert any(
        "would need more memory than there is at the moment" in drop.reason
        for drop in proof.dropped
    )
