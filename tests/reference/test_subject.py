"""Every form of a subject, what is refused and in which words, and the module left exactly as it was found."""

import json
import os
import pickle
import random
import shutil
import sys
import zipfile
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxproof.cli import main
from onnxproof.errors import SubjectError
from onnxproof.reference import subject
from onnxproof.reference.module import ModuleReference
from onnxproof.reference.subject import Subject
from onnxproof.runtimes.session.execution import Clock

X = torch.arange(12.0).reshape(3, 4)
FACTORIES = """
import torch
from torch import nn
from onnxproof import Subject

LINEAR = nn.Linear(4, 2)


def module():
    return LINEAR


def pair():
    return LINEAR, (torch.ones(3, 4),)


def full():
    return Subject(module=LINEAR, example_inputs={"input": torch.ones(3, 4)}, dynamic_shapes={"input": {0: "batch"}}, data=[torch.zeros(1, 4)], name="net")


def number():
    return 7


def raises():
    raise FileNotFoundError("weights.pt is not here")
"""


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def reference_of(module: Any, example: Any) -> ModuleReference:
    return ModuleReference(subject.load(module, example), Clock())


def answers(module: Any, example: Any) -> dict[str, np.ndarray]:
    """The reference's outputs for its own example, by name."""
    asked = reference_of(module, example)
    _, outputs = asked.leaves(asked.example())
    return {
        leaf.name: array for leaf, array in zip(outputs, asked.run(asked.example()), strict=True)
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(FACTORIES)
    return path


# --- the forms -----------------------------------------------------------------------------------------------------


def test_a_module_in_memory() -> None:
    module = Linear()
    found = subject.load(module, (X,))
    assert (
        found.module is module
        and found.name == "Linear"
        and found.origin == ""
        and len(found.args) == 1
    )


def test_a_subject_passes_through_and_the_caller_wins() -> None:
    given = Subject(
        module=Linear(), example_inputs=(X,), dynamic_shapes=({0: "b"},), name="net", data=[1]
    )
    kept, changed = (
        subject.load(given),
        subject.load(given, (X + 1,), dynamic_shapes=({1: "c"},), data=[2]),
    )
    assert (kept.dynamic_shapes, kept.data, kept.name) == (({0: "b"},), [1], "net") and torch.equal(
        kept.args[0], X
    )
    assert (changed.dynamic_shapes, changed.data) == (({1: "c"},), [2]) and torch.equal(
        changed.args[0], X + 1
    )


def test_a_file_and_a_factory_that_returns_a_module(file: Path) -> None:
    found = subject.load(f"{file}:module", (X,))
    assert (
        isinstance(found.module, nn.Linear)
        and found.name == "module"
        and found.origin == f"{file}:module"
    )


def test_a_file_that_names_the_module_itself(file: Path) -> None:
    assert isinstance(subject.load(f"{file}:LINEAR", (X,)).module, nn.Linear)


def test_a_factory_that_returns_a_pair(file: Path) -> None:
    found = subject.load(f"{file}:pair")
    assert torch.equal(found.args[0], torch.ones(3, 4)) and found.kwargs == {}
    assert torch.equal(subject.load(f"{file}:pair", (X,)).args[0], X)


def test_a_factory_that_returns_a_subject(file: Path) -> None:
    found = subject.load(f"{file}:full")
    assert (found.name, found.dynamic_shapes, len(found.data), found.origin) == (
        "net",
        {"input": {0: "batch"}},
        1,
        f"{file}:full",
    )
    assert list(found.kwargs) == ["input"] and found.args == ()


def test_a_package_and_a_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proven_zoo").mkdir()
    (tmp_path / "proven_zoo" / "__init__.py").write_text("")
    (tmp_path / "proven_zoo" / "nets.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = subject.load("proven_zoo.nets:pair")
    assert isinstance(found.module, nn.Linear) and found.origin == "proven_zoo.nets:pair"
    monkeypatch.delitem(sys.modules, "proven_zoo.nets")


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_model.py").write_text("from torch import nn\nNET = nn.Linear(4, 2)\n")
    (tmp_path / "main.py").write_text(
        "from neighbour_of_model import NET\ndef build():\n    return NET\n"
    )
    before = list(sys.path)
    assert isinstance(subject.load(f"{tmp_path / 'main.py'}:build", (X,)).module, nn.Linear)
    assert sys.path[: len(before)] == before  # what it imports later is looked for behind


def test_an_exported_program(tmp_path: Path) -> None:
    module = nn.Linear(4, 2).eval()
    torch.export.save(torch.export.export(module, (X,)), tmp_path / "net.pt2")
    found = subject.load(tmp_path / "net.pt2")
    assert found.name == "net" and torch.equal(found.args[0], X)
    (answer,) = answers(found, None).values()
    np.testing.assert_allclose(answer, module(X).detach().numpy(), rtol=1e-6)


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, *, shift: Tensor) -> Tensor:
        return x + shift


def test_an_exported_program_with_keyword_inputs(tmp_path: Path) -> None:
    torch.export.save(
        torch.export.export(TwoInputs(), (), {"x": X, "shift": X}), tmp_path / "net.pt2"
    )
    (answer,) = answers(tmp_path / "net.pt2", None).values()
    assert np.array_equal(answer, 2 * X.numpy())


def test_an_exported_program_with_positional_and_keyword_inputs(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(TwoInputs(), (X,), {"shift": X}), tmp_path / "net.pt2")
    (answer,) = answers(tmp_path / "net.pt2", None).values()
    assert np.array_equal(answer, 2 * X.numpy())


@pytest.mark.parametrize("inside", [True, False])
def test_a_subject_with_positional_and_keyword_inputs(inside: bool) -> None:
    found = subject.load(Subject(module=TwoInputs(), args=(X.numpy(),), kwargs={"shift": X}))
    (answer,) = answers(found, None).values()
    assert np.array_equal(answer, 2 * X.numpy())
    before = subject.load(
        Subject(
            module=TwoInputs(),
            args=(X,),
            kwargs={"by": X},
            preprocess=lambda x, by: {"x": x, "shift": x * by},
        ),
        inside=inside,
    )
    assert list(before.kwargs) == (["by"] if inside else ["x", "shift"])


@pytest.mark.parametrize("suffix", [".pt", ".ts", ".torchscript", ".jit"])
@pytest.mark.parametrize("how", ["script", "trace"])
def test_torchscript(tmp_path: Path, suffix: str, how: str) -> None:
    module = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    path = tmp_path / f"net{suffix}"
    (torch.jit.script(module) if how == "script" else torch.jit.trace(module.eval(), (X,))).save(
        str(path)
    )
    (answer,) = answers(path, (X,)).values()
    np.testing.assert_allclose(answer, module.eval()(X).detach().numpy(), rtol=1e-6)


def test_an_onnx_file_is_a_subject_without_torch(tmp_path: Path) -> None:
    found = subject.load(tmp_path / "net.onnx", {"x": np.ones(3)})
    assert (
        found.onnx == tmp_path / "net.onnx"
        and found.module is None
        and isinstance(found.kwargs["x"], np.ndarray)
    )
    assert subject.load(str(tmp_path / "net.onnx")).args == ()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=20,
        max_position_embeddings=32,
    )
    folder = tmp_path_factory.mktemp("tiny-bert")
    transformers.BertForSequenceClassification(config).save_pretrained(
        folder, safe_serialization=True
    )
    return folder


def test_a_hugging_face_folder(bert: Path) -> None:
    found = subject.load(str(bert))
    assert (
        type(found.module).__name__ == "BertForSequenceClassification" and found.name == bert.name
    )
    assert (
        sorted(found.kwargs) == ["attention_mask", "input_ids"]
        and int(found.kwargs["input_ids"].max()) < 20
    )
    assert found.dynamic_shapes == {
        name: {0: "batch", 1: "sequence"} for name in ("input_ids", "attention_mask")
    }
    assert {name: array.shape for name, array in answers(found, None).items()} == {"logits": (2, 2)}


# --- what is refused -----------------------------------------------------------------------------------------------


class Evil:
    """Unpickling this makes a directory: the proof that something was executed."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._place),)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ts"])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_checkpoint_is_refused_and_not_executed(
    tmp_path: Path, suffix: str, zipped: bool
) -> None:
    path, trace = tmp_path / f"weights{suffix}", tmp_path / "executed"
    torch.save({"a": Evil(trace)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(SubjectError, match="holds no code, only pickled weights") as caught:
        subject.load(path, (X,))
    assert not trace.exists() and caught.value.code == "not-torchscript"
    assert (
        "onnxproof reads no pickle" in str(caught.value)
        and "weights_only=True" in caught.value.help
    )


def test_a_pickle_that_calls_itself_an_exported_program_is_not_executed(tmp_path: Path) -> None:
    path, trace = tmp_path / "net.pt2", tmp_path / "executed"
    torch.save({"a": Evil(trace)}, path)
    with pytest.raises(SubjectError, match=r"`net\.pt2` holds a pickle that could run code"):
        subject.load(path)
    assert not trace.exists()


class WithConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.shift = nn.Linear(4, 2), torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.shift


@pytest.mark.parametrize("part", ["sample_inputs", "weights", "constants"])
def test_a_pickle_hidden_in_an_exported_program_is_not_executed(tmp_path: Path, part: str) -> None:
    """Every pickled member of the archive is exchanged for one with a side effect."""
    whole, path, trace = tmp_path / "whole.pt2", tmp_path / "net.pt2", tmp_path / "executed"
    torch.export.save(torch.export.export(WithConstant().eval(), (X,)), whole)
    torch.save({"a": Evil(trace)}, tmp_path / "evil.pt")
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        hit = [name for name in source.namelist() if part in name and not name.endswith(".json")]
        assert hit
        for name in source.namelist():
            target.writestr(
                name, (tmp_path / "evil.pt").read_bytes() if name in hit else source.read(name)
            )
    try:
        subject.load(path)
    except SubjectError as why:
        assert why.code in ("bad-pt2", "no-example", "pickle-refused")
    assert not trace.exists()


def test_a_torchscript_file_with_a_pickle_inside_is_not_executed(tmp_path: Path) -> None:
    whole, path, trace = tmp_path / "whole.pt", tmp_path / "net.pt", tmp_path / "executed"
    torch.jit.script(nn.Linear(4, 2)).save(str(whole))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(
                name, pickle.dumps(Evil(trace)) if name.endswith("data.pkl") else source.read(name)
            )
    with pytest.raises(SubjectError, match="can't be read as TorchScript"):
        subject.load(path, (X,))
    assert not trace.exists()


def test_a_hugging_face_folder_with_pickled_weights_is_refused_and_not_executed(
    bert: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "executed"
    (tmp_path / "config.json").write_text((bert / "config.json").read_text())
    torch.save({"a": Evil(trace)}, tmp_path / "pytorch_model.bin")
    with pytest.raises((SubjectError, OSError), match="safetensors"):
        subject.load(tmp_path)
    assert not trace.exists()


def test_a_hugging_face_folder_without_safe_weights_has_an_error_of_ours(
    bert: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text((bert / "config.json").read_text())
    with pytest.raises(SubjectError, match="safetensors"):
        subject.load(tmp_path)


@pytest.fixture
def with_code(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose model is a class of its own file; importing that file makes the folder `executed`."""
    folder = tmp_path / "with_code"
    shutil.copytree(bert, folder)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"auto_map": {"AutoModel": "mine.Mine"}, "architectures": ["Mine"]}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "mine.py").write_text(
        f"import os\nfrom transformers import BertModel\nos.makedirs({str(tmp_path / 'executed')!r}, exist_ok=True)\nclass Mine(BertModel):\n    pass\n"
    )
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    return folder


def test_code_in_a_folder_is_refused_and_nobody_is_asked(with_code: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SubjectError,
        match=r"error\[remote-code\]: `with_code` brings code of its own.*\n.*\n  = note: its config.json names \['mine.Mine'\]\n.*`--trust-remote-code`",
    ):
        subject.load(with_code)
    assert not (tmp_path / "executed").exists()


def test_code_in_a_folder_is_run_where_that_is_asked_for(with_code: Path, tmp_path: Path) -> None:
    found = subject.load(Subject(source=with_code, trust_remote_code=True))
    assert type(found.module).__name__ == "Mine" and (tmp_path / "executed").exists()
    assert found.origin == f"{with_code} --trust-remote-code" and sorted(found.kwargs) == [
        "attention_mask",
        "input_ids",
    ]


def test_a_source_and_an_example_make_a_subject(file: Path) -> None:
    found = subject.load(Subject(source=f"{file}:module", example_inputs=(X,), name="mine"))
    assert (
        found.name == "mine" and found.origin == f"{file}:module" and torch.equal(found.args[0], X)
    )


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_the_command_refuses_code_and_takes_the_option(
    with_code: Path, tmp_path: Path, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main([command, str(with_code), "m.onnx"]) == 2
        and "error[remote-code]" in capfd.readouterr().err
    )
    assert main([command, str(with_code), "m.onnx", "--trust-remote-code"]) == 2
    assert (
        "error[no-such-file]: there is no file `m.onnx`" in capfd.readouterr().err
        and (tmp_path / "executed").exists()
    )


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        (
            "{file}:nothing",
            "no-factory",
            r"has no `nothing`\n.*\n  = note: it defines module, pair, full, number, raises",
        ),
        ("{file}:number", "bad-factory", r"`number\(\)` returned a int"),
        (
            "{file}:raises",
            "factory-raised",
            r"`raises\(\)` raised FileNotFoundError: weights.pt is not here\n  --> .*model.py:26",
        ),
        ("{folder}/absent.py:build", "no-such-file", r"there is no file `.*absent.py`"),
        ("{folder}/absent.pt", "no-such-file", r"there is no file `.*absent.pt`"),
        ("{folder}/absent.pt2", "no-such-file", r"there is no file `.*absent.pt2`"),
        (
            "no_such_package.nets:build",
            "no-module",
            r"`no_such_package.nets` can't be imported: No module named",
        ),
        (
            "resnet",
            "unknown-subject",
            r"`resnet` is not something onnxproof can load\n  = help: give an nn.Module, an estimator, a function of arrays, `file.py:factory`",
        ),
        ("{folder}", "not-a-model-folder", r"has no config.json"),
        (
            "{file}:module",
            "no-example",
            r"`module` needs example inputs to be called with\n.*\n  = help: say what they are, as in `--input .*`, pass example_inputs, or let the factory return",
        ),
    ],
)
def test_errors_say_what_where_and_what_to_do(
    file: Path, source: str, code: str, words: str
) -> None:
    with pytest.raises(SubjectError, match=words) as caught:
        subject.load(source.format(file=file, folder=file.parent))
    assert caught.value.code == code and str(caught.value).startswith(f"error[{code}]: ")


def test_a_file_that_raises_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\n\n1 / 0\n")
    with pytest.raises(
        SubjectError,
        match=r"importing `.*broken.py` raised ZeroDivisionError: division by zero\n  --> .*broken.py:3",
    ):
        subject.load(f"{tmp_path / 'broken.py'}:build", (X,))


def test_a_file_with_a_syntax_error_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def build(:\n")
    with pytest.raises(SubjectError, match=r"raised SyntaxError"):
        subject.load(f"{tmp_path / 'broken.py'}:build", (X,))


def test_what_is_no_subject_is_told() -> None:
    with pytest.raises(SubjectError, match="a int is not something onnxproof can load"):
        subject.load(7, (X,))


def test_a_damaged_torchscript_file_is_told(tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(4, 2)).save(str(tmp_path / "net.pt"))
    whole = (tmp_path / "net.pt").read_bytes()
    (tmp_path / "net.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SubjectError):
        subject.load(tmp_path / "net.pt", (X,))


# --- left as it was found ------------------------------------------------------------------------------------------


class Busy(nn.Module):
    """Everything that a forward pass may leave behind."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4))
        self.calls, self.cache, self.table = 0, [], {}
        self.plain = torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        self.last = x[0].detach().clone()
        self.cache.append(x)
        self.table[self.calls] = x.shape
        self.plain.add_(1)
        self.extra = x
        return self.drop(self.norm(x)) + self.seen + torch.rand(()) * 0


def use(module: nn.Module, example: Any = (X,)) -> None:
    """Everything a verification does with a module."""
    asked = reference_of(module, example)
    inputs = asked.example()
    asked.leaves(inputs)
    asked.truth(inputs)
    asked.truth(inputs)
    asked.rerun(inputs, 1)
    asked.ties(inputs, "last")
    asked.in_precision(inputs, "float16")


def test_training_flags_are_put_back_module_by_module() -> None:
    module = Busy()
    module.train()
    module.norm.eval()
    use(module)
    assert {name: m.training for name, m in module.named_modules()} == {
        "": True,
        "norm": False,
        "drop": True,
    }
    module.eval()
    module.drop.train()
    use(module)
    assert {name: m.training for name, m in module.named_modules()} == {
        "": False,
        "norm": False,
        "drop": True,
    }


def test_parameters_and_buffers_are_put_back() -> None:
    module = Busy().train()
    before = {
        name: (tensor, tensor.clone()) for name, tensor in module.state_dict(keep_vars=True).items()
    }
    use(module)
    after = module.state_dict(keep_vars=True)
    assert list(after) == list(before)
    for name, (tensor, value) in before.items():
        assert (
            after[name] is tensor and torch.equal(tensor, value) and tensor.dtype == value.dtype
        ), name
    assert module.plain.tolist() == [0, 0]


def test_random_state_is_put_back() -> None:
    module = Busy()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    use(module)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_plain_attributes_and_caches_are_put_back() -> None:
    module = Busy()
    cache, table = module.cache, module.table
    use(module)
    assert (module.calls, module.cache, module.table) == (0, [], {}) and not hasattr(
        module, "extra"
    )
    assert module.cache is cache and module.table is table


def test_a_growing_cache_is_told() -> None:
    asked = reference_of(Busy(), (X,))
    asked.run(asked.example())
    assert {"`cache`", "`calls`", "`extra`", "`table`", "a buffer written in place"} <= set(
        asked.findings()
    )


def test_a_stateful_module_answers_the_same_every_time() -> None:
    asked = reference_of(Busy(), (X,))
    first, second = asked.run(asked.example())[0], asked.run(asked.example())[0]
    assert np.array_equal(first, second)


def test_everything_is_put_back_when_forward_raises() -> None:
    class Raises(Busy):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise RuntimeError("no")

    module = Raises().train()
    state = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="no"):
        reference_of(module, (X,)).run({"x": X.numpy()})
    assert (
        module.training
        and module.cache == []
        and module.seen == 0
        and torch.equal(torch.random.get_rng_state(), state)
    )


class Grows(nn.Module):
    """State in the places where a keeper may not look."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.ones(4))
        self._cache: list[Any] = []
        self.tensors = [torch.zeros(1)]
        self.nested: dict[str, list[Any]] = {"seen": []}

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "parameter":
            self.weight.mul_(2)
        if self.kind == "data":
            self.weight.data.mul_(2)
        if self.kind == "late" and x.sum() > 100:
            self.weight.mul_(2)
        if self.kind == "_cache":
            self._cache.append(1)
        if self.kind == "tensors":
            self.tensors.append(x)
        if self.kind == "nested":
            self.nested["seen"].append(1)
        return x * self.weight + len(self._cache) + len(self.tensors) + len(self.nested["seen"])


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("parameter", "the parameter `weight`"),
        ("data", "the parameter `weight`"),
        ("_cache", "`_cache`"),
        ("tensors", "`tensors`"),
        ("nested", "`nested`"),
    ],
)
def test_hidden_state_is_put_back(kind: str, told: str) -> None:
    module = Grows(kind)
    asked = reference_of(module, (X,))
    for _ in range(3):
        asked.run(asked.example())
    use(module)
    assert torch.equal(module.weight, torch.ones(4)) and asked.findings() == [told]
    first, second = (asked.truth(asked.example()) for _ in range(2))
    assert first is not None and second is not None and np.array_equal(first[0], second[0]), (
        "the copy in float64 is put back, too"
    )
    assert (module._cache, len(module.tensors), module.nested) == ([], 1, {"seen": []})


def test_a_parameter_first_written_by_a_later_pass_is_told() -> None:
    """Its copy is gone by then: one of every parameter would double the memory of each verification."""
    asked = reference_of(Grows("late"), (X,))
    asked.run(asked.example())
    assert not asked.findings()
    asked.run({"x": np.full_like(X.numpy(), 1e3)})
    assert asked.findings() == ["the parameter `weight`, which could not be put back"]


def test_the_callers_inputs_are_not_written_to() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor, more: dict[str, Tensor]) -> Tensor:
            return x.zero_() + more["a"].zero_()

    x, a = X.clone(), X.clone()
    asked = reference_of(InPlace(), (x, {"a": a}))
    inputs = asked.example()
    asked.run(inputs)
    asked.truth(inputs)
    assert (
        torch.equal(x, X)
        and torch.equal(a, X)
        and all(np.array_equal(v, X.numpy()) for v in inputs.values())
    )


def test_other_random_states_are_left_alone() -> None:
    state, python = np.random.get_state()[1].tolist(), random.getstate()
    use(Busy())
    assert np.random.get_state()[1].tolist() == state and random.getstate() == python


# --- example inputs and outputs ------------------------------------------------------------------------------------


class Nested(nn.Module):
    def forward(
        self,
        x: Tensor,
        past: Any,
        scale: float = 1.0,
        *,
        more: dict[str, Any] | None = None,
        flag: bool = False,
    ) -> Tensor:
        total = x * scale + past[0][0] + past[0][1] + past[1]
        return total + more["a"] + more["b"][0] if more else total


def leaves(module: nn.Module, example: Any) -> dict[str, tuple[int, ...]]:
    asked = reference_of(module, example)
    return {leaf.name: leaf.shape for leaf in asked.leaves(asked.example())[0]}


def test_inputs_as_a_tuple_a_list_a_dict_and_a_single_tensor() -> None:
    assert (
        leaves(Linear(), (X,))
        == leaves(Linear(), [X])
        == leaves(Linear(), {"x": X})
        == leaves(Linear(), X)
        == {"x": (3, 4)}
    )


def test_nested_inputs_are_named_by_their_path() -> None:
    example = (X, ((X, X), X))
    assert leaves(Nested(), example) == {
        "x": (3, 4),
        "past.0.0": (3, 4),
        "past.0.1": (3, 4),
        "past.1": (3, 4),
    }
    assert np.array_equal(answers(Nested(), example)["output"], 4 * X.numpy())


def test_nested_keywords_with_plain_values_between() -> None:
    example = {"x": X, "past": [(X, X), X], "scale": 2.0, "more": {"a": X, "b": [X]}, "flag": True}
    assert list(leaves(Nested(), example)) == [
        "x",
        "past.0.0",
        "past.0.1",
        "past.1",
        "more.a",
        "more.b.0",
    ]
    assert np.array_equal(answers(Nested(), example)["output"], 7 * X.numpy())


def test_keywords_in_another_order_than_forward() -> None:
    example = {"past": ((X, X), X), "x": X * 10}
    assert np.array_equal(answers(Nested(), example)["output"], 13 * X.numpy())


def test_none_and_defaults_are_no_inputs() -> None:
    assert list(leaves(Nested(), {"x": X, "past": ((X, X), X), "more": None})) == [
        "x",
        "past.0.0",
        "past.0.1",
        "past.1",
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "float16"])
def test_numpy_arrays_are_taken(dtype: str) -> None:
    class Same(nn.Module):
        def forward(self, x: Tensor, rest: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            return x.clone(), rest["a"].clone()

    array = np.arange(4).astype(dtype)
    found = answers(Same(), (array, {"a": array}))
    assert [(a.dtype, a.tolist()) for a in found.values()] == [(array.dtype, array.tolist())] * 2


def test_star_arguments_keep_their_order() -> None:
    class Stars(nn.Module):
        def forward(self, first: Tensor, *rest: Tensor, **named: Tensor) -> Tensor:
            return first + 10 * rest[0] + 100 * rest[1] + 1000 * named.get("k", torch.zeros(()))

    assert list(leaves(Stars(), (X, X, X))) == ["first", "rest.0", "rest.1"]
    assert np.array_equal(answers(Stars(), (X, X, X))["output"], 111 * X.numpy())


@dataclass
class Answer:
    scores: Tensor
    hidden: tuple[Tensor, ...]
    nothing: Tensor | None = None
    size: int = 3


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("wrap", "names"),
    [
        (lambda y: y, ["output"]),
        (lambda y: {"scores": y, "aux": {"a": y}}, ["scores", "aux.a"]),
        (lambda y: (y, (y, [y])), ["0", "1.0", "1.1.0"]),
        (lambda y: Pair(left=y, right=y), ["left", "right"]),
        (lambda y: Answer(scores=y, hidden=(y, y)), ["scores", "hidden.0", "hidden.1", "size"]),
        (lambda y: {"a": None, "b": y}, ["b"]),
    ],
)
def test_outputs_are_named_by_key_field_or_place(wrap: Any, names: list[str]) -> None:
    class Wrapped(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return wrap(x * 2)

    found = answers(Wrapped(), (X,))
    assert list(found) == names
    assert all(
        np.array_equal(array, 2 * X.numpy()) for name, array in found.items() if name != "size"
    )


def test_a_bfloat16_output_keeps_its_dtype() -> None:
    class Half(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(torch.bfloat16)

    assert str(answers(Half(), (X,))["output"].dtype) == "bfloat16"


def test_a_plain_function_is_a_subject() -> None:
    found = answers(lambda x: x + 1, (X,))
    assert np.array_equal(found["output"], X.numpy() + 1)
