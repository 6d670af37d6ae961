"""Files that try to run code, write, hang or fill the memory when they are loaded; run as a script in a process with limits.

Each builder makes one file or folder and gives its path. The code that it carries makes the folder MARK: a load after which it
exists has run that code. `LIVE` names attacks of which torch's own loader is shown to run the code, so that they are real ones.
"""

import io
import json
import os
import pickle
import resource
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SECONDS = 20
MEMORY = 3 << 30
"""Bytes that loading one of them may add."""
Builder = Callable[[Path], Path]
ATTACKS: dict[str, tuple[Builder, tuple[str, ...]]] = {}
LIVE = (
    "use_pickle_constant",
    "use_pickle_weight",
    "opaque_object",
    "legacy_state_dict",
    "evaluated_size",
    "evaluated_guard",
    "imported_enum",
    "torchscript_from_file",
    "torchscript_save",
    "torchscript_getattr",
    "torchscript_setstate",
)


def attack(*codes: str) -> Callable[[Builder], Builder]:
    """Register a builder with the codes of the error that is expected."""

    def register(build: Builder) -> Builder:
        ATTACKS[build.__name__] = (build, codes)
        return build

    return register


class Evil:
    """Unpickling this makes the marker."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._mark),)


def mark(folder: Path) -> Path:
    return folder / "MARK"


def evil_torch(folder: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Evil(mark(folder)), buffer)
    return buffer.getvalue()


def code(folder: Path) -> str:
    """An expression with a side effect, without quotes of the other kind."""
    return f"__import__('os').mkdir('{mark(folder)}')"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.shift = nn.Linear(4, 2), torch.ones(2)

    def forward(self, x: Tensor, mode: str = "floor") -> Tensor:
        return torch.div(self.linear(x) + self.shift, 2, rounding_mode=mode)


PROGRAM = io.BytesIO()


def program() -> dict[str, bytes]:
    """The members of a healthy .pt2, made once."""
    if not PROGRAM.getvalue():
        exported = torch.export.export(
            Net().eval(),
            (torch.randn(4, 4), "floor"),
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC}, None),
        )
        torch.export.save(exported, PROGRAM)
    with zipfile.ZipFile(PROGRAM) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def packed(
    path: Path,
    members: Mapping[str, bytes],
    *,
    then: Mapping[str, bytes] | None = None,
    deflated: bool = False,
) -> Path:
    """An archive of the members; `then` come after, under names that may be there already."""
    import warnings

    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(
            path, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
        ) as archive,
    ):
        warnings.simplefilter("ignore")
        for name, content in [*members.items(), *(then or {}).items()]:
            archive.writestr(f"net/{name}", content)
    return path


def edited(folder: Path, name: str, change: Callable[[Any], None]) -> Path:
    """The healthy program with one of its JSON members changed."""
    members = program()
    document = json.loads(members[name])
    change(document)
    members[name] = json.dumps(document).encode()
    return packed(folder / "net.pt2", members)


MODEL, WEIGHTS, CONSTANTS = (
    "models/model.json",
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
)


# --- .pt2 ------------------------------------------------------------------------------------------------------------


@attack("pickle-refused")
def use_pickle_constant(folder: Path) -> Path:
    path = edited(
        folder, CONSTANTS, lambda d: next(iter(d["config"].values())).update(use_pickle=True)
    )
    with zipfile.ZipFile(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return packed(path, members | {"data/constants/tensor_0": evil_torch(folder)})


@attack("pickle-refused")
def use_pickle_weight(folder: Path) -> Path:
    path = edited(
        folder, WEIGHTS, lambda d: next(iter(d["config"].values())).update(use_pickle=True)
    )
    with zipfile.ZipFile(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return packed(path, members | {"data/weights/weight_0": evil_torch(folder)})


@attack("code-refused")
def opaque_object(folder: Path) -> Path:
    path = edited(
        folder,
        CONSTANTS,
        lambda d: d["config"].update(
            evil={
                "path_name": "opaque_obj_0",
                "is_param": False,
                "use_pickle": True,
                "tensor_meta": None,
            }
        ),
    )
    with zipfile.ZipFile(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return packed(path, members | {"data/constants/opaque_obj_0": pickle.dumps(Evil(mark(folder)))})


@attack("code-refused")
def custom_object(folder: Path) -> Path:
    return packed(
        folder / "net.pt2",
        program() | {"data/constants/custom_obj_0": pickle.dumps(Evil(mark(folder)))},
    )


@attack("legacy-pt2")
def legacy_state_dict(folder: Path) -> Path:
    evil, path = evil_torch(folder), folder / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.20")
        archive.writestr("serialized_exported_program.json", program()[MODEL])
        for name in (
            "serialized_state_dict.json",
            "serialized_constants.json",
            "serialized_example_inputs.pt",
        ):
            archive.writestr(name, evil)
    return path


@attack("legacy-pt2")
def legacy_state_dict_in_a_folder(folder: Path) -> Path:
    return packed(
        folder / "net.pt2", program() | {"serialized_state_dict.json": evil_torch(folder)}
    )


@attack("archive-refused")
def two_members_of_one_name(folder: Path) -> Path:
    return packed(
        folder / "net.pt2", program(), then={"data/sample_inputs/model.pt": evil_torch(folder)}
    )


@attack("archive-refused")
def upper_case_member(folder: Path) -> Path:
    return packed(
        folder / "net.pt2", program() | {"data/sample_inputs/model.PT": evil_torch(folder)}
    )


@attack("code-refused")
def compiled_library(folder: Path) -> Path:
    return packed(
        folder / "net.pt2",
        program()
        | {"data/aotinductor/model/model.so": b"\x7fELF", "data/aotinductor/model/model.cpp": b""},
    )


@attack("pickle-refused")
def evil_sample_inputs(folder: Path) -> Path:
    return packed(
        folder / "net.pt2", program() | {"data/sample_inputs/model.pt": evil_torch(folder)}
    )


@attack("pickle-refused")
def evil_old_weights(folder: Path) -> Path:
    return packed(folder / "net.pt2", program() | {"data/weights/model.pt": evil_torch(folder)})


def _sizes(document: Any, text: str) -> None:
    for meta in document["graph_module"]["graph"]["tensor_values"].values():
        for size in meta["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = text


@attack("code-refused")
def evaluated_size(folder: Path) -> Path:
    return edited(folder, MODEL, lambda d: _sizes(d, code(folder)))


@attack("code-refused")
def tower_of_powers(folder: Path) -> Path:
    return edited(
        folder,
        MODEL,
        lambda d: _sizes(d, "Pow(Integer(9), Pow(Integer(9), Pow(Integer(9), Integer(9))))"),
    )


@attack("code-refused")
def endless_symbols(folder: Path) -> Path:
    return edited(
        folder,
        MODEL,
        lambda d: d["range_constraints"].update(u999999999999={"min_val": 0, "max_val": 9}),
    )


@attack("code-refused")
def evaluated_guard(folder: Path) -> Path:
    return edited(folder, MODEL, lambda d: d["guards_code"].append(f"{code(folder)} is None"))


@attack("code-refused")
def name_of_a_node(folder: Path) -> Path:
    def change(document: Any) -> None:
        text = json.dumps(document).replace(
            '"linear"', json.dumps(f"linear = {code(folder)}; linear")
        )
        document.update(json.loads(text))

    return edited(folder, MODEL, change)


@attack("code-refused")
def name_of_an_argument(folder: Path) -> Path:
    def change(document: Any) -> None:
        document["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [
            f"x={code(folder)}",
            "mode",
        ]

    return edited(folder, MODEL, change)


@attack("code-refused")
def quoted_constant(folder: Path) -> Path:
    def change(document: Any) -> None:
        text = json.dumps(document).replace(
            '"as_string": "floor"', f'"as_string": "floor\' or {code(folder)} or \'"'
        )
        document.update(json.loads(text))

    return edited(folder, MODEL, change)


@attack("code-refused")
def name_of_a_parameter(folder: Path) -> Path:
    def change(document: Any) -> None:
        document["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = (
            f'a" if {code(folder)} else "b'
        )

    return edited(folder, MODEL, change)


@attack("code-refused")
def imported_enum(folder: Path) -> Path:
    (folder / "evil_on_import.py").write_text(f"import os\nos.mkdir({str(mark(folder))!r})\n")
    context = json.dumps({"__enum__": True, "fqn": "evil_on_import:A", "name": "B"})

    def change(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        protocol, tree = json.loads(signature["out_spec"])
        signature["out_spec"] = json.dumps(
            [protocol, {"type": "builtins.dict", "context": context, "children_spec": [tree]}]
        )

    return edited(folder, MODEL, change)


@attack("code-refused")
def imported_factory(folder: Path) -> Path:
    (folder / "evil_on_import.py").write_text(f"import os\nos.mkdir({str(mark(folder))!r})\n")
    context = {
        "default_factory_module": "evil_on_import",
        "default_factory_name": "A",
        "dict_context": ["y"],
    }

    def change(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        protocol, tree = json.loads(signature["out_spec"])
        signature["out_spec"] = json.dumps(
            [
                protocol,
                {"type": "collections.defaultdict", "context": context, "children_spec": [tree]},
            ]
        )

    return edited(folder, MODEL, change)


def _target(folder: Path, target: str) -> Path:
    def change(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][-1]["target"] = target

    return edited(folder, MODEL, change)


@attack("operator-refused")
def attribute_of_torch(folder: Path) -> Path:
    return _target(folder, "torch.hub.os.mkdir")


@attack("operator-refused")
def method_caller(folder: Path) -> Path:
    return _target(folder, "_operator.methodcaller")


@attack("operator-refused")
def operator_that_writes(folder: Path) -> Path:
    return _target(folder, "torch.ops.aten.from_file.default")


@attack("operator-refused")
def operator_of_another_library(folder: Path) -> Path:
    return _target(folder, "torch.ops.debugprims.load_tensor.default")


@attack("operator-refused")
def extension(folder: Path) -> Path:
    return _target(folder, "#evil:run")


@attack("archive-too-large")
def bomb(folder: Path) -> Path:
    return packed(
        folder / "net.pt2", program() | {"extra/zeros": b"\0" * (200 << 20)}, deflated=True
    )


@attack("archive-too-large")
def huge_tensor(folder: Path) -> Path:
    def change(document: Any) -> None:
        next(iter(document["config"].values()))["tensor_meta"]["sizes"] = [
            {"as_int": 1 << 40},
            {"as_int": 4},
        ]

    path = edited(folder, WEIGHTS, change)
    with zipfile.ZipFile(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return packed(path, members | {"data/weights/weight_0": b""})


@attack("archive-refused")
def overlapping_members(folder: Path) -> Path:
    """Every entry of the directory points to the same bytes: a few kilobytes say that they are a gigabyte."""
    path, data = folder / "net.pt2", b"\0" * (1 << 20)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data/weights/weight_0", data)
        first = archive.infolist()[0]
        for place in range(1, 1000):
            entry = zipfile.ZipInfo(f"net/data/weights/weight_{place}")
            entry.header_offset, entry.CRC, entry.compress_size, entry.file_size = (
                first.header_offset,
                first.CRC,
                len(data),
                len(data),
            )
            archive.filelist.append(entry)
    return path


@attack("archive-refused", "bad-pt2")
def deep_nesting(folder: Path) -> Path:
    return packed(
        folder / "net.pt2", program() | {MODEL: b'{"a":' * 100_000 + b"1" + b"}" * 100_000}
    )


@attack("archive-refused")
def path_that_leaves(folder: Path) -> Path:
    return packed(folder / "net.pt2", program() | {"extra/../../../evil": b"x"})


@attack("bad-pt2", "pickle-refused", "archive-refused")
def truncated(folder: Path) -> Path:
    path = packed(folder / "net.pt2", program())
    path.write_bytes(path.read_bytes()[:-200])
    return path


@attack("not-a-file")
def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "net.pt2")
    return folder / "net.pt2"


# --- TorchScript and pickles -------------------------------------------------------------------------------------------


class Writes(nn.Module):
    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_file(self.place, True, 10)[:3] + x.sum()


class Saves(nn.Module):
    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, self.place)
        return x


class Calm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def scripted(module: nn.Module, path: Path) -> Path:
    torch.jit.script(module).save(str(path))
    return path


def rewritten(folder: Path, old: str, new: str) -> Path:
    """A calm script, with its source changed."""
    whole, path = scripted(Calm(), folder / "whole.pt"), folder / "net.pt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("__torch__.py"):
                assert old.encode() in content
                content = content.replace(old.encode(), new.encode())
            target.writestr(name, content)
    whole.unlink()
    return path


@attack("operator-refused")
def torchscript_from_file(folder: Path) -> Path:
    return scripted(Writes(str(mark(folder))), folder / "net.pt")


@attack("operator-refused")
def torchscript_save(folder: Path) -> Path:
    return scripted(Saves(str(mark(folder))), folder / "net.pt")


@attack("operator-refused")
def torchscript_getattr(folder: Path) -> Path:
    return rewritten(
        folder,
        "    return torch",
        f'    getattr(torch, "save")(x, "{mark(folder)}")\n    return torch',
    )


@attack("operator-refused")
def torchscript_alias(folder: Path) -> Path:
    return rewritten(
        folder,
        "    return torch",
        f'    t = torch\n    t.save(x, "{mark(folder)}")\n    return torch',
    )


class SavesOnLoad(nn.Module):
    """Its `__setstate__` runs while the file is loaded."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.weight, self.training = place, torch.ones(3), False

    @torch.jit.export
    def __getstate__(self) -> tuple[str, Tensor, bool]:
        return self.place, self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, Tensor, bool]) -> None:
        self.place, self.weight, self.training = state[0], state[1], state[2]
        torch.save(self.weight, self.place)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@attack("operator-refused")
def torchscript_setstate(folder: Path) -> Path:
    return scripted(SavesOnLoad(str(mark(folder))), folder / "net.pt")


@attack("archive-refused")
def torchscript_comment(folder: Path) -> Path:
    return rewritten(folder, "    return torch", f"    # {code(folder)}\n    return torch")


@attack("code-refused")
def torchscript_native_class(folder: Path) -> Path:
    return rewritten(
        folder,
        "    return torch",
        "    a = annotate(Optional[__torch__.torch.classes.dist_c10d.FileStore], None)\n    return torch",
    )


@attack("bad-torchscript")
def torchscript_evil_data(folder: Path) -> Path:
    whole, path = scripted(Calm(), folder / "whole.pt"), folder / "net.pt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(
                name,
                pickle.dumps(Evil(mark(folder)))
                if name.endswith("data.pkl")
                else source.read(name),
            )
    whole.unlink()
    return path


@attack("archive-too-large")
def torchscript_bomb(folder: Path) -> Path:
    path = scripted(Calm(), folder / "net.pt")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            f"{archive.namelist()[0].partition('/')[0]}/code/zeros.py", b" " * (200 << 20)
        )
    return path


@attack("not-torchscript")
def pickled_checkpoint(folder: Path) -> Path:
    torch.save({"a": Evil(mark(folder))}, folder / "net.pt")
    return folder / "net.pt"


@attack("not-torchscript")
def old_pickled_checkpoint(folder: Path) -> Path:
    torch.save({"a": Evil(mark(folder))}, folder / "net.pth", _use_new_zipfile_serialization=False)
    return folder / "net.pth"


@attack("not-a-file")
def device(folder: Path) -> Path:
    (folder / "net.pt").symlink_to("/dev/zero")
    return folder / "net.pt"


# --- folders -----------------------------------------------------------------------------------------------------------


def pretrained(folder: Path, **changes: Any) -> Path:
    import transformers

    made = folder / "net"
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=20,
        max_position_embeddings=32,
    )
    transformers.BertModel(config).save_pretrained(made)
    settings = json.loads((made / "config.json").read_text()) | changes
    (made / "config.json").write_text(json.dumps(settings))
    (made / "evil.py").write_text(
        f"import os\nos.mkdir({str(mark(folder))!r})\nfrom transformers import BertModel as Evil\n"
    )
    return made


@attack("remote-code")
def folder_with_code(folder: Path) -> Path:
    return pretrained(folder, auto_map={"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"})


@attack("remote-code")
def folder_with_code_in_a_part(folder: Path) -> Path:
    return pretrained(folder, text_config={"auto_map": {"AutoConfig": "evil.Evil"}})


@attack("bad-model-folder")
def folder_with_pickled_weights(folder: Path) -> Path:
    made = pretrained(folder)
    (made / "model.safetensors").unlink()
    torch.save({"a": Evil(mark(folder))}, made / "pytorch_model.bin")
    return made


@attack("bad-model-folder")
def folder_with_a_pickle_in_its_index(folder: Path) -> Path:
    made = pretrained(folder)
    (made / "model.safetensors").unlink()
    torch.save({"a": Evil(mark(folder))}, made / "evil.bin")
    (made / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": "evil.bin"}})
    )
    return made


@attack("unknown-architecture")
def folder_of_an_odd_architecture(folder: Path) -> Path:
    return pretrained(folder, architectures=["pipeline"])


@attack("model-too-large")
def folder_too_large(folder: Path) -> Path:
    return pretrained(folder, hidden_size=1 << 22, intermediate_size=1 << 22)


@attack("bad-config")
def folder_without_end(folder: Path) -> Path:
    return pretrained(folder, num_hidden_layers=10**9)


@attack("not-a-file")
def folder_with_a_fifo(folder: Path) -> Path:
    made = pretrained(folder)
    (made / "model.safetensors").unlink()
    os.mkfifo(made / "model.safetensors")
    return made


@attack("bad-config")
def folder_with_no_json(folder: Path) -> Path:
    made = pretrained(folder)
    (made / "config.json").write_text("[" * 100_000)
    return made


# --- data --------------------------------------------------------------------------------------------------------------


@attack("bad-data")
def pickled_arrays(folder: Path) -> Path:
    np.savez(folder / "data.npz", x=np.array([Evil(mark(folder))], dtype=object))
    return folder / "data.npz"


@attack("data-too-large")
def npz_bomb(folder: Path) -> Path:
    """Two gigabytes of zeros, forty times."""
    whole = folder / "whole.npz"
    np.savez_compressed(whole, x=np.zeros(1 << 20))
    with zipfile.ZipFile(whole) as source:
        content, entry = source.read("x.npy"), source.infolist()[0]
    path = folder / "data.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
        for place in range(40):
            again = zipfile.ZipInfo(f"x{place}.npy")
            again.header_offset, again.CRC, again.compress_type = (
                archive.infolist()[0].header_offset,
                entry.CRC,
                zipfile.ZIP_DEFLATED,
            )
            again.compress_size, again.file_size = archive.infolist()[0].compress_size, 2 << 30
            archive.filelist.append(again)
    whole.unlink()
    return path


@attack("bad-data")
def npy_of_a_terabyte(folder: Path) -> Path:
    header = (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,), }".ljust(117) + b"\n"
    )
    (folder / "data.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64
    )
    return folder / "data.npy"


@attack("bad-data")
def safetensors_with_a_long_header(folder: Path) -> Path:
    (folder / "data.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    return folder / "data.safetensors"


@attack("bad-data")
def safetensors_that_claims_more(folder: Path) -> Path:
    head = json.dumps(
        {"x": {"dtype": "F64", "shape": [1 << 37], "data_offsets": [0, 1 << 40]}}
    ).encode()
    (folder / "data.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 64)
    return folder / "data.safetensors"


@attack("not-a-file")
def data_fifo(folder: Path) -> Path:
    (folder / "data").mkdir()
    os.mkfifo(folder / "data" / "x.npz")
    return folder / "data"


# --- healthy ones: what is refused above is refused for what it holds -----------------------------------------------------


@attack("loaded")
def healthy_program(folder: Path) -> Path:
    return packed(folder / "net.pt2", program())


@attack("loaded")
def healthy_script(folder: Path) -> Path:
    return scripted(Calm(), folder / "net.pt")


@attack("loaded")
def healthy_trace(folder: Path) -> Path:
    torch.jit.trace(Calm(), (torch.ones(3),)).save(str(folder / "net.ts"))
    return folder / "net.ts"


@attack("loaded")
def healthy_folder(folder: Path) -> Path:
    return pretrained(folder)


@attack("loaded")
def healthy_data(folder: Path) -> Path:
    np.savez_compressed(folder / "data.npz", x=np.zeros((100, 1000)))
    return folder / "data.npz"


# --- running them ------------------------------------------------------------------------------------------------------


def listing(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def load(path: Path) -> None:
    """As the tool loads it: data as data, anything else as a subject, and called once where that works."""
    from onnxproof.inputs import user_data
    from onnxproof.reference import subject

    if path.name.startswith("data"):
        user_data.open_data(path)
        return
    found = subject.load(path, None if path.suffix == ".pt2" or path.is_dir() else (torch.ones(3),))
    found.module(*found.args, **found.kwargs)


def torch_loads(path: Path) -> None:
    """What torch itself does with the file: load it, and run it."""
    sys.path.insert(0, str(path.parent))
    try:
        if path.suffix == ".pt2":
            program = torch.export.load(path)
            program.module()(torch.randn(4, 4), "floor")
        else:
            torch.jit.load(str(path))(torch.ones(3))
    except BaseException:  # noqa: S110 - whether its code ran is all that is asked
        pass
    finally:
        sys.path.remove(str(path.parent))
        sys.modules.pop("evil_on_import", None)


def late(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def one(name: str, root: Path) -> dict[str, Any]:
    """Build, load, and say what came of it."""
    from onnxproof.errors import OnnxproofError

    folder = root / name
    folder.mkdir()
    path = ATTACKS[name][0](folder)
    before, outcome, began = listing(root), "loaded", time.monotonic()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.path.insert(0, str(folder))
    signal.alarm(SECONDS)
    try:
        load(path)
    except OnnxproofError as why:
        outcome = why.code
    except BaseException as why:
        outcome = f"{type(why).__name__}: {why}"
    finally:
        signal.alarm(0)
        sys.path.remove(str(folder))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    result = {
        "outcome": outcome,
        "ran": mark(folder).exists(),
        "written": sorted(set(listing(root)) - set(before)),
        "grown_kb": grown,
        "seconds": time.monotonic() - began,
    }
    if name in LIVE:
        torch_loads(path)
        result["live"] = mark(folder).exists()
    return result


def main(root: Path) -> None:
    """Every attack in this process, with a limit on its memory."""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import transformers  # noqa: F401 - its memory is not that of an attack

    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, late)
    program()
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if Path("/proc/self/statm").exists()
        else 32 << 30
    )
    resource.setrlimit(resource.RLIMIT_AS, (pages + MEMORY, pages + MEMORY))
    for name in ATTACKS:
        sys.stdout.write(f"RESULT {json.dumps([name, one(name, root)])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
