"""What the user said about dims, as torch's `dynamic_shapes` or as our own options."""

from onnxproof.exporter.dims import DimRequest, Limits
from onnxproof.exporter.example import Example, Place
from onnxproof.options import ExportOptions
from onnxproof.reference import dynamic_shapes
from onnxproof.reference.subject import Subject
from onnxproof.reference.torch_session import bind


def read_request(
    subject: Subject,
    example: Example,
    options: ExportOptions,
) -> DimRequest:
    """`dynamic_shapes` as torch takes it, and our own options, as one request; our options win."""
    names: dict[Place, str] = {}
    limits: dict[str, Limits] = dict(options.ranges)
    auto: set[Place] = set()
    specs = dynamic_shapes.dim_specs(
        bind(subject.module, subject.args, subject.kwargs), subject.dynamic_shapes
    )
    for leaf, axes in specs.items():
        for axis, spec in axes.items():
            kind = dynamic_shapes.spec_kind(spec)
            if kind == "auto":
                auto.add((leaf, axis))
            elif kind == "open":
                name = dynamic_shapes.spec_name(spec) or f"{leaf.replace('.', '_')}_{axis}"
                names[leaf, axis] = name
                spec_range = dynamic_shapes.spec_range(spec)
                if spec_range != (0, None):
                    limits.setdefault(name, spec_range)
    for leaf, named_axes in options.dynamic.items():
        for axis, name in named_axes.items():
            names[leaf, axis] = name
    request = DimRequest(
        names=names,
        auto=frozenset(auto),
        static=frozenset((leaf, axis) for leaf, axes in options.static.items() for axis in axes),
        limits=limits,
        exclusive=subject.dynamic_shapes is not None,
    )
    request.check(example)
    return request
