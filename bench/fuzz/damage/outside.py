"""External data: paths that leave the folder, files that are missing or too short, offsets that lie outside."""

import onnx
from onnx import TensorProto

from bench.fuzz.damage import Target, kind


def _external(target: Target) -> onnx.TensorProto:
    """A weight whose data lies in a file; one is moved there where none is."""
    there = [
        weight
        for weight in target.graph.initializer
        if weight.data_location == TensorProto.EXTERNAL
    ]
    if there:
        return target.one(there)
    weight = target.one([weight for weight in target.graph.initializer if weight.raw_data])
    (target.folder / "other.data").write_bytes(weight.raw_data)
    _entry(weight, "location", "other.data")
    _entry(weight, "offset", "0")
    _entry(weight, "length", str(len(weight.raw_data)))
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    return weight


def _entry(weight: onnx.TensorProto, key: str, value: str) -> None:
    entry = (
        next((entry for entry in weight.external_data if entry.key == key), None)
        or weight.external_data.add()
    )
    entry.key, entry.value = key, value


@kind("external-path-odd")
def external_path_odd(target: Target) -> None:
    """Absolute, with dots, empty, a folder, a device, very long."""
    _entry(
        _external(target),
        "location",
        target.random.choice(
            [
                "/etc/passwd",
                "../../../etc/passwd",
                "",
                ".",
                "..",
                "/dev/zero",
                "missing.data",
                "a" * 5000,
                "x/" * 600 + "y",
                "nul\x00byte",
                "line\nbreak",
                "~/weights",
                "*/_ORT_MEM_ADDR_/*",
            ]
        ),
    )


@kind("external-offset-odd")
def external_offset_odd(target: Target) -> None:
    """An offset or a length that lies outside of the file, or is no number."""
    _entry(
        _external(target),
        target.random.choice(["offset", "length"]),
        target.random.choice(["-1", "10000000000", "1", "3", "abc", "", "1e3", "0x10", "9" * 400]),
    )


@kind("external-entry-missing")
def external_entry_missing(target: Target) -> None:
    """No location, no length, or a key that nobody knows."""
    weight = _external(target)
    if target.random.random() < 0.7:
        del weight.external_data[target.random.randrange(len(weight.external_data))]
    _entry(weight, "unknown", "1")


@kind("external-file-short")
def external_file_short(target: Target) -> None:
    """The file is there and holds too little, or nothing."""
    weight = _external(target)
    path = target.folder / next(
        entry.value for entry in weight.external_data if entry.key == "location"
    )
    content = path.read_bytes()
    path.write_bytes(content[: target.random.choice([0, 1, len(content) // 2, len(content) - 1])])


@kind("external-file-other")
def external_file_other(target: Target) -> None:
    """The file is there and holds other values."""
    weight = _external(target)
    path = target.folder / next(
        entry.value for entry in weight.external_data if entry.key == "location"
    )
    content = path.read_bytes()
    path.write_bytes(content[len(content) // 2 :] + content[: len(content) // 2])


@kind("external-file-is-link")
def external_file_is_link(target: Target) -> None:
    """The file beside the model is a link out of the folder, or a folder."""
    weight = _external(target)
    path = target.folder / next(
        entry.value for entry in weight.external_data if entry.key == "location"
    )
    path.unlink()
    choice = target.random.choice(["/etc/passwd", "loop", "folder"])
    if choice == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name if choice == "loop" else choice)
