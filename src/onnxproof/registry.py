"""The one way in which plug-ins are found: a file of a package, or an entry point of another package.

A kind of plug-in (runtime, generator, cause, attempt, check, recipe, scheme, writer) is a `Registry`: it has a folder,
a Protocol that says what a plug-in defines, and mostly a group of entry points. A file's name is its key. Nothing is
imported before it is asked for, and what lacks a part of the Protocol is refused when it is loaded.
"""

import difflib
import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from onnxproof.errors import PluginError, UsageError

Plugin = TypeVar("Plugin")


class Registry(Generic[Plugin]):
    """One kind of plug-in: the files of a package, and the entry points of a group.

    >>> from typing import Protocol
    >>> class Writer(Protocol):
    ...     def write(self, proof: object, path: str) -> None: ...
    >>> writers = Registry("writer", "onnxproof.report.writers", Writer)
    >>> "junit" in writers.names()
    True
    """

    def __init__(
        self, kind: str, package: str, protocol: type, *, group: str = "", help: str = ""
    ) -> None:
        self.kind, self.package, self.group = kind, package, group
        self._members = _members(protocol)
        self._help = help

    def own_names(self) -> list[str]:
        """The keys of our own plug-ins: file names, with `-` for `_`."""
        return list(_names_in(self.package))

    def names(self) -> list[str]:
        """Every key, ours first."""
        return [*self.own_names(), *sorted(point.name for point in self.outsiders())]

    def outsiders(self) -> Sequence[importlib.metadata.EntryPoint]:
        """The entry points of other packages."""
        if not self.group:
            return ()
        return points(self.group)

    def load(self, name: str) -> Plugin:
        """The plug-in of this name, imported now; an error where there is none, or where it lacks something."""
        for point in self.outsiders():
            if point.name == name:
                return self._load_outsider(point)
        if name not in self.own_names():
            raise self._unknown(name)
        module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        return self._checked(name, module)

    def load_all(self) -> dict[str, Plugin]:
        """Every plug-in by its key."""
        return {name: self.load(name) for name in self.names()}

    def _load_outsider(self, point: importlib.metadata.EntryPoint) -> Plugin:
        try:
            plugin = point.load()
        except (Exception, SystemExit) as why:  # another package's code may raise anything
            raise self._broken(point.name, f"{type(why).__name__}: {why}") from why
        return self._checked(point.name, plugin)

    def _checked(self, name: str, plugin: Any) -> Plugin:
        """The plug-in, if it is whole; where a kind is one function, that function may stand for it."""
        if len(self._members) == 1 and callable(plugin):
            plugin = SimpleNamespace(**{self._members[0]: plugin})
        missing = [member for member in self._members if not hasattr(plugin, member)]
        if missing:
            raise self._broken(name, f"it has no `{missing[0]}`")
        return plugin  # type: ignore[no-any-return]

    def _broken(self, name: str, why: str) -> PluginError:
        return PluginError(
            f"{self.kind}-broken",
            f"the {self.kind} `{name}` is broken: {why}",
            help="mend it, or remove the package that registers it",
        )

    def _unknown(self, name: str) -> UsageError:
        names = self.names()
        near = difflib.get_close_matches(name, names, n=1)
        return UsageError(
            f"unknown-{self.kind}",
            f"there is no {self.kind} `{name}`",
            notes=[f"known are {', '.join(names)}"],
            help="".join(f"did you mean `{other}`?" for other in near) or self._help,
        )


def points(group: str) -> Sequence[importlib.metadata.EntryPoint]:
    """The entry points of a group; every installed package is read for them once, and again when the path has changed."""
    return tuple(_points(tuple(sys.path)).select(group=group))


@functools.cache
def _points(path: tuple[str, ...]) -> Any:
    return importlib.metadata.entry_points()


@functools.cache
def _names_in(package: str) -> tuple[str, ...]:
    """Asked for at every loading of a plug-in; the folder is read once."""
    paths = importlib.import_module(package).__path__
    files = [info.name for info in pkgutil.iter_modules(paths) if not info.ispkg]
    return tuple(_key(name) for name in files if not name.startswith("_"))


def _key(file_name: str) -> str:
    return file_name.replace("_", "-")


def _members(protocol: type) -> list[str]:
    """What a plug-in must define: the functions of the Protocol, and its attributes without a default."""
    functions = [name for name, value in vars(protocol).items() if callable(value)]
    names = [*getattr(protocol, "__annotations__", {}), *functions]
    return [name for name in names if not name.startswith("_")]
