"""Metadata that is no JSON, no Python, or no sense."""

from onnx import helper

from bench.fuzz.damage import Target, kind, nodes

_DIMS = (
    "{",
    "[]",
    "null",
    "[1, 2]",
    '[{"name": 3}]',
    '[{"name": "batch", "minimum": -5, "maximum": "x"}]',
    "[" * 3000,
    '[{"name": "batch", "minimum": 1e400}]',
    '{"a": 1}',
    '"text"',
    '[{"name": "batch", "minimum": 9, "maximum": 2}]',
    '[{"name": "batch", "minimum": 10000000000000000000000}]',
    '[{"minimum": 1}]',
    '[{"name": "batch", "promised": true}]',
    '[{"name": "batch", "promised": true, "minimum": 5, "maximum": 2}]',
    '[{"name": "batch", "promised": true, "minimum": null, "maximum": null}]',
    '[{"name": "batch", "promised": true, "minimum": 3, "maximum": 3}]',
)
_TEXTS = (
    "[",
    "['a'",
    "[1, 2]",
    "__import__('os').system('id')",
    "(" * 500,
    "\x1b[31m",
    "{}",
    "['" + "a." * 2000 + "']",
    'File "',
    'File "x", line 99999999999999999999, in f',
    "\n\n\n",
    'File "::error::x", line 3, in y\n  \x1b[2J',
)


@kind("metadata-dims-odd")
def metadata_dims_odd(target: Target) -> None:
    """What an export noted about its dims is broken."""
    del target.model.metadata_props[:]
    helper.set_model_props(target.model, {"onnxproof.dims": target.random.choice(_DIMS)})


@kind("metadata-ranges-odd")
def metadata_ranges_odd(target: Target) -> None:
    """torch's range constraints are odd."""
    del target.graph.metadata_props[:]
    entry = target.graph.metadata_props.add()
    entry.key = "pkg.torch.export.ExportedProgram.range_constraints"
    entry.value = target.random.choice(
        [
            "VR[0, 0]",
            "VR[1, 99999999999999999999999]",
            "VR[5, 1]",
            "VR[" * 100,
            "VR[1, 3] VR[1, " + "9" * 5000 + "]",
            "VR[1, -3]",
        ]
    )


@kind("metadata-of-nodes-odd")
def metadata_of_nodes_odd(target: Target) -> None:
    """Scopes and stack traces of nodes are odd."""
    for node in nodes(target.model):
        del node.metadata_props[:]
        for key in ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"):
            entry = node.metadata_props.add()
            entry.key, entry.value = key, target.random.choice(_TEXTS)


@kind("metadata-many")
def metadata_many(target: Target) -> None:
    """Keys that are there twice, empty or very long."""
    for key in ("", "onnxproof.dims", "onnxproof.dims", "a" * 3000, "\x1b[31m"):
        entry = target.model.metadata_props.add()
        entry.key, entry.value = key, target.random.choice(_TEXTS)
