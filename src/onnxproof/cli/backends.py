"""List the runtimes that a model can be tried on, and how to install those that are missing."""

from onnxproof.cli import _options as option


def command(debug: option.Debug = False) -> int:
    """Describe every backend that is registered."""
    from rich.markup import escape
    from rich.table import Table

    from onnxproof import backends
    from onnxproof.report.terminal import console

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("backend", "version", "device", "about"):
        table.add_column(name, overflow="fold", no_wrap=name == "backend")
    for name in backends.names():
        table.add_row(*map(escape, _row(name)))
    console().print(table)
    return 0


def _row(name: str) -> tuple[str, str, str, str]:
    """Version, device and what it is; for one that is missing the command that installs it."""
    from onnxproof import backends
    from onnxproof.errors import BackendMissing

    shown = name.replace("-at", "@VERSION") if name.endswith("-at") else name
    try:
        found = backends.load(name).describe()
    except BackendMissing as why:
        return shown, "not installed", "", why.help
    except Exception as why:  # an outsider's file may raise anything, and the others are still to be listed
        return shown, "broken", "", f"{type(why).__name__}: {why}"
    if not found.installed:
        return shown, "not installed", "", found.install
    return shown, found.version, found.device, f"{found.about}; {found.limits}" if found.limits else found.about
