"""What training left behind: dropout, batch statistics, random numbers."""

from collections.abc import Iterator

import onnx

from onnxproof.inspection.view import Check, Rating, View, few

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
    """Nodes that only training needs."""
    live = [node.name or node.op_type for node in view.nodes if _trains(view, node)]
    if live:
        yield Check(
            name="training",
            rating=Rating.BAD,
            what=f"{len(live)} nodes are in training mode: {few(live)}",
            help="call module.eval() before the export; `onnxproof export` does",
        )
    else:
        idle = [node.name or node.op_type for node in view.nodes if node.op_type == "Dropout"]
        rating, what = (
            (Rating.ODD, f"{len(idle)} idle Dropout nodes are left: {few(idle)}")
            if idle
            else (Rating.GOOD, "nothing of training is left")
        )
        yield Check(name="training", rating=rating, what=what)
    random = [node.name or node.op_type for node in view.nodes if node.op_type in _RANDOM]
    yield Check(
        name="random",
        rating=Rating.ODD if random else Rating.GOOD,
        what=f"{len(random)} nodes draw random numbers: {few(random)}"
        if random
        else "no random numbers",
        help="no two runs agree: hand the noise in as an input" if random else "",
    )


def _trains(view: View, node: onnx.NodeProto) -> bool:
    if node.op_type == "BatchNormalization":
        return any(
            attribute.name == "training_mode" and attribute.i for attribute in node.attribute
        )
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        flag = view.constants.get(node.input[2])
        return flag is None or bool(flag.reshape(-1)[0])
    return False
