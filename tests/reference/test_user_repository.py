"""Code, checkpoints and configs of a user's repository: what fits is told, and what doesn't is an error at the user's own line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onnxproof import Input, Subject
from onnxproof.errors import InputError, SubjectError
from onnxproof.reference import checkpoint, subject

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden: int, act="relu"):
        super().__init__()
        self.body = nn.Linear(4, hidden)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x):
        return self.norm(self.body(x))


def from_config(config):
    return Net(config.model.hidden, config["act"])


def broken(hidden=3):
    net = Net(hidden)
    return net.load_state_dict({})


class Refuses(nn.Module):
    def forward(self, x):
        y = x + 1
        return torch.relu(y) @ torch.zeros(77, 2)


class Ids(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2, 3)

    def forward(self, ids, *, mask):
        return self.table(ids) * mask[..., None]
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NET)
    return tmp_path


def load(**said: Any) -> Subject:
    said.setdefault("source", "nets.py:Net")
    return subject.load(Subject(**said), (torch.zeros(2, 4),))


def state(hidden: int = 6) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return nn.ModuleDict(
        {"body": nn.Linear(4, hidden), "norm": nn.BatchNorm1d(hidden)}
    ).state_dict()


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in state().items()}


CHECKPOINTS: dict[str, tuple[Any, str]] = {
    "plain": (state(), "7 weights of `c.pt`"),
    "state_dict": ({"state_dict": state(), "epoch": 1}, "from `state_dict`"),
    "parallel": ({"model": prefixed("module.")}, "from `model`, without the prefix `module.`"),
    "lightning": ({"state_dict": prefixed("model.")}, "without the prefix `model.`"),
    "compiled": (prefixed("_orig_mod."), "without `_orig_mod.`"),
    "all of them": (prefixed("module._orig_mod.model."), "without the prefix `module.model.`"),
    "deep": ({"ckpt": {"nets": {"g": state()}}}, "from `ckpt.nets.g`"),
    "beside others": (
        {**prefixed("net."), "loss.weight": torch.ones(2)},
        "without the prefix `net.`; left out are loss.weight",
    ),
    "half": ({key: value.half() for key, value in state().items()}, "float16 as float32"),
    "two": ({"model": state(), "ema": state()}, "`ema` fits as well (`--weights c.pt:ema`)"),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_loaded_and_told(name: str, repository: Path) -> None:
    content, words = CHECKPOINTS[name]
    torch.save(content, "c.pt")
    loaded = load(arguments={"hidden": 6}, weights="c.pt")
    weight = state()["body.weight"]
    torch.testing.assert_close(loaded.module.body.weight.detach(), weight, rtol=1e-3, atol=1e-3)
    assert words in loaded.findings[-1].what


def test_one_dict_of_a_checkpoint_can_be_named(repository: Path) -> None:
    doubled = {key: value * 2 for key, value in state().items()}
    torch.save({"model": state(), "ema": doubled}, "c.pt")
    loaded = load(arguments={"hidden": 6}, weights="c.pt:ema")
    torch.testing.assert_close(loaded.module.body.weight.detach(), doubled["body.weight"])
    with pytest.raises(SubjectError, match=r"`c\.pt` has no dict of tensors `best`"):
        load(arguments={"hidden": 6}, weights="c.pt:best")


def test_what_does_not_fit_is_named(repository: Path) -> None:
    content = state()
    del content["norm.weight"]
    torch.save(content | {"head.weight": torch.ones(2)}, "c.pt")
    with pytest.raises(SubjectError) as raised:
        load(arguments={"hidden": 6}, weights="c.pt")
    message = str(raised.value)
    assert "1 weights are missing, 1 are unexpected, 0 have another shape" in message
    assert "missing in the checkpoint: norm.weight" in message
    assert "not in the module: head.weight" in message
    with pytest.raises(SubjectError, match=r"body\.weight is \[6, 4\] and should be \[5, 4\]"):
        torch.save(state(), "c.pt")
        load(arguments={"hidden": 5}, weights="c.pt")
    with pytest.raises(SubjectError, match=r"no weight of `o\.pt` fits `Net`"):
        torch.save({"a": torch.ones(3)}, "o.pt")
        load(arguments={"hidden": 5}, weights="o.pt")


class Opens:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("executed", "w")


def test_a_pickle_in_a_checkpoint_is_not_executed(repository: Path) -> None:
    torch.save({"model": state(), "trainer": Opens()}, "c.pt")
    with pytest.raises(SubjectError, match="holds Python objects beside tensors"):
        checkpoint.read("c.pt")
    assert not Path("executed").exists()


def test_arguments_from_a_config_a_section_and_settings(repository: Path) -> None:
    Path("c.json").write_text(json.dumps({"data": {"root": "/"}, "model": {"hidden": 5}}))
    loaded = load(config="c.json")
    assert loaded.module.body.out_features == 5
    assert "the section `model` of `c.json`" in loaded.findings[0].what
    assert load(config="c.json:model", arguments={"hidden": 7}).module.body.out_features == 7
    whole = {"source": "nets.py:from_config", "config": "c.json"}
    with_act = load(**whole, arguments={"act": "gelu", "model.hidden": 9})
    assert with_act.module.body.out_features == 9
    assert with_act.origin.endswith("--set act=gelu --set model.hidden=9 --config c.json")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, r"`Net` needs `hidden`\n.*hidden, act\n  = help: say `--set hidden=VALUE`"),
        (
            {"arguments": {"hiden": 3}},
            r"takes no argument `hiden`\n(.*\n)+.*did you mean `--set hidden",
        ),
        ({"config": "none.yaml"}, "there is no config file `none.yaml`"),
        ({"config": "flat.json"}, "neither `flat.json` nor one section of it"),
        ({"config": "flat.json:model"}, "`flat.json` has no section `model`"),
        ({"source": "m.onnx", "weights": "c.pt"}, "takes no arguments and no weights"),
        (
            {"source": "nets.py:broken"},
            r"`broken\(\)` raised RuntimeError(.*\n)*  --> .*nets\.py:22",
        ),
        (
            {"source": "late.py:Net"},
            r"importing `late.py` raised NameError(.*\n)*  --> .*late\.py:2",
        ),
        ({"source": "typo.py:Net"}, r"raised SyntaxError(.*\n)*  --> .*typo\.py:1"),
        ({"source": "nowhere.nets:Net"}, r"can't be imported(.*\n)*  = note: looked for in "),
        ({"source": "needs:Net"}, r"raised ModuleNotFoundError.*absent(.*\n)*  --> .*needs\.py:1"),
    ],
)
def test_errors_point_at_the_users_file_and_line(
    said: dict[str, Any], words: str, repository: Path
) -> None:
    Path("flat.json").write_text('{"width": 3, "depth": 4}')
    Path("late.py").write_text("import torch\nNet = torch.nn.Linear(widht, 2)\n")
    Path("typo.py").write_text("def Net(:\n")
    Path("needs.py").write_text("import absent_package_of_nobody\n")
    with pytest.raises(SubjectError, match=words):
        load(**said)


def test_a_refused_example_points_at_the_line_of_forward(repository: Path) -> None:
    import onnx.parser

    import onnxproof

    text = '<ir_version: 9, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    with pytest.raises(InputError, match=r"example inputs: RuntimeError(.*\n)*  --> .*nets\.py:28"):
        onnxproof.verify("nets.py:Refuses", "m.onnx")


def test_declared_inputs_make_an_example(repository: Path) -> None:
    inputs = {
        "ids": Input(dtype="int64", shape=(2, 5)),
        "mask": Input(dtype="bool", shape=(2, 5)),
    }
    loaded = subject.load(Subject(source="nets.py:Ids", inputs=inputs))
    assert set(loaded.kwargs) == {"ids", "mask"} and bool(loaded.kwargs["mask"].all())
    assert int(loaded.kwargs["ids"].max()) == 1  # a table of two rows takes no more
    with pytest.raises(SubjectError, match=r"`forward` has no parameter `tokens`\n.*ids, mask"):
        subject.load(Subject(source="nets.py:Ids", inputs={"tokens": Input(shape=(2,))}))


def test_a_class_without_a_checkpoint_is_the_same_each_time_and_says_so(repository: Path) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again = (load(arguments={"hidden": 3}) for _ in range(2))
    assert torch.equal(first.module.body.weight, again.module.body.weight)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert "random weights" in first.findings[0].what


def test_two_repositories_with_packages_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, width in (("a", 3), ("b", 4)):
        folder = tmp_path / name / "samename"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "net.py").write_text(
            f"from torch import nn\n\ndef build():\n    return nn.Linear(4, {width})\n"
        )
    for name, width in (("a", 3), ("b", 4)):
        monkeypatch.chdir(tmp_path / name)
        assert load(source="samename.net:build").module.out_features == width
        assert load(source="samename/net.py:build").module.out_features == width
