"""torch's table of ONNX translations, made once a process.

`torch.onnx.export` makes the table anew on every call, by parsing the source of some five hundred functions: 0.8 s of the
1.3 s that a small model takes. What an export adds to its table stays its own; when operators were added to torch, as by
a package that brings some, it is made again.
"""

import functools
from typing import Any


def share() -> None:
    """Hand out copies of one table for each opset; does nothing where torch has no such table."""
    try:
        import torch
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        made = ONNXRegistry.__dict__["from_torchlib"].__func__
    except (ImportError, KeyError, AttributeError):
        return

    @functools.cache
    def once(operators: int, cls: Any, *args: Any, **options: Any) -> Any:
        return made(cls, *args, **options)

    def from_torchlib(cls: Any, *args: Any, **options: Any) -> Any:
        table = once(len(torch._C._dispatch_get_all_op_names()), cls, *args, **options)
        copied = cls()
        copied.__dict__.update(table.__dict__)
        copied.functions = {target: list(found) for target, found in table.functions.items()}
        return copied

    ONNXRegistry.from_torchlib = classmethod(from_torchlib)  # type: ignore[assignment, method-assign]
