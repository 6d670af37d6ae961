"""Which loop a reference has, as it was paired with a file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnxproof.inputs.space import Space
from onnxproof.onnxmodel.onnx_file import OnnxFile, Port
from onnxproof.reference.leaf import Leaf
from onnxproof.reference.protocol import Reference
from onnxproof.verification.rollout.confirming import confirms, starting
from onnxproof.verification.rollout.driving import Driven, relate, understand
from onnxproof.verification.rollout.loop import Loop, find_loops
from onnxproof.verification.rollout.state_names import Tensor


def find(
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    file: OnnxFile,
    given: Mapping[str, str] | None,
) -> list[Loop]:
    """The loops that a reference may have, by its own names and those of the file."""
    return find_loops(_tensors(inputs, file.inputs), _tensors(outputs, file.outputs), given)


def _tensors(leaves: Sequence[Leaf], ports: Sequence[Port]) -> list[Tensor]:
    """The leaves with the names of the file: by position where there are as many, unless it has the leaf's own name."""
    names = {port.name for port in ports}
    tensors = []
    for place, leaf in enumerate(leaves):
        aliases = [leaf.name]
        if leaf.name not in names and len(ports) == len(leaves):
            aliases.append(ports[place].name)
        tensors.append(
            Tensor(name=leaf.name, aliases=tuple(aliases), dtype=leaf.dtype, shape=leaf.shape)
        )
    return tensors


def choose(loops: Sequence[Loop], space: Space, reference: Reference) -> tuple[Driven | None, str]:
    """The first loop that can be driven and that the reference confirms, or nothing and the reason."""
    names = tuple(output.name for output in space.signature.outputs)
    reason = ""
    for loop in loops:
        understood = understand(loop, space, space.signature.outputs)
        if isinstance(understood, str):
            reason = reason or understood
            continue
        driven = starting(relate(understood), reference, names)
        if driven is None:
            reason = (
                reason or "the reference takes neither empty states nor states like the example's"
            )
            continue
        confirmed = confirms(driven, reference, names)
        if loop.is_guessed and not confirmed:
            continue  # shapes that fit by chance are no loop
        if loop.is_half_named and confirmed is False:
            continue
        return driven, ""
    return None, reason


def adapt(driven: Driven | None, space: Space) -> Driven | None:
    """The same loop in the space as it was learned: dims may have been pinned or tied since."""
    if driven is None:
        return None
    again = understand(driven.loop, space, space.signature.outputs)
    if isinstance(again, str):
        return None
    return replace(relate(again), seeded=driven.seeded)
