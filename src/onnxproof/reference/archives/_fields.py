"""The fields of an exported program's JSON: each text must be of the kind that its field is known to hold.

Numbers, booleans and empty fields are data. A text is another matter: torch makes Python source of the names of nodes and
inputs, looks targets up as attributes of torch, evaluates sizes and guards, and imports what a tree names. So every text
has a rule by the name of its field, and one without a rule is refused. What only annotates is left out.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from onnxproof.reference.archives._expressions import SYMBOL, plain_guard, plain_size

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_PATH = re.compile(r"[\w.\-+:@/ ]*")
_QUIET = re.compile(r"[^'\"\\\x00-\x1f\x7f-\x9f]*")
_DEVICE = re.compile(r"[a-z]{1,16}")
_VERSION = re.compile(r"[\w.+<>=\-]{0,80}")
_PAYLOAD = re.compile(r"(weight|tensor)_[0-9]{1,9}")
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(\.\w+)?")
_NAMESPACES = frozenset(
    {
        "aten",
        "prims",
        "quantized",
        "quantized_decomposed",
        "_quantized",
        "onnx",
        "torchao",
        "torchvision",
        "torchaudio",
        "rngprims",
        "export",
    }
)
TOUCH_FILES = re.compile(
    r"from_file|(save|load|sox_)\w*|(read|write|decode|encode)_\w+|\w*video\w*|_print",
    re.IGNORECASE,
)
"""Operators of the known namespaces that open files or print: `aten::from_file` writes, torchvision and torchaudio read and write."""
_HIGHER = frozenset(
    {
        "cond",
        "while_loop",
        "scan",
        "associative_scan",
        "map_impl",
        "map",
        "wrap_with_set_grad_enabled",
        "wrap_with_autocast",
        "invoke_subgraph",
        "flex_attention",
        "out_dtype",
        "auto_functionalized",
        "auto_functionalized_v2",
        "strict_mode",
        "with_effects",
        "wrap",
        "checkpoint",
        "hints_wrapper",
    }
)
_OF_OPERATOR = frozenset(
    {
        "getitem",
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "pow",
        "neg",
        "pos",
        "abs",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and_",
        "or_",
        "xor",
        "not_",
        "lshift",
        "rshift",
        "inv",
        "invert",
        "index",
    }
)
_OF_MATH = frozenset(
    {
        "ceil",
        "floor",
        "trunc",
        "sqrt",
        "log",
        "log2",
        "log10",
        "exp",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "prod",
        "isqrt",
    }
)
_BITWISE = frozenset(
    f"__{place}{name}__" for place in ("", "i") for name in ("and", "or", "xor", "lshift", "rshift")
)
_SYMBOLIC = re.compile(r"torch\.(_sym_\w+|sym_\w+)")
_TYPE = re.compile(r"\w+(\.\w+)*")
"""torch looks the type up among those that were registered in this process; `defaultdict` alone would import what it names."""
_KEPT_METADATA = frozenset({"stack_trace", "nn_module_stack", "torch_fn"})
_NOT_FINITE = ("Infinity", "-Infinity", "NaN")
_DEEPEST = 200
_LARGEST = 1 << 64


class Unknown(Exception):
    """A field that is not known to be plain data: its place, and what stands there."""

    def __init__(
        self,
        place: str,
        value: object,
        why: str,
        *,
        code: str = "code-refused",
    ) -> None:
        self.place = place
        self.value = str(value)[:120]
        self.why = why
        self.code = code
        super().__init__(f"{place}: {why}")


def plain_operator(target: str) -> bool:
    """True for an operator that computes and nothing else.

    >>> plain_operator("torch.ops.aten.add.Tensor"), plain_operator("torch.ops.aten.from_file.default"), plain_operator("torch.load")
    (True, False, False)
    """
    registered = _OPERATOR.fullmatch(target)
    if registered is not None:
        return _plain_registered(namespace=registered[1], name=registered[2])
    module, _, name = target.partition(".")
    if module == "_operator" and name in _OF_OPERATOR:
        return True
    if module == "math" and name in _OF_MATH:
        return True
    return bool(_SYMBOLIC.fullmatch(target))


def _plain_registered(*, namespace: str, name: str) -> bool:
    if namespace == "higher_order":
        return name in _HIGHER
    if namespace not in _NAMESPACES or TOUCH_FILES.fullmatch(name):
        return False
    return not name.startswith("__") or name in _BITWISE


Rule = Callable[[str], str]
"""What is wrong with a text, as the end of a sentence; empty where nothing is."""


def _require(is_plain: Callable[[str], object], why: str) -> Rule:
    def rule(text: str) -> str:
        if is_plain(text):
            return ""
        return why

    return rule


def _matches(pattern: re.Pattern[str], what: str) -> Rule:
    return _require(pattern.fullmatch, f"is not {what}")


def _name_or_nothing(text: str) -> str:
    if not text:
        return ""
    return _NAME(text)


def _tree(text: str) -> str:
    """A tree of inputs or outputs: registered containers with plain keys."""
    if not text:
        return ""
    try:
        _, root = json.loads(text)
        return next(_odd_trees(root, 0), "")
    except (ValueError, TypeError, KeyError, RecursionError) as why:
        return f"is no tree of inputs ({type(why).__name__})"


def _odd_trees(tree: dict[str, Any], depth: int) -> Iterator[str]:
    kind, context = tree["type"], tree["context"]
    if depth > _DEEPEST:
        yield "is nested too deeply"
        return
    if kind is not None and not _known_container(kind):
        yield f"has a container of the type `{kind}`"
    if not _plain_keys(_decode(context)):
        yield "has keys that are no plain words"
    for child in tree["children_spec"]:
        yield from _odd_trees(child, depth + 1)


def _known_container(kind: object) -> bool:
    if not isinstance(kind, str) or kind == "collections.defaultdict":
        return False
    return bool(_TYPE.fullmatch(kind))


def _decode(context: Any) -> Any:
    """What a container says about itself: JSON in most, the name of a type in a named tuple."""
    if not isinstance(context, str):
        return context
    try:
        return json.loads(context)
    except ValueError:
        return context


def _plain_keys(context: Any) -> bool:
    if isinstance(context, list):
        return all(_plain_keys(item) for item in context)
    if isinstance(context, str):
        return bool(_QUIET.fullmatch(context))
    # A dict would name an enum, or a factory.
    return context is None or isinstance(context, bool | int | float)


_NAME = _matches(_IDENTIFIER, "a name")
_FQN = _matches(_PATH, "the path of a parameter")
_PLAIN_OPERATOR = _require(plain_operator, "is no operator that is known to compute alone")
_NOT_FINITE_NUMBER = _require(_NOT_FINITE.__contains__, "is no number")
_RULES: dict[str, Rule] = {
    "name": _name_or_nothing,
    "as_name": _NAME,
    "user_input_name": _NAME,
    "forward_arg_names": _NAME,
    "field_names": _NAME,
    "verifiers": _NAME,
    "parameter_name": _FQN,
    "buffer_name": _FQN,
    "tensor_constant_name": _FQN,
    "fqn": _FQN,
    "target": _PLAIN_OPERATOR,
    "as_operator": _PLAIN_OPERATOR,
    "expr_str": _require(plain_size, "is more than arithmetic on sizes"),
    "guards_code": _require(plain_guard, "is more than a comparison of sizes"),
    "in_spec": _tree,
    "out_spec": _tree,
    "as_string": _matches(_QUIET, "plain text"),
    "as_strings": _matches(_QUIET, "plain text"),
    "type": _matches(_DEVICE, "a device"),
    "torch_version": _matches(_VERSION, "a version"),
    "path_name": _matches(_PAYLOAD, "a tensor of the archive"),
    "as_float": _NOT_FINITE_NUMBER,
    "as_floats": _NOT_FINITE_NUMBER,
    "real": _NOT_FINITE_NUMBER,
    "imag": _NOT_FINITE_NUMBER,
}
_OPERATORS = ("target", "as_operator")
_KEYS: dict[str, Rule] = {
    "tensor_values": _NAME,
    "sym_int_values": _NAME,
    "sym_bool_values": _NAME,
    "sym_float_values": _NAME,
    "opset_version": _NAME,
    "config": _FQN,
    "range_constraints": _matches(SYMBOL, "a symbol"),
    "treespec_namedtuple_fields": _FQN,
    "as_string_to_argument": _matches(_QUIET, "plain text"),
}
"""Fields whose keys are not fields but names; all other keys are identifiers."""
_OBJECTS = frozenset({"as_custom_obj", "custom_obj", "class_fqn", "custom_obj_values"})


def plain(
    value: Any,
    field: str = "",
    place: str = "",
    *,
    inside: str = "",
    depth: int = 0,
) -> Any:
    """The value with every text checked and its annotations left out.

    Raises:
        Unknown: with the first field that is not known to be plain data.
    """
    if depth > _DEEPEST:
        raise Unknown(place, "...", "it is nested too deeply", code="archive-refused")
    if isinstance(value, dict):
        return _plain_object(value, field, place, inside=inside, depth=depth)
    if isinstance(value, list):
        return [
            plain(item, field, f"{place}[{index}]", inside=inside, depth=depth + 1)
            for index, item in enumerate(value)
        ]
    if isinstance(value, str):
        _check_text(value, field, place, inside)
    elif isinstance(value, int) and abs(value) >= _LARGEST:
        raise Unknown(place, value, "the number is too large", code="archive-refused")
    elif field == "use_pickle" and value:
        raise Unknown(place, value, "it is a pickle", code="pickle-refused")
    return value


def _plain_object(
    value: dict[str, Any],
    field: str,
    place: str,
    *,
    inside: str,
    depth: int,
) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, item in _entries(value, field, place):
        item_field = "" if field in _KEYS else key
        item_inside = inside
        if key == "nodes":
            item_inside = inside or key
        entries[key] = plain(
            item,
            item_field,
            f"{place}.{key}",
            inside=item_inside,
            depth=depth + 1,
        )
    return entries


def _entries(value: dict[str, Any], field: str, place: str) -> Iterator[tuple[str, Any]]:
    """The entries of a JSON object: known keys alone, without what only annotates."""
    if field == "metadata":
        for key, item in value.items():
            if key in _KEPT_METADATA and isinstance(item, str):
                yield key, item
        return
    rule = _KEYS.get(field, _NAME)
    for key, item in value.items():
        if key in _OBJECTS and item:
            raise Unknown(f"{place}.{key}", item, "it is an object of a class of its own")
        why = rule(key)
        if why:
            raise Unknown(f"{place}.{key[:80]}", key, f"it {why}")
        yield key, item


def _check_text(text: str, field: str, place: str, inside: str) -> None:
    if field in _KEPT_METADATA:
        return  # words for people: torch keeps them beside the node, and makes nothing of them
    if inside == "nodes" and field in ("as_string", "as_strings"):
        return  # an operator's argument, which torch writes by repr()
    rule = _RULES.get(field, _unknown_field)
    why = rule(text)
    if why:
        code = "operator-refused" if field in _OPERATORS else "code-refused"
        raise Unknown(place, text, f"it {why}", code=code)


def _unknown_field(text: str) -> str:
    return "is a text in an unknown field"
