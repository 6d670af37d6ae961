"""Expressions that torch evaluates as Python: arithmetic on sizes is let through, anything else is refused.

Two fields of an exported program are code: the sizes of tensors (`Add(Symbol('s0'), Integer(1))`, which SymPy evaluates)
and the guards (`L['x'].size()[0] >= 2`, which become a function). Each is parsed, and every part of it must be known.
"""

import ast
import re
from collections.abc import Collection

SYMBOL = re.compile(r"[A-Za-z_]{1,16}[0-9]{0,6}")
_CHARACTERS = re.compile(r"[A-Za-z0-9_ ()\[\]+\-*/%<>=!,.'&|~]*")
_LONGEST = 100_000
_MOST_POWER = 4096
"""The product of all exponents and shifts: 9 to the 4096th has 4,000 digits, and one level of powers more could fill the memory."""
_KEY = re.compile(r"[^'\"\\\x00-\x1f\x7f-\x9f]*")
_NUMBER = re.compile(r"-?[0-9.]{1,40}(e[-+]?[0-9]{1,3})?")
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift", "pow"})
_FUNCTIONS = _POWERS | frozenset(
    {
        "Symbol",
        "Integer",
        "Float",
        "Rational",
        "Add",
        "Mul",
        "Max",
        "Min",
        "Abs",
        "And",
        "Or",
        "Not",
        "Eq",
        "Ne",
        "Lt",
        "Le",
        "Gt",
        "Ge",
        "Equality",
        "Unequality",
        "StrictLessThan",
        "LessThan",
        "StrictGreaterThan",
        "GreaterThan",
        "Piecewise",
        "ExprCondPair",
        "floor",
        "ceiling",
        "FloorDiv",
        "ModularIndexing",
        "Where",
        "PythonMod",
        "Mod",
        "CleanDiv",
        "CeilToInt",
        "FloorToInt",
        "CeilDiv",
        "FloatTrueDiv",
        "IntTrueDiv",
        "TrueDiv",
        "IsNonOverlappingAndDenseIndicator",
        "TruncToFloat",
        "TruncToInt",
        "RoundToInt",
        "RoundDecimal",
        "ToFloat",
        "Identity",
        "sqrt",
        "exp",
        "log",
        "sign",
        "OpaqueUnaryFn_sqrt",
        "OpaqueUnaryFn_exp",
        "OpaqueUnaryFn_log",
        "OpaqueUnaryFn_log2",
        "OpaqueUnaryFn_sin",
        "OpaqueUnaryFn_cos",
        "OpaqueUnaryFn_tan",
        "OpaqueUnaryFn_tanh",
        "BitwiseFn_bitwise_and",
        "BitwiseFn_bitwise_or",
        "BooleanTrue",
        "BooleanFalse",
        "Half",
        "Infinity",
        "NegativeInfinity",
        "One",
        "Zero",
        "NegativeOne",
        "IntInfinity",
        "NegativeIntInfinity",
        "abs",
        "max",
        "min",
        "int",
        "float",
        "bool",
        "round",
        "cast_symbool_to_symint_guardless",
    }
)
_CONSTANTS = frozenset({"true", "false", "True", "False", "oo", "int_oo", "inf", "pi", "E", "nan"})
_OF_MATH = frozenset(
    {
        "ceil",
        "floor",
        "trunc",
        "sqrt",
        "log",
        "log2",
        "exp",
        "inf",
        "nan",
        "isnan",
        "isinf",
        "pi",
        "e",
        "sin",
        "cos",
        "tan",
        "tanh",
    }
)
_OF_TENSORS = frozenset(
    {"size", "stride", "storage_offset", "shape", "ndim", "dim", "numel", "itemsize"}
)
_SHAPES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
    ast.Tuple,
    ast.keyword,
)


def plain_size(text: str) -> bool:
    """True for arithmetic on symbols and numbers, as a size is written.

    >>> plain_size("Add(Symbol('s0', integer=True), Integer(1))"), plain_size("__import__('os').system('id')")
    (True, False)
    """
    return "[" not in text and _plain(text, inputs=False)


def plain_guard(text: str) -> bool:
    """True for a comparison of the inputs' sizes.

    >>> plain_guard("L['x'].size()[0] >= 2"), plain_guard("L['x'].__class__ != 2")
    (True, False)
    """
    return _plain(text, inputs=True)


def _plain(text: str, *, inputs: bool) -> bool:
    if len(text) > _LONGEST or (not inputs and not _CHARACTERS.fullmatch(text)):
        return False
    # torch puts the text of a guard into a line of code, and its words into a string.
    if any(c in text for c in '#\\\n\r"'):
        return False
    try:
        tree = ast.parse(text, mode="eval")
        return (
            _texts_in_place(tree)
            and all(_known(node, inputs=inputs) for node in ast.walk(tree))
            and _power(tree) <= _MOST_POWER
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _texts_in_place(tree: ast.AST) -> bool:
    """True where every text is the name of a symbol, the digits of a float, or the key of an input: elsewhere it could be multiplied."""
    placed = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    placed |= {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _calls(node, ("Symbol", "Float")) and node.args
    }
    return all(
        id(node) in placed
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _known(node: ast.AST, *, inputs: bool) -> bool:
    if isinstance(node, ast.Name):
        return (
            node.id in _FUNCTIONS | _CONSTANTS
            or bool(re.fullmatch(r"[a-z]{1,8}[0-9]{1,6}", node.id))
            or (inputs and node.id in ("L", "math"))
        )
    if isinstance(node, ast.Call):
        return _known_call(node)
    if isinstance(node, ast.Attribute):
        return inputs and _known_attribute(node)
    if isinstance(node, ast.Subscript):
        return inputs
    if isinstance(node, ast.Constant):
        return _known_constant(node.value, inputs=inputs)
    return isinstance(node, _SHAPES)


def _known_attribute(node: ast.Attribute) -> bool:
    if isinstance(node.value, ast.Name) and node.value.id == "math":
        return node.attr in _OF_MATH
    return node.attr in _OF_TENSORS


def _known_call(node: ast.Call) -> bool:
    """A call of a known function by its name; what follows `L` or `math` is looked at as an attribute."""
    named = isinstance(node.func, ast.Attribute) or (
        isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    )
    return named and all(
        word.arg is not None and isinstance(word.value, ast.Constant) for word in node.keywords
    )


def _known_constant(value: object, *, inputs: bool) -> bool:
    if isinstance(value, str):  # Symbol('s0'), Float('0.5'), L['x']
        return bool(SYMBOL.fullmatch(value) or _NUMBER.fullmatch(value)) or (
            inputs and bool(_KEY.fullmatch(value))
        )
    if isinstance(value, int):
        return abs(value) < 1 << 64
    return isinstance(value, float)


def _power(tree: ast.AST) -> float:
    """The product of all exponents; infinity where one is not a number that stands there."""
    product = 1.0
    for node in ast.walk(tree):
        exponent = _exponent(node)
        if exponent is not None:
            product *= max(1.0, _number(exponent))
    return product


def _exponent(node: ast.AST) -> ast.AST | None:
    """The exponent of a power or a shift; the node itself, which is no number, where it has not two arguments."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
        return node.right
    if isinstance(node, ast.Call) and _calls(node, _POWERS):
        return node.args[1] if len(node.args) == 2 else node
    return None


def _calls(node: ast.Call, names: Collection[str]) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in names


def _number(node: ast.AST) -> float:
    """The size of a number that is written out: `2`, `-2`, `Integer(2)`, `Rational(1, 2)`; infinity for anything else."""
    if isinstance(node, ast.UnaryOp):
        return _number(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return abs(float(node.value))
    if isinstance(node, ast.Call) and _calls(node, ("Integer", "Rational")) and node.args:
        return _number(node.args[0])
    return float("inf")
