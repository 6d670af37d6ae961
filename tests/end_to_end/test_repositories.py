"""Twelve shapes of repositories, each from its root by one command of the real command line; and the same command on a file with a wrong weight."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import numpy_helper
from torch import nn

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)
WEIGHT = (np.arange(24, dtype=np.float32).reshape(3, 8) - 11) / 10
BIAS = np.array([0.5, -0.25, 0.125], np.float32)
LINEAR = """<ir_version: 9, opset_import: ["": 17]>
linear (float[batch, 8] {name}) => (float[batch, 3] y)
<float[3, 8] weight = {{{weight}}}, float[3] bias = {{{bias}}}>
{{ y = Gemm<transB = 1>({name}, weight, bias) }}"""
SHIFTED = """<ir_version: 9, opset_import: ["": 17]>
shifted (float[batch, 8] x, float[8] shift) => (float[batch, 3] y)
<float[3, 8] weight = {{{weight}}}, float[3] bias = {{{bias}}}>
{{ moved = Add(x, shift)
   y = Gemm<transB = 1>(moved, weight, bias) }}"""
FILLED = """
import torch
from torch import nn


def fill(linear):
    with torch.no_grad():
        linear.weight.copy_((torch.arange(24.0).reshape(3, 8) - 11) / 10)
        linear.bias.copy_(torch.tensor([0.5, -0.25, 0.125]))
    return linear
"""
NET = """
from torch import nn
{imports}

class Net(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.linear = nn.Linear({width}, 3)

    def forward(self, {forward}):
        return self.linear({value})
"""


def net(
    *,
    imports: str = "",
    parameters: str = "width=8",
    forward: str = "x",
    value: str = "x",
) -> str:
    return NET.format(
        imports=imports, parameters=parameters, width="width", forward=forward, value=value
    )


def numbers(array: Any) -> str:
    return ", ".join(f"{value:.9g}" for value in np.asarray(array).reshape(-1))


def files(folder: Path, text: str = LINEAR, name: str = "x") -> None:
    """`good.onnx`, and `bad.onnx` with one bias changed."""
    for path, bias in (("good.onnx", BIAS), ("bad.onnx", BIAS + np.array([0, 0.01, 0]))):
        words = text.format(name=name, weight=numbers(WEIGHT), bias=numbers(bias))
        onnx.save(onnx.parser.parse_model(words), folder / path)


def weights(prefix: str = "linear.") -> dict[str, torch.Tensor]:
    return {f"{prefix}weight": torch.tensor(WEIGHT), f"{prefix}bias": torch.tensor(BIAS)}


def write(folder: Path, **texts: str) -> None:
    """Files by their paths, in which `__` stands for a slash and the suffix is `.py`."""
    for name, text in texts.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def package(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            (path / "__init__.py").touch()


def src_layout(folder: Path) -> str:
    write(
        folder,
        src__proj__layers="from torch import nn\nLinear = nn.Linear\n",
        src__proj__model=net(imports="from .layers import Linear"),
    )
    package(folder / "src" / "proj")
    compiled = {f"_orig_mod.{key}": value for key, value in weights().items()}
    torch.save({"epoch": 3, "state_dict": compiled}, folder / "ckpt.pt")
    return "proj.model:Net good.onnx --weights ckpt.pt"


def flat(folder: Path) -> str:
    write(
        folder,
        layers=FILLED,
        net="from layers import fill\nfrom torch import nn\nimport torch\n\n"
        "def build():\n    return fill(nn.Linear(8, 3)), (torch.zeros(2, 8),)\n",
    )
    files(folder, name="input")
    return "net.py:build good.onnx"


def relative_imports(folder: Path) -> str:
    write(
        folder,
        proj__parts__width="WIDTH = 8\n",
        proj__models__net=net(imports="from ..parts.width import WIDTH", parameters="width=WIDTH"),
    )
    package(folder / "proj")
    parallel = {f"module.{key}": value for key, value in weights().items()}
    torch.save({"model": parallel, "optimizer": {"state": {}}}, folder / "best.pth")
    return "proj/models/net.py:Net good.onnx --weights best.pth"


def notebook(folder: Path) -> str:
    text = "#!/usr/bin/env python\n# coding: utf-8\n\n# In[1]:\n\n\n"
    text += "get_ipython().run_line_magic('matplotlib', 'inline')\n"
    text += "get_ipython().system('pip install torch')\n" + FILLED
    text += "\n\n# In[2]:\n\n\nmodel = fill(nn.Linear(8, 3))\nprint(model)\n"
    write(folder, Untitled1=text)
    files(folder, name="input")
    return "Untitled1.py:model good.onnx"


def lightning(folder: Path) -> str:
    write(
        folder,
        lit="""
import torch
from torch import nn


class LitNet(nn.Module):
    def __init__(self, width, lr):
        super().__init__()
        self.net = nn.Linear(width, 3)
        self.loss = nn.CrossEntropyLoss(weight=torch.ones(3))
        self.example_input_array = torch.zeros(2, width)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return self.loss(self(batch[0]), batch[1])
""",
    )
    state = weights("net.") | {"loss.weight": torch.ones(3)}
    content = {"state_dict": state, "hyper_parameters": {"width": 8, "lr": 1e-3}, "epoch": 2}
    torch.save(content, folder / "last.ckpt")
    return "lit.py:LitNet good.onnx --weights last.ckpt"


def checkpoint_and_yaml(folder: Path) -> str:
    write(folder, models__net=net(parameters="width, dropout=0.0"))
    (folder / "config.yaml").write_text(
        "data:\n  root: /data\n  workers: 4\nmodel:\n  width: 8\n  dropout: 0.1\n"
    )
    torch.save({"net": {"model_state_dict": weights()}}, folder / "model.pth")
    return "models.net:Net good.onnx --config config.yaml --weights model.pth"


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.load_state_dict(weights())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def torchscript_only(folder: Path) -> str:
    torch.jit.script(Scripted()).save(str(folder / "model.pt"))
    return "model.pt good.onnx"


def onnx_only(folder: Path) -> str:
    (folder / "trained.onnx").write_bytes((folder / "good.onnx").read_bytes())
    return "trained.onnx good.onnx"


def two_inputs(folder: Path) -> str:
    write(folder, two=net(forward="*, x, shift", value="x + shift"))
    files(folder, SHIFTED)
    torch.save(weights(), folder / "w.pt")
    return "two.py:Net good.onnx --weights w.pt --input x:float32[2,8] --input shift:float32[8]"


def factory_with_arguments(folder: Path) -> str:
    write(
        folder,
        zoo=FILLED + "\n\ndef make(kind, *, width, classes=3):\n"
        "    assert kind == 'linear'\n    return fill(nn.Linear(width, classes)).eval()\n",
    )
    files(folder, name="input")
    return "zoo:make good.onnx --set kind=linear --set width=8"


def bare_class(folder: Path) -> str:
    from safetensors.torch import save_file

    write(folder, net=net())
    save_file(weights(), folder / "w.safetensors")
    return "net.py:Net good.onnx --weights w.safetensors --input x:float32[2,8]"


REPOSITORIES: dict[str, Callable[[Path], str]] = {
    "src layout": src_layout,
    "flat": flat,
    "package with relative imports": relative_imports,
    "script of a notebook": notebook,
    "Lightning-like": lightning,
    "checkpoint and YAML": checkpoint_and_yaml,
    "TorchScript only": torchscript_only,
    "ONNX only": onnx_only,
    "two inputs by keyword": two_inputs,
    "factory with arguments": factory_with_arguments,
    "class": bare_class,
}


def onnxproof(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "onnxproof", *words],  # -P: as the installed command runs
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize("shape", REPOSITORIES)
def test_a_repository_works_from_its_root_by_one_command(shape: str, tmp_path: Path) -> None:
    files(tmp_path)
    words = REPOSITORIES[shape](tmp_path).split()
    good = onnxproof(tmp_path, "verify", *words, "--budget", "5", "--quiet")
    assert good.returncode == 0 and "FAITHFUL" in good.stdout, good.stdout + good.stderr
    wrong = [word.replace("good.onnx", "bad.onnx") for word in words]
    bad = onnxproof(tmp_path, "verify", *wrong, "--budget", "5", "--no-explain", "--quiet")
    assert bad.returncode == 1 and "DIVERGED" in bad.stdout, bad.stdout + bad.stderr


def test_a_hugging_face_folder_is_exported_and_proven_by_one_command(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    config.architectures = ["BertModel"]
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    words = ("export", "bert", "-o", "bert.onnx", "--budget", "10", "--quiet")
    done = onnxproof(tmp_path, *words)
    assert done.returncode == 0 and "FAITHFUL" in done.stdout, done.stdout + done.stderr
    model = onnx.load(tmp_path / "bert.onnx")
    table = next(t for t in model.graph.initializer if "word_embeddings" in t.name)
    values = numpy_helper.to_array(table) * 1.5
    table.CopyFrom(numpy_helper.from_array(values, table.name))
    onnx.save(model, tmp_path / "bad.onnx")
    words = ("verify", "bert", "bad.onnx", "--budget", "10", "--no-explain", "--quiet")
    assert onnxproof(tmp_path, *words).returncode == 1


def test_the_replay_line_builds_the_same_again(tmp_path: Path) -> None:
    files(tmp_path)
    words = checkpoint_and_yaml(tmp_path).replace("good.onnx", "bad.onnx").split()
    said = onnxproof(tmp_path, "verify", *words, "--range", "x=0..1", "--budget", "5").stdout
    line = said.partition("replay the worst case:")[2].strip().splitlines()[0]
    import shlex

    again = onnxproof(tmp_path, *shlex.split(line)[1:], "--no-explain")
    assert again.returncode == 1 and "DIVERGED" in again.stdout, line + again.stdout + again.stderr
    assert "--range x=0..1" in line and "--config config.yaml" in line
