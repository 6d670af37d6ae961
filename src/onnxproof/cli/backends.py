"""List the runtimes that a model can be tried on, and how to install those that are missing."""

import textwrap

from onnxproof.cli import _options as option


def command(debug: option.Debug = False) -> int:
    """Describe every backend that is registered: version and device, what it is, what it can't do, how to install it."""
    from rich.text import Text

    from onnxproof import runtimes
    from onnxproof.report.plain import safe, visible
    from onnxproof.report.terminal import console

    out, names = console(), runtimes.names()
    width = max(len(_shown(name)) for name in names)
    for name in names:
        state, words, install = _told(name)
        out.print(
            Text.assemble(
                (f"{visible(_shown(name)):{width}}", "bold"),
                "  ",
                (visible(state), "yellow" if install else "green"),
            ),
            soft_wrap=True,
        )
        for line in words:
            for part in textwrap.wrap(
                line,
                max(out.width, 40),
                initial_indent="  ",
                subsequent_indent="  ",
                break_on_hyphens=False,
            ):
                out.print(safe(part), soft_wrap=True)
        if install:
            out.print(
                safe(f"  = help: {install}"), soft_wrap=True
            )  # never broken: it is there to be copied
    return 0


def _shown(name: str) -> str:
    """As it is asked for: what stands behind the @ is the reader's."""
    return name.replace("-at", "@VERSION") if name.endswith("-at") else name


def _told(name: str) -> tuple[str, list[str], str]:
    """Whether it is there, in which version and on which devices; what it is and what it can't do; for one that is missing the command that installs it."""
    from onnxproof import runtimes
    from onnxproof.errors import BackendError, BackendMissing

    try:
        found = runtimes.describe(name)
    except BackendMissing as why:
        return "not installed", [], why.help
    except BackendError as why:  # and the others are still to be listed
        return "broken", [why.what.partition(" is broken: ")[2] or why.what], why.help
    about = [words for words in (found.about, found.limits) if words]
    if not found.installed:
        return "not installed", about, found.install
    return " · ".join(filter(None, (found.version, found.device))), about, ""
