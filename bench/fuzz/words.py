"""Command lines with words too few, too many, out of range or of another kind."""

import random

_LINES = (
    ("verify", "SUBJECT", "good.onnx", "--budget", "0.2", "--no-explain"),
    ("diff", "good.onnx", "good.onnx", "--budget", "0.2", "--no-explain"),
    ("inspect", "good.onnx"),
    ("verify", "--from", "proof.json"),
    ("report", "proof.json", "-o", "report.html"),
    ("explain", "--cause", "attribute"),
    ("explain", "proof.json"),
)
_VALUES = (
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "1e400",
    "x",
    "a" * 5000,
    "\udcff",
    "\x1b[31m",
    "--",
    "-",
    "good.onnx",
    ".",
    "/",
    "\x00",
    "null",
    "[]",
    "a\nb",
    "9" * 400,
    "0x10",
    "/proc/nope/x.json",
    "data.npz=3",
)
_OPTIONS = (
    "--budget",
    "--seed",
    "--atol",
    "--rtol",
    "--noise-limit",
    "--domain",
    "--backend",
    "--case",
    "--threads",
    "--time-limit",
    "--memory-limit",
    "--data",
    "--json",
    "--html",
    "--junit",
    "--markdown",
    "--sarif",
    "--baseline",
    "--baseline-factor",
    "--update-baseline",
    "--strict",
    "--strict-domains",
    "--github",
    "--isolate",
    "--quiet",
    "--dynamic",
    "--pipeline",
    "--unknown",
    "-x",
    "--reference",
    "--title",
    "-o",
    "--help",
    "--from",
)
_FLAGS = frozenset(
    {
        "--update-baseline",
        "--strict",
        "--strict-domains",
        "--github",
        "--isolate",
        "--quiet",
        "--help",
    }
)
KINDS = (
    "words-dropped",
    "words-replaced",
    "words-option-odd",
    "words-shuffled",
    "words-command-odd",
)


def line(kind: str, subject: str, source: random.Random) -> list[str]:
    """A command line with one kind of damage."""
    words = [subject if word == "SUBJECT" else word for word in source.choice(_LINES)]
    if kind == "words-dropped":
        del words[source.randrange(1, len(words))]
    elif kind == "words-replaced":
        words[source.randrange(1, len(words))] = source.choice(_VALUES)
    elif kind == "words-option-odd":
        option = source.choice(_OPTIONS)
        words += [option] if option in _FLAGS else [option, source.choice(_VALUES)]
    elif kind == "words-shuffled":
        rest = words[1:]
        source.shuffle(rest)
        words[1:] = rest
    else:
        words[0] = source.choice(
            [
                "",
                "verfy",
                "--",
                "-h",
                "--version",
                "\x1b[31m",
                "_dispatch",
                "../cli",
                "a" * 5000,
                "\udcff",
                "__main__",
            ]
        )
    return words
