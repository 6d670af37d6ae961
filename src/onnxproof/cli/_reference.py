"""The reference pages of the docs, made from the code: `python -m onnxproof.cli._reference docs/reference`. A test compares the two."""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

from onnxproof.cli import EXIT_CODES, _api_reference, commands
from onnxproof.diagnosis.causes import EXTRA_CODES, pages


def make() -> dict[str, str]:
    """File name -> text."""
    return {"commands.md": _commands(), "causes.md": _causes(), "api.md": _api_reference.make()}


def _commands() -> str:
    known = commands()
    parts = [
        "# Commands",
        "This page is made from the code by `make reference`.",
        "\n".join(
            f"- [`onnxproof {name}`](#onnxproof-{name}): {about}" for name, about in known.items()
        ),
        f"{EXIT_CODES[0].upper()}{EXIT_CODES[1:]}. `-` as a path is standard output, for one report at a time.",
    ]
    for name, about in known.items():
        parts += [
            f"## onnxproof {name}",
            f"{about}.",
            _parameters(importlib.import_module(f"onnxproof.cli.{name}").command),
        ]
    return "\n\n".join(parts) + "\n"


def _parameters(command: Any) -> str:
    """A row for each parameter, from what the command's own signature says: arguments first."""
    kinds = get_type_hints(command, include_extras=True)
    rows = [
        _row(parameter, *get_args(kinds[name])[:2])
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    return "\n".join(
        [
            "| argument or option | meaning |",
            "| --- | --- |",
            *sorted(rows, key=lambda row: row.startswith("| `-")),
        ]
    )


def _row(parameter: inspect.Parameter, kind: Any, info: Any) -> str:
    words = [word for word in (info.default, *(info.param_decls or ())) if isinstance(word, str)]
    if not words:
        return f"| `{info.metavar or parameter.name.upper()}` | {info.help} |"
    names = ", ".join(f"`{word}`" for word in sorted(words, key=len, reverse=True))
    row = f"| {names}{_value(kind, info)} | {info.help}"
    if isinstance(parameter.default, float | int) and kind is not bool:
        row += f" [default: {parameter.default:g}]"
    return f"{row} |".replace("finite|all", "finite\\|all")


def _value(kind: Any, info: Any) -> str:
    """What stands behind the option's name."""
    if kind is bool:
        return ""
    word = "NUMBER" if kind in (int, float, int | None, float | None) else "TEXT"
    return f" `{info.metavar or word}`"


def _causes() -> str:
    known = pages()
    others = sorted(EXTRA_CODES.items())
    parts = [
        "# Causes",
        "This page is made from the code by `make reference`. Each cause is a hypothesis that is tried on the case which shows the fault; "
        "`onnxproof explain --cause CODE` prints one of these pages.",
        "\n".join(
            [
                "| code | title |",
                "| --- | --- |",
                *(f"| [`{code}`](#{code}) | {title} |" for code, (title, _) in known.items()),
                *(f"| [`{code}`](#{home}) | {title} |" for code, (home, title) in others),
            ]
        ),
    ]
    for code, (_, page) in known.items():
        parts += [f"## {code}", page]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for file, text in make().items():
        (Path(sys.argv[1]) / file).write_text(text, encoding="utf-8")
