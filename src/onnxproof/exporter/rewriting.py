"""Rewrite one `if` of the user's Python during an export: on a tensor's value it becomes torch.where.

    if x.sum() > 0:              def branch_1(y): y = x * 2; return (y,)
        y = x * 2        ->      def branch_2(y): y = x - 1; return (y,)
    else:                        (y,) = choose(x.sum() > 0, branch_1(y), branch_2(y))
        y = x - 1

Both branches are computed, so the result differs for a branch that writes in place, or that is only safe when it is taken:
that is why the file is verified like any other. The user's own module is restored.
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


def choose(
    condition: Any,
    first: Any,
    second: Any,
) -> Any:
    """torch.where over whatever both branches return, which must have the same structure."""
    if not isinstance(condition, torch.Tensor):
        condition = torch.as_tensor(condition)
    first_leaves, structure = pytree.tree_flatten(first)
    second_leaves, second_structure = pytree.tree_flatten(second)
    if structure != second_structure:
        raise ValueError("the two ways return different structures")
    flag = condition.reshape(()).to(torch.bool)
    leaves = []
    for x, y in zip(first_leaves, second_leaves, strict=True):
        leaves.append(x if x is y else _where(flag, x, y))
    return pytree.tree_unflatten(leaves, structure)


def _where(
    flag: torch.Tensor,
    x: Any,
    y: Any,
) -> torch.Tensor:
    x = torch.as_tensor(x)
    y = torch.as_tensor(y)
    if x.dim() != y.dim() or x.dtype != y.dtype:
        raise ValueError(
            "the two ways return different shapes or types, which torch.where would hide"
        )
    return torch.where(flag, x, y)


@contextmanager
def rewritten_branch(
    module: Any,
    file: str,
    line: int,
) -> Iterator[None]:
    """While inside, every layer whose method contains that line runs the rewritten method."""
    changed: list[tuple[Any, str]] = []
    rewritten: dict[FunctionType, FunctionType] = {}
    for layer in module.modules():
        for name, function in _methods(type(layer)):
            if not _contains_line(function, file, line):
                continue
            if function not in rewritten:
                rewritten[function] = _rewrite(function, line)
            layer.__dict__[name] = MethodType(rewritten[function], layer)
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
        if base is torch.nn.Module:
            continue
        for name, value in vars(base).items():
            if isinstance(value, FunctionType):
                yield name, value


def _contains_line(
    function: FunctionType,
    file: str,
    line: int,
) -> bool:
    if function.__code__.co_filename != file or line < function.__code__.co_firstlineno:
        return False
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return False
    return first <= line < first + len(lines)


def _rewrite(function: FunctionType, line: int) -> FunctionType:
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
    code = compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec")
    exec(code, scope)  # noqa: S102 - the user's own code, with one `if` rewritten
    rewritten = scope[definition.name]
    rewritten.__defaults__ = function.__defaults__
    rewritten.__kwdefaults__ = function.__kwdefaults__
    return rewritten  # type: ignore[no-any-return]


class _Rewriter(ast.NodeTransformer):
    """Rewrites the `if` at one line, as a statement or as an expression."""

    def __init__(
        self,
        line: int,
        definition: ast.FunctionDef,
    ) -> None:
        self._line = line
        self._definition = definition
        self._count = itertools.count(1)
        self.done = False

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """`a if c else b`."""
        self.generic_visit(node)
        if not node.lineno <= self._line <= (node.end_lineno or node.lineno):
            return node
        self.done = True
        return _choose(node.test, node.body, node.orelse)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A body in which the `if` may be followed by more statements, which then belong to its other branch."""
        node.body = self._rewrite_body(node.body)
        for child in node.body:
            self.generic_visit(child)
        return node

    def _rewrite_body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        for place, statement in enumerate(body):
            if isinstance(statement, ast.If) and self._is_at_line(statement):
                return body[:place] + self._rewrite_if(statement, body[place + 1 :])
        return body

    def _is_at_line(self, node: ast.If) -> bool:
        """Whether the condition of the `if` is at the line."""
        return node.lineno <= self._line <= (node.test.end_lineno or node.lineno)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """An `if` inside of another block."""
        self.generic_visit(node)
        if self._is_at_line(node) and not _returns(node):
            return self._rewrite_if(node, [])
        return node

    def _rewrite_if(
        self,
        node: ast.If,
        rest: list[ast.stmt],
    ) -> list[ast.stmt]:
        """Two functions and a call of `choose`: it returns if a branch does, else it assigns what the branches assign."""
        self.done = True
        if _returns(node):
            first = self._branch_function(node.body)
            second = self._branch_function([*node.orelse, *rest])
            result = _choose(node.test, _call(first, []), _call(second, []))
            return [first, second, ast.Return(result)]
        names = sorted(_assigned_names(node.body) | _assigned_names(node.orelse))
        parameters = sorted(set(names) & _names_before(self._definition, node.lineno))
        values = ast.Return(ast.Tuple(_loads(names), ast.Load()))
        first = self._branch_function([*node.body, values], parameters)
        second = self._branch_function([*node.orelse, values], parameters)
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
        result = _choose(node.test, _call(first, parameters), _call(second, parameters))
        return [first, second, ast.Assign([ast.Tuple(targets, ast.Store())], result), *rest]

    def _branch_function(
        self,
        body: list[ast.stmt],
        parameters: Sequence[str] = (),
    ) -> ast.FunctionDef:
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(name) for name in parameters],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        )
        function: Any = ast.FunctionDef(
            name=f"onnxproof_branch_{next(self._count)}",
            args=arguments,
            body=body or [ast.Pass()],
            decorator_list=[],
        )
        if "type_params" in ast.FunctionDef._fields:
            function.type_params = []
        return function  # type: ignore[no-any-return]


def _choose(
    test: ast.expr,
    first: ast.expr,
    second: ast.expr,
) -> ast.Call:
    return ast.Call(ast.Name(_CHOOSE, ast.Load()), [test, first, second], [])


def _call(function: ast.FunctionDef, names: Sequence[str]) -> ast.Call:
    return ast.Call(ast.Name(function.name, ast.Load()), _loads(names), [])


def _loads(names: Sequence[str]) -> list[ast.expr]:
    return [ast.Name(name, ast.Load()) for name in names]


def _returns(node: ast.If) -> bool:
    return any(isinstance(child, ast.Return) for child in ast.walk(node))


def _assigned_names(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in body:
        names.update(name.id for name in _stores(statement))
    return names


def _names_before(definition: ast.FunctionDef, line: int) -> set[str]:
    """The arguments of a function, and the names that it assigns before a line."""
    arguments = [*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs]
    names = {argument.arg for argument in arguments}
    names.update(name.id for name in _stores(definition) if name.lineno < line)
    return names


def _stores(node: ast.AST) -> Iterator[ast.Name]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child
