"""What the user said about dims, in whichever words: torch's `dynamic_shapes`, or our own options."""

from onnxproof.exporter.dims import Wishes
from onnxproof.exporter.example import Example
from onnxproof.options import ExportOptions
from onnxproof.reference import dynamic_shapes, subject
from onnxproof.reference.torch_session import bind


def wishes(found: subject.Subject, example: Example, options: ExportOptions) -> Wishes:
    """`dynamic_shapes` as torch takes it, and our own options, as one."""
    names: dict[tuple[str, int], str] = {}
    limits: dict[str, tuple[int | None, int | None]] = dict(options.ranges)
    specs = dynamic_shapes.dim_specs(
        bind(found.module, found.args, found.kwargs), found.dynamic_shapes
    )
    auto: set[tuple[str, int]] = set()
    for leaf, axes in specs.items():
        for axis, spec in axes.items():
            kind = dynamic_shapes.spec_kind(spec)
            if kind == "auto":
                auto.add((leaf, axis))
            elif kind == "open":
                name = dynamic_shapes.spec_name(spec) or f"{leaf.replace('.', '_')}_{axis}"
                names[leaf, axis] = name
                low, high = dynamic_shapes.spec_range(spec)
                if (low, high) != (0, None):
                    limits.setdefault(name, (low, high))
    names |= {
        (leaf, axis): name for leaf, axes in options.dynamic.items() for axis, name in axes.items()
    }
    static = {(leaf, axis) for leaf, axes in options.static.items() for axis in axes}
    made = Wishes(
        names=names,
        auto=frozenset(auto),
        static=frozenset(static),
        limits=limits,
        only=found.dynamic_shapes is not None,
    )
    made.check(example)
    return made
