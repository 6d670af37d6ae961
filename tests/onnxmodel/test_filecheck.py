"""A file that doesn't fit together is refused when it is read, with a code of its own; what exporters really write is not."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxproof.cli import main
from onnxproof.errors import ModelError
from onnxproof.onnxmodel import file_checks, onnx_file

TYPES = [kind for kind in TensorProto.DataType.values() if kind != TensorProto.UNDEFINED]
NUMBERS = [kind for kind in TYPES if kind != TensorProto.STRING]


def model(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4])
        for name in ("xx_in", "yy_out")
    ]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["xx_in"], ["yy_out"], name="the_node")],
        "g",
        ports[:1],
        ports[1:],
        list(tensors),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def saved(made: onnx.ModelProto, folder: Path) -> Path:
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx"


def weight(kind: int, dims: list[int], *, raw: bool) -> onnx.TensorProto:
    """A sound weight in the form in which onnx itself writes it."""
    elements = int(np.prod(dims))
    if kind == TensorProto.STRING:
        return helper.make_tensor("w", kind, dims, [b"a"] * elements)
    if raw:
        return helper.make_tensor(
            "w", kind, dims, bytes(file_checks.byte_size(kind, elements)), raw=True
        )
    return helper.make_tensor(
        "w", kind, dims, np.zeros(elements, helper.tensor_dtype_to_np_dtype(kind))
    )


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("dims", [[], [3], [2, 3], [0], [5, 0, 2]], ids=str)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_every_type_is_read_in_both_forms(
    tmp_path: Path, kind: int, dims: list[int], raw: bool
) -> None:
    made = weight(kind, dims, raw=raw)
    onnx_file.read(saved(model(made), tmp_path))
    assert numpy_helper.to_array(made).shape == tuple(dims)  # what is let through can be read


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(NUMBERS),
    dims=st.lists(st.integers(-2, 5), max_size=3),
    size=st.integers(0, 90),
    raw=st.booleans(),
)
def test_what_is_let_through_can_be_turned_into_an_array(
    kind: int, dims: list[int], size: int, raw: bool
) -> None:
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=dims)
    if raw:
        tensor.raw_data = bytes(size)
    else:
        getattr(tensor, helper.tensor_dtype_to_field(kind)).extend([1] * size)
    try:
        file_checks.check(model(tensor), Path("m.onnx"))
    except ModelError as why:
        assert why.code == "bad-weight"
        return
    assert numpy_helper.to_array(tensor).shape == tuple(dims)


def short(made: onnx.TensorProto) -> None:
    made.raw_data = made.raw_data[:-1]


def long(made: onnx.TensorProto) -> None:
    made.raw_data = made.raw_data + b"\0"


def negative(made: onnx.TensorProto) -> None:
    made.dims[0] = -2


def enormous(made: onnx.TensorProto) -> None:
    made.dims[0] = 2**62


def other_type(made: onnx.TensorProto) -> None:
    made.data_type = TensorProto.DOUBLE


def unknown_type(made: onnx.TensorProto) -> None:
    made.data_type = 99


def no_data(made: onnx.TensorProto) -> None:
    made.ClearField("raw_data")


def segment(made: onnx.TensorProto) -> None:
    made.segment.begin = 0
    made.segment.end = 2


def few_strings(made: onnx.TensorProto) -> None:
    made.ClearField("raw_data")
    made.data_type = TensorProto.STRING
    made.string_data.append(b"a")


def bad_strings(made: onnx.TensorProto) -> None:
    few_strings(made)
    made.string_data.extend([b"\xff"] * 5)


@pytest.mark.parametrize("place", ["initializer", "constant", "branch", "function"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            short,
            r"error\[bad-weight\]: the weight `w` holds 23 bytes, and its dims and type need 24",
        ),
        (
            long,
            r"error\[bad-weight\]: the weight `w` holds 25 bytes, and its dims and type need 24",
        ),
        (negative, r"error\[bad-weight\]: the weight `w` has dims that no tensor can have"),
        (enormous, r"error\[bad-weight\]: the weight `w` has dims that no tensor can have"),
        (
            other_type,
            r"error\[bad-weight\]: the weight `w` holds 24 bytes, and its dims and type need 48",
        ),
        (
            no_data,
            r"error\[bad-weight\]: the weight `w` holds 0 numbers, and its dims and type need 6",
        ),
        (
            segment,
            r"error\[bad-weight\]: the weight `w` is said to be a segment of a larger one, which nobody reads",
        ),
        (few_strings, r"error\[bad-weight\]: the weight `w` holds 1 strings, and its dims need 6"),
        (
            unknown_type,
            r"error\[unknown-type\]: the weight `w` has the element type 99, which onnx .* doesn't know",
        ),
        (bad_strings, r"error\[not-utf8\]: a string of the weight `w` is not UTF-8"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_weight_that_does_not_fit_is_refused_wherever_it_is(
    tmp_path: Path, place: str, damage: Callable[[onnx.TensorProto], None], words: str
) -> None:
    tensor = weight(TensorProto.FLOAT, [2, 3], raw=True)
    damage(tensor)
    made = model(*[tensor] if place == "initializer" else [])
    node = helper.make_node("Constant", [], ["c"], value=tensor)
    if place == "constant":
        made.graph.node.append(node)
    elif place == "branch":
        branch = helper.make_graph([node], "b", [], [onnx.ValueInfoProto(name="c")])
        made.graph.node.append(
            helper.make_node("If", ["xx_in"], ["z"], then_branch=branch, else_branch=branch)
        )
    elif place == "function":
        made.functions.append(helper.make_function("d", "f", [], ["c"], [node], []))
    with pytest.raises(ModelError, match=words):
        onnx_file.read(saved(made, tmp_path))


def outside(
    location: str, folder: Path, *, offset: str | None = "0", length: str | None = "24"
) -> Path:
    tensor = onnx.TensorProto(
        name="w", dims=[2, 3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    (folder / "m.data").write_bytes(bytes(24))
    return saved(model(tensor), folder)


@pytest.mark.parametrize(
    ("location", "more", "code"),
    [
        ("/etc/passwd", {}, "external-data-outside"),
        ("../m.data", {}, "external-data-outside"),
        ("a/../../m.data", {}, "external-data-outside"),
        ("nope.data", {}, "external-data-missing"),
        (".", {}, "external-data-missing"),
        ("a" * 5000, {}, "external-data-missing"),
        ("a\0b", {}, "external-data-missing"),
        ("", {}, "bad-external-data"),
        ("m.data", {"offset": "-1"}, "bad-external-data"),
        ("m.data", {"length": "0x10"}, "bad-external-data"),
        ("m.data", {"length": "9" * 400}, "bad-external-data"),
        ("m.data", {"offset": "1"}, "external-data-too-short"),
        ("m.data", {"offset": "10000000000"}, "external-data-too-short"),
        ("m.data", {"length": "20"}, "bad-weight"),
        ("m.data", {"length": "28"}, "bad-weight"),
    ],
)
def test_external_data_that_is_not_there(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    location: str,
    more: dict[str, str],
    code: str,
) -> None:
    path = outside(location, tmp_path, **more)  # type: ignore[arg-type]
    assert main(["inspect", str(path)]) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"error[{code}]: ") and "internal" not in said and len(said) < 1000


@pytest.mark.parametrize(
    "more", [{}, {"offset": None}, {"length": None}, {"offset": None, "length": None}], ids=str
)
def test_external_data_as_exporters_write_it(tmp_path: Path, more: dict[str, str | None]) -> None:
    onnx_file.read(outside("m.data", tmp_path, **more))
    assert main(["inspect", "-q", str(tmp_path / "m.onnx")]) == 0


def test_a_download_cache_keeps_links_to_its_files(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    path = outside("m.data", blobs)
    (snapshot / "m.onnx").symlink_to(path)
    (snapshot / "m.data").symlink_to(blobs / "m.data")
    onnx_file.read(snapshot / "m.onnx")


@pytest.mark.parametrize("name", ["the_node", "xx_in", "yy_out", "Relu", "batch", "main_scope"])
def test_text_that_is_not_utf8(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    made = model()
    made.graph.node[0].metadata_props.add(key="k", value="main_scope")
    (tmp_path / "m.onnx").write_bytes(
        made.SerializeToString().replace(name.encode(), b"\xff" + name.encode()[1:])
    )
    for words in (
        ["inspect", str(tmp_path / "m.onnx")],
        ["diff", str(tmp_path / "m.onnx"), str(tmp_path / "m.onnx")],
    ):
        assert main(words) == 2
        assert capfd.readouterr().err.startswith("error[not-utf8]: ")


def test_a_port_of_an_unknown_type_and_a_node_that_makes_nothing(tmp_path: Path) -> None:
    made = model()
    made.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(ModelError, match=r"error\[unknown-type\]: `xx_in` has the element type 99"):
        onnx_file.read(saved(made, tmp_path))
    made = model()
    made.graph.node.append(helper.make_node("Relu", ["xx_in"], [], name="idle"))
    with pytest.raises(
        ModelError, match=r"error\[node-without-output\]: the node `idle` \(Relu\) has no output"
    ):
        onnx_file.read(saved(made, tmp_path))


def test_an_attribute_of_the_graph_that_refers_to_one_of_a_function(tmp_path: Path) -> None:
    """In a function it is sound; outside of any it has no value, also inside of a branch."""
    reference = onnx.AttributeProto(name="axis", type="INT", ref_attr_name="somewhere")
    loose = helper.make_node("Softmax", ["xx_in"], ["loose"], name="loose")
    loose.attribute.append(reference)
    flag = helper.make_tensor_value_info("loose", onnx.TensorProto.FLOAT, None)
    branch = helper.make_graph([loose], "branch", [], [flag])
    chosen = helper.make_node("If", ["c"], ["chosen"], then_branch=branch, else_branch=branch)
    for node in (loose, chosen):
        made = model()
        made.graph.node.append(node)
        with pytest.raises(
            ModelError,
            match=r"error\[attribute-reference\]: `axis` of the node `loose` \(Softmax\) refers to `somewhere`",
        ):
            onnx_file.read(saved(made, tmp_path))
    made = model()
    imports = [helper.make_opsetid("", 18)]
    made.functions.append(
        helper.make_function("own", "Mine", ["xx_in"], ["loose"], [loose], imports, ["somewhere"])
    )
    assert onnx_file.read(saved(made, tmp_path))


def test_a_path_that_no_system_can_hold(capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("a" * 5000 + ".onnx", "a/" * 3000 + "b.onnx", "nul\0.onnx"):
        for words in (
            ["inspect", path],
            ["diff", path, path],
            ["verify", path, path],
            ["verify", f"{path}:build", path],
            ["verify", "--from", path],
            ["report", path, "-o", "r.md"],
        ):
            assert main(words) == 2
            said = capfd.readouterr().err
            assert "error[" in said and "error[internal]" not in said, (words[0], said[:300])


def test_bytes_changed_at_random_never_raise_anything_else(tmp_path: Path) -> None:
    source = random.Random(0)
    content = model(weight(TensorProto.FLOAT, [2, 3], raw=True)).SerializeToString()
    for _ in range(400):
        changed = bytearray(content)
        for _ in range(source.choice([1, 2, 6])):
            changed[source.randrange(len(changed))] = source.randrange(256)
        (tmp_path / "m.onnx").write_bytes(changed)
        try:
            onnx_file.read(tmp_path / "m.onnx")
        except ModelError as why:
            assert why.code


@pytest.mark.parametrize("length", [0, -1])
def test_parts_of_no_length_are_refused_before_the_runtime_divides_by_them(
    tmp_path: Path, length: int
) -> None:
    """ONNX Runtime ends the process (SIGFPE) while it opens such a file."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "length"], ["parts"], axis=1),
        helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=1),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    weight = numpy_helper.from_array(np.array(length, np.int64), "length")
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    onnx.save(helper.make_model(graph, ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=f"parts of the length {length} \\(`length`\\)"):
        onnx_file.read(tmp_path / "m.onnx")
