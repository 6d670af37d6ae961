"""Python code of the user: found from the repository's root, imported as the package that it is part of, and told by the user's own line.

Where names are looked for, in this order: the folder above the file's outermost package (or the file's own folder), the current
folder, and its `src`. They come first while the code is imported, and stay at the end of `sys.path` for what it imports later.
"""

import importlib
import importlib.util
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from onnxproof.errors import SubjectError
from onnxproof.system import user_files

_NO_PARENT = "attempted relative import with no known parent package"
_IN_PARENT = "attempted relative import beyond top-level package"
_OURS = Path(__file__).resolve().parents[1]
_PACKAGES = ("site-packages", "dist-packages")
_imported: set[str] = set()
"""Outermost packages that were imported from a user's folder: another folder may bring one of the same name."""


def function(text: str) -> Any:
    """What `file.py:name`, `package.module:name` or `package.module:Class.name` names, not called."""
    place, _, name = text.rpartition(":")
    is_file = place.endswith(".py")
    module = import_file(Path(place)) if is_file else import_module(place, text)
    value = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None:
        public = ", ".join(_public_names(module))
        raise SubjectError(
            "no-factory",
            f"`{place}` has no `{name}`",
            where=text,
            notes=[f"it defines {public or 'nothing callable'}"],
        )
    return value


def _public_names(module: Any) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
    ]


def import_file(path: Path) -> Any:
    """The module of a Python file that a user named; a file of a package is imported under its dotted name."""
    user_files.require_regular(path, SubjectError)
    root, name = _package_root(path)
    with _search(root), _told_as_user_code(f"importing `{path}`", str(path)):
        if "." in name:
            return _import_from(root, name)
        try:
            return _execute(path)
        except ImportError as why:  # relative imports in folders that have no __init__.py
            if _NO_PARENT not in str(why) and _IN_PARENT not in str(why):
                raise
            base = _namespace_root(path)
            if base is None:
                raise
            return _import_from(base, _dotted(path, base))


def import_module(place: str, text: str) -> Any:
    """The module of a dotted name that a user wrote."""
    with _search():
        try:
            return _import_searched(place)
        except ModuleNotFoundError as why:
            if not _is_part_of(why.name, place):
                raise _raised(f"importing `{place}`", why, text) from why
            raise SubjectError(
                "no-module",
                f"`{place}` can't be imported: {why}",
                where=text,
                notes=[f"looked for in {', '.join(_searched())}, and among installed packages"],
                help="run from the repository's root, or write the path: `package/module.py:name`",
            ) from why
        except Exception as why:  # the user's own code
            raise _raised(f"importing `{place}`", why, text) from why


def _import_searched(place: str) -> Any:
    """From the repository, where it has a module of that name; otherwise an installed one."""
    outermost = place.partition(".")[0]
    for folder in map(Path, _searched()):
        if (folder / outermost).is_dir() or (folder / f"{outermost}.py").is_file():
            _forget_other(outermost, folder)
            _imported.add(outermost)
            break
    return importlib.import_module(place)


def user_line(why: BaseException, default: str) -> str:
    """The last line of the user's own code in a traceback; `default` where none is there."""
    if isinstance(why, SyntaxError) and why.filename:
        return f"{why.filename}:{why.lineno}"
    place = default
    for frame, line in traceback.walk_tb(why.__traceback__):
        if is_user_file(frame.f_code.co_filename):
            place = f"{frame.f_code.co_filename}:{line}"
    return place


def is_user_file(name: str) -> bool:
    """Whether a file is neither Python's, nor an installed package's, nor ours."""
    if name.startswith("<"):
        return False
    path = Path(name).resolve()
    if any(part in _PACKAGES for part in path.parts) or path.is_relative_to(_OURS):
        return False
    return not any(path.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> set[Path]:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], *site.getsitepackages()}
    return {Path(folder).resolve() for folder in folders}


@contextmanager
def _told_as_user_code(what: str, default: str) -> Iterator[None]:
    try:
        yield
    except SubjectError:
        raise
    except Exception as why:  # the user's own code
        raise _raised(what, why, default) from why


def _raised(what: str, why: BaseException, default: str) -> SubjectError:
    return SubjectError(
        "file-raised",
        f"{what} raised {type(why).__name__}: {why}",
        where=user_line(why, default),
    )


def _is_part_of(missing: str | None, place: str) -> bool:
    """Whether the module that is not there is the one that was asked for, or a package of it."""
    return missing is not None and (place == missing or place.startswith(f"{missing}."))


def _package_root(path: Path) -> tuple[Path, str]:
    """The folder above the outermost package of a file, and the file's dotted name from there."""
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder, _dotted(path, folder)


def _dotted(path: Path, root: Path) -> str:
    parts = path.resolve().relative_to(root.resolve()).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


def _namespace_root(path: Path) -> Path | None:
    """The searched folder that a file lies below, by at least one folder."""
    resolved = path.resolve()
    for folder in map(Path, reversed(_searched())):
        if resolved.is_relative_to(folder) and resolved.parent != folder:
            return folder
    return None


def _searched() -> list[str]:
    """The current folder, and its `src` where there is one."""
    here = Path.cwd()
    return [str(folder) for folder in (here, here / "src") if folder.is_dir()]


@contextmanager
def _search(*first: Path) -> Iterator[None]:
    folders = list(dict.fromkeys([*map(str, first), *_searched()]))
    before = list(sys.path)
    sys.path[:] = [*folders, *(entry for entry in before if entry not in folders)]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        moved = [entry for entry in folders if entry not in before]
        kept = [entry for entry in sys.path if entry not in folders or entry in before]
        sys.path[:] = [*kept, *moved]


def _import_from(root: Path, name: str) -> Any:
    """A module by its dotted name, from this folder even where another one brought a package of the same name before."""
    outermost = name.partition(".")[0]
    _forget_other(outermost, root)
    known = sys.modules.get(outermost)
    if known is not None and not _lies_below(known, root):
        raise SubjectError(
            "name-taken",
            f"the package `{outermost}` has the name of another one that is loaded already",
            where=str(getattr(known, "__file__", "")),
            help="rename the folder, or name a file outside of the package",
        )
    _imported.add(outermost)
    return importlib.import_module(name)


def _forget_other(outermost: str, root: Path) -> None:
    """Unload a user's package of this name that came from another folder."""
    known = sys.modules.get(outermost)
    if known is None or outermost not in _imported or _lies_below(known, root):
        return
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] == outermost:
            del sys.modules[loaded]


def _lies_below(module: Any, root: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(Path(place).resolve().is_relative_to(root.resolve()) for place in places if place)


def _execute(path: Path) -> Any:
    """A file that belongs to no package, as a module of its own."""
    name = f"onnxproof_subject_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up here
    vars(module)["get_ipython"] = _Notebook  # a script that was made from a notebook calls it
    spec.loader.exec_module(module)
    return module


class _Notebook:
    """Stands for IPython in a script that was made from a notebook: magics and shell commands do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
