"""Hostile subjects and data: no code runs, nothing is written, nothing hangs, and the memory stays bounded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.hostile_subjects import ATTACKS, LIVE

from onnxproof.errors import SubjectError
from onnxproof.reference import subject
from onnxproof.reference.archives._expressions import plain_guard, plain_size
from onnxproof.reference.archives._fields import plain_operator

pytest.importorskip("transformers")
SUPPORT = Path(__file__).parents[1] / "support"
GROWN_KB = 1 << 19
"""Half a gigabyte: the healthy folder adds 40 MB, and a bomb of 200 MB that is unpacked, copied and parsed adds more."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All of them in one process of its own, with nothing on its standard input and a limit on its memory."""
    root = tmp_path_factory.mktemp("hostile")
    environment = {
        **os.environ,
        "HF_HOME": str(root / "cache"),
        "PYTHONPATH": os.pathsep.join([str(SUPPORT.parent), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }
    (root / "files").mkdir()
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "hostile_subjects.py"), str(root / "files")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        check=False,
    )
    found = dict(
        json.loads(line.removeprefix("RESULT "))
        for line in done.stdout.splitlines()
        if line.startswith("RESULT ")
    )
    assert done.returncode == 0 and set(found) == set(ATTACKS), done.stderr[-2000:]
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_file_is_refused_and_runs_nothing(
    outcomes: dict[str, dict[str, Any]], name: str
) -> None:
    found = outcomes[name]
    assert not found["ran"], "its code ran"
    assert found["outcome"] in ATTACKS[name][1], found["outcome"]
    assert found["written"] == []
    assert found["grown_kb"] < GROWN_KB


@pytest.mark.parametrize("name", LIVE)
def test_the_attack_is_a_real_one(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    """torch's own loader runs the code: what is refused is not refused for being harmless."""
    assert outcomes[name]["live"]


def test_there_are_enough_of_each_kind() -> None:
    hostile = [name for name, (_, codes) in ATTACKS.items() if codes != ("loaded",)]
    assert (
        len(hostile) >= 50
        and sum(name.startswith("torchscript") for name in hostile) >= 8
        and sum(name.startswith("folder") for name in hostile) >= 8
    )


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "3*s0 + 1",
        "Symbol('s77', positive=True, integer=True)",
        "Add(Mul(Integer(3), Symbol('s0', integer=True)), Integer(-1))",
        "FloorDiv(s0, 2)",
        "Max(1, Mod(s0, 8))",
        "s0**2",
        "Pow(Symbol('u0'), Integer(2))",
        "Float('0.5', precision=53)",
        "Rational(1, 2)",
        "Eq(s0, 1)",
        "s0 < 5",
        "oo",
    ],
)
def test_arithmetic_on_sizes_is_plain(text: str) -> None:
    assert plain_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "os.system",
        "Symbol('s0').__class__",
        "lambda: 1",
        "(lambda x: x)(1)",
        "[1]",
        "{1}",
        "f'{s0}'",
        "'a'",
        "'a1' * 999999999",
        "s0 if s0 else exec('1')",
        "exec('1')",
        "eval(s0)",
        "Symbol(\"__import__('os')\")",
        "Pow(9, Pow(9, 9))",
        "9**9**9**9",
        "LShift(1, 10000000)",
        "sympify('1')",
        "preview(s0)",
        "lambdify(s0, s0)",
        "Symbol(*s0)",
        "Symbol('s0', **s0)",
        "s0#",
        "s0\n",
        "s0; s1",
        "s0 := 1",
        "(" * 500 + "1" + ")" * 500,
        "1" * 5000,
        "ｅｘｅｃ('1')",
        "Integer(9)**Integer(99999)",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert not plain_size(text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("L['x'].size()[0] >= 2", True),
        ("((-1) + L['x'].size()[0]) != 1", True),
        ("(L['x'].size()[0] // 2) >= 2", True),
        ("L['args'][0]['a b'].stride()[1] == 1", True),
        ("math.floor(L['x'].size()[0] / 2) > 1", True),
        ("Mod(L['x'].size()[1], 8) == 0", True),
        ("L['x'].__class__", False),
        ("L['x'].numpy().tofile('a')", False),
        ("math.__loader__", False),
        ("__import__('os')", False),
        ("L.x.y()", False),
        ("L['\"']", False),
        ("L['a\\n']", False),
        ("torch.save(L, 'f')", False),
        ("L['x'] # no", False),
    ],
)
def test_guards_compare_sizes_and_do_nothing_else(text: str, plain: bool) -> None:
    assert plain_guard(text) is plain


@pytest.mark.parametrize(
    ("target", "plain"),
    [
        ("torch.ops.aten.add.Tensor", True),
        ("torch.ops.aten.__and__.Tensor", True),
        ("torch.ops.higher_order.cond", True),
        ("_operator.getitem", True),
        ("math.ceil", True),
        ("torch.sym_max", True),
        ("torch.ops.quantized_decomposed.quantize_per_tensor.default", True),
        ("torch.ops.aten.from_file.default", False),
        ("torch.ops.aten.from_file", False),
        ("torch.ops.aten.__class__.mro", False),
        ("torch.ops.load_library", False),
        ("torch.ops.higher_order.triton_kernel_wrapper_mutation", False),
        ("torch.load", False),
        ("torch.hub.load", False),
        ("_operator.attrgetter", False),
        ("os.system", False),
        ("torch.ops.aten.add.Tensor.__globals__", False),
        ("math.__loader__", False),
        ("#x:y", False),
        ("", False),
    ],
)
def test_operators_compute_and_do_nothing_else(target: str, plain: bool) -> None:
    assert plain_operator(target) is plain


def test_a_refusal_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    path = ATTACKS["evaluated_size"][0](tmp_path)
    with pytest.raises(
        SubjectError,
        match=r"error\[code-refused\]: `net.pt2` is refused: its field `graph_module.graph.tensor_values.x.sizes\[0\].as_expr.expr_str` is not plain data: "
        r"it is more than arithmetic on sizes\n  --> .*net.pt2\n  = note: it says __import__.*\n  = help: save it again with `torch.export.save`",
    ):
        subject.load(path)
