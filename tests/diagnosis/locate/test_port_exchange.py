"""Another pairing of inputs or outputs is proposed only where the answers are right with it."""

from onnxproof.diagnosis.locate.port_exchange import find_exchange
from onnxproof.results import InputInfo, OutputInfo, Signature


def signature() -> Signature:
    shape = (2, 3)
    return Signature(
        inputs=tuple(
            InputInfo(name=name, dtype="float32", shape=shape, dims=(), onnx_name=name)
            for name in ("a", "b")
        ),
        outputs=(OutputInfo(name="y", dtype="float32", shape=shape, onnx_name="y"),),
    )


def test_the_pairing_that_is_right_is_given_with_the_names_that_moved() -> None:
    exchange = find_exchange(signature(), lambda trial: trial.inputs[0].onnx_name == "b")
    assert exchange is not None
    assert exchange.kind == "input" and exchange.names == ("b", "a")
    assert "`a` belongs to the file's `b`" in exchange.what


def test_no_pairing_is_given_where_none_is_right() -> None:
    assert find_exchange(signature(), lambda trial: False) is None
