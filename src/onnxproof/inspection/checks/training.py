"""What belongs to training only: dropout, batch statistics, random numbers."""

from collections.abc import Iterable, Iterator

import onnx

from onnxproof.inspection.view import Check, Rating, View, list_names

_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    }
)


def check(view: View) -> Iterator[Check]:
    """Nodes that only training needs, and nodes that draw random numbers."""
    yield _check_training(view)
    yield _check_random(view)


def _check_training(view: View) -> Check:
    active = _names(node for node in view.nodes if _is_training(view, node))
    if active:
        return Check(
            name="training",
            rating=Rating.BAD,
            what=f"{len(active)} nodes are in training mode: {list_names(active)}",
            help="call module.eval() before the export; `onnxproof export` does",
        )
    idle = _names(node for node in view.nodes if node.op_type == "Dropout")
    if idle:
        return Check(
            name="training",
            rating=Rating.ODD,
            what=f"{len(idle)} idle Dropout nodes are left: {list_names(idle)}",
        )
    return Check(name="training", rating=Rating.GOOD, what="nothing of training is left")


def _check_random(view: View) -> Check:
    random = _names(node for node in view.nodes if node.op_type in _RANDOM)
    if not random:
        return Check(name="random", rating=Rating.GOOD, what="no random numbers")
    return Check(
        name="random",
        rating=Rating.ODD,
        what=f"{len(random)} nodes draw random numbers: {list_names(random)}",
        help="no two runs agree: hand the noise in as an input",
    )


def _names(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    return [node.name or node.op_type for node in nodes]


def _is_training(view: View, node: onnx.NodeProto) -> bool:
    if node.op_type == "BatchNormalization":
        flags = [attribute.i for attribute in node.attribute if attribute.name == "training_mode"]
        return any(flags)
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        flag = view.constants.get(node.input[2])
        return flag is None or bool(flag.reshape(-1)[0])
    return False
