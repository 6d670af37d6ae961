"""A constraints file for `make test-oldest` and `make test-newest`, read from pyproject.toml.

`oldest` pins what onnxproof depends on to the lower bounds that pyproject.toml promises, and the tools of the tests
to constraints.txt, where those fit; `newest` leaves all to pip. Both keep torch as constraints.txt has it, unless `--torch` says otherwise.
"""

import argparse
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("torch", "transformers", "html", "images", "onnxslim")
"""The extras of the environment that tests run in; runtimes have `make test-runtimes`."""
FREE_TOOLS = ("jax",)
"""Tools of the tests whose version in constraints.txt needs more than the lower bounds: pip finds an older one.

JAX 0.10 needs numpy 2; 0.7 does with numpy 1.26."""
BOUND = re.compile(r"^([A-Za-z0-9_.-]+)>=([0-9][^,; ]*)")
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def key(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bounds(requirements: list[str]) -> dict[str, str]:
    """The lower bound of each requirement that has one."""
    return {match[1]: match[2] for match in map(BOUND.match, requirements) if match}


def product() -> dict[str, str]:
    """The lower bounds of what onnxproof itself uses."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return bounds([*project["dependencies"], *(line for name in EXTRAS for line in extras[name])])


def tools() -> list[str]:
    """The names of what only the tests use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(bounds(project["optional-dependencies"]["test"]))


def pins() -> dict[str, str]:
    """The versions of constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return {key(name): version for name, version in PIN.findall(text)}


def constraints(which: str, torch: str) -> dict[str, str]:
    """Package to version, for one of the two environments."""
    wanted: dict[str, str] = {}
    if which == "oldest":
        pinned = pins()
        fixed = [key(name) for name in tools() if key(name) not in FREE_TOOLS]
        wanted = {name: pinned[name] for name in fixed if name in pinned}
        wanted |= {key(name): version for name, version in product().items()}
        wanted.pop("torch")
    if torch != "any":
        wanted["torch"] = torch or pins()["torch"]
    return wanted


def main() -> None:
    """Print the constraints, or the names that matter as one regular expression."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("oldest", "newest", "names"))
    parser.add_argument("--torch", default="")
    asked = parser.parse_args()
    if asked.which == "names":
        print("|".join(product()))
        return
    for name, version in constraints(asked.which, asked.torch).items():
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
