"""Rewrite one branch of the user's Python for the length of an export: `if` on a tensor's value becomes torch.where.

    if x.sum() > 0:              def way_1(y): y = x * 2; return (y,)
        y = x * 2        ->      def way_2(y): y = x - 1; return (y,)
    else:                        (y,) = choose(x.sum() > 0, way_1(y), way_2(y))
        y = x - 1

Both ways are computed, so a way that writes in place, or that is only safe when it is chosen, is not the same: that is why
the result is verified like any other. The user's own module is left as it was.
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree

_CHOOSE = "onnxproof_choose"


def choose(condition: Any, first: Any, second: Any) -> Any:
    """torch.where over whatever both ways return, which must have one structure."""
    flag = condition if isinstance(condition, torch.Tensor) else torch.as_tensor(condition)
    a, spec = pytree.tree_flatten(first)
    b, other = pytree.tree_flatten(second)
    if spec != other:
        raise ValueError("the two ways return different structures")
    flag = flag.reshape(()).to(torch.bool)
    return pytree.tree_unflatten(
        [x if x is y else _where(flag, x, y) for x, y in zip(a, b, strict=True)], spec
    )


def _where(flag: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    if x.dim() != y.dim() or x.dtype != y.dtype:
        raise ValueError(
            "the two ways return different shapes or types, which torch.where would hide"
        )
    return torch.where(flag, x, y)


@contextmanager
def without_branch(module: Any, file: str, line: int) -> Iterator[None]:
    """While inside, every layer whose method holds that line runs the rewritten method."""
    changed: list[tuple[Any, str]] = []
    made: dict[FunctionType, FunctionType] = {}
    for layer in module.modules():
        for name, function in _methods(type(layer)):
            if _holds(function, file, line):
                made[function] = made.get(function) or _rewritten(function, line)
                layer.__dict__[name] = MethodType(made[function], layer)
                changed.append((layer, name))
    if not changed:
        raise ValueError("the line is in no method of the module")
    try:
        yield
    finally:
        for layer, name in changed:
            layer.__dict__.pop(name, None)


def _methods(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for base in kind.__mro__:
        if base is not torch.nn.Module:
            yield from (
                (name, value)
                for name, value in vars(base).items()
                if isinstance(value, FunctionType)
            )


def _holds(function: FunctionType, file: str, line: int) -> bool:
    if function.__code__.co_filename != file or line < function.__code__.co_firstlineno:
        return False
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return False
    return first <= line < first + len(lines)


def _rewritten(function: FunctionType, line: int) -> FunctionType:
    if function.__code__.co_freevars:
        raise ValueError("the method closes over other variables")
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    rewriter = _Rewriter(line, definition)
    rewriter.visit(definition)
    if not rewriter.done:
        raise ValueError("the line is no `if` of a form that can be rewritten")
    scope = {**function.__globals__, _CHOOSE: choose}
    exec(compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec"), scope)  # noqa: S102 - the user's own code, with one `if` rewritten
    made = scope[definition.name]
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made  # type: ignore[no-any-return]


class _Rewriter(ast.NodeTransformer):
    """Rewrites the branch at one line, as a statement or as an expression."""

    def __init__(self, line: int, definition: ast.FunctionDef) -> None:
        self._line, self._definition = line, definition
        self._count = itertools.count(1)
        self.done = False

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """`a if c else b`."""
        self.generic_visit(node)
        if not node.lineno <= self._line <= (node.end_lineno or node.lineno):
            return node
        self.done = True
        return self._choice(node.test, node.body, node.orelse)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A body in which the `if` may be followed by more, which then belongs to its other way."""
        node.body = self._block(node.body)
        for child in node.body:
            self.generic_visit(child)
        return node

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        for place, statement in enumerate(body):
            if isinstance(statement, ast.If) and statement.lineno <= self._line <= (
                statement.test.end_lineno or statement.lineno
            ):
                return body[:place] + self._statement(statement, body[place + 1 :])
        return body

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """An `if` inside of another block."""
        self.generic_visit(node)
        if node.lineno <= self._line <= (node.test.end_lineno or node.lineno) and not _returns(
            node
        ):
            return self._statement(node, [])
        return node

    def _statement(self, node: ast.If, rest: list[ast.stmt]) -> list[ast.stmt]:
        self.done = True
        if _returns(node):
            first, second = self._way(node.body, None), self._way([*node.orelse, *rest], None)
            return [
                first,
                second,
                ast.Return(self._choice(node.test, _call(first, []), _call(second, []))),
            ]
        names = sorted(_assigned(node.body) | _assigned(node.orelse))
        before = sorted(set(names) & _known(self._definition, node.lineno))
        first, second = self._way(node.body, names, before), self._way(node.orelse, names, before)
        target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        value = self._choice(node.test, _call(first, before), _call(second, before))
        return [first, second, ast.Assign([target], value), *rest]

    def _way(
        self, body: list[ast.stmt], names: list[str] | None, parameters: Sequence[str] = ()
    ) -> ast.FunctionDef:
        statements = list(body)
        if names is not None:
            statements.append(
                ast.Return(ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load()))
            )
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(name) for name in parameters],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        )
        made: Any = ast.FunctionDef(
            name=f"onnxproof_way_{next(self._count)}",
            args=arguments,
            body=statements or [ast.Pass()],
            decorator_list=[],
        )
        if hasattr(made, "type_params") or "type_params" in ast.FunctionDef._fields:
            made.type_params = []
        return made  # type: ignore[no-any-return]

    def _choice(self, test: ast.expr, first: ast.expr, second: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(_CHOOSE, ast.Load()), [test, first, second], [])


def _call(function: ast.FunctionDef, names: list[str]) -> ast.Call:
    return ast.Call(
        ast.Name(function.name, ast.Load()), [ast.Name(name, ast.Load()) for name in names], []
    )


def _returns(node: ast.If) -> bool:
    return any(isinstance(child, ast.Return) for child in ast.walk(node))


def _assigned(body: list[ast.stmt]) -> set[str]:
    return {
        child.id
        for statement in body
        for child in ast.walk(statement)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
    }


def _known(definition: ast.FunctionDef, line: int) -> set[str]:
    arguments = [*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs]
    earlier = {
        child.id
        for child in ast.walk(definition)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and child.lineno < line
    }
    return {argument.arg for argument in arguments} | earlier
