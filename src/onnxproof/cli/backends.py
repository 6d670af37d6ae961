"""List the runtimes that a model can be tried on, and how to install those that are missing."""

import textwrap

from onnxproof.cli import _options as option


def command(debug: option.Debug = False) -> int:
    """Describe every backend that is registered: version and device, what it is, what it can't do, how to install it."""
    from rich.text import Text

    from onnxproof import runtimes
    from onnxproof.report.plain import safe, visible
    from onnxproof.report.terminal import console

    out = console()
    names = runtimes.names()
    width = max(len(_shown(name)) for name in names)
    for name in names:
        state, words, install = _describe(name)
        title = (f"{visible(_shown(name)):{width}}", "bold")
        colour = "yellow" if install else "green"
        out.print(Text.assemble(title, "  ", (visible(state), colour)), soft_wrap=True)
        for line in words:
            for part in _wrap(line, max(out.width, 40)):
                out.print(safe(part), soft_wrap=True)
        if install:  # never broken: it is there to be copied
            out.print(safe(f"  = help: {install}"), soft_wrap=True)
    return 0


def _wrap(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _shown(name: str) -> str:
    """As it is asked for: what stands behind the @ is the reader's."""
    return name.replace("-at", "@VERSION") if name.endswith("-at") else name


def _describe(name: str) -> tuple[str, list[str], str]:
    """Whether it is there, in which version and on which devices; what it is and what it can't do; for one that is missing the command that installs it."""
    from onnxproof import runtimes
    from onnxproof.errors import BackendError, BackendMissing

    try:
        description = runtimes.describe(name)
    except BackendMissing as why:
        return "not installed", [], why.help
    except BackendError as why:  # and the others are still to be listed
        return "broken", [why.what.partition(" is broken: ")[2] or why.what], why.help
    about = [words for words in (description.about, description.limits) if words]
    if not description.installed:
        return "not installed", about, description.install
    return " · ".join(filter(None, (description.version, description.device))), about, ""
