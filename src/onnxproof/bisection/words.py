"""A bisection in words, and as JSON.

`python -m onnxproof.bisection.words > docs/bisection.schema.json` writes the schema.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from onnxproof.bisection.result import Bisection, Blame, Change, Part
from onnxproof.report.plain import ratio, short
from onnxproof.report.schema import document_of
from onnxproof.report.writers.json import layout, to_plain

SCHEMA = "bisection-1"


def dumps(result: Bisection) -> str:
    """The text of the JSON."""
    return layout({"schema": SCHEMA, "returns": result.returns, **to_plain(result)})


def schema() -> dict[str, Any]:
    """The published schema."""
    document = document_of(Bisection, "onnxproof bisection", SCHEMA)
    body = document["$defs"]["Bisection"]
    about = "Answers that were left came back: one that was not tried may differ, too."
    body["properties"]["returns"] = {"type": "boolean", "description": about}
    body["required"].append("returns")
    return document


def lines(result: Bisection) -> Iterator[str]:
    """What people read: one paragraph a change, then what was tried."""
    for change in result.changes:
        yield from _change_lines(change, result.axis)
        yield ""
    tried = f"{len(result.points)} of {len(result.available)} tried"
    yield f"{tried}: {', '.join(_point_words(result))}"
    if result.returns:
        yield "  = note: answers that were left came back, so one that was not tried may differ as well; `--every` tries each"


def _change_lines(change: Change, axis: str) -> Iterator[str]:
    difference = change.difference
    yield f"{axis} {change.after} changed the answers; {change.before} is the last that answers as before"
    where = f"case `{difference.case}`, output `{difference.output}`"
    if not difference.case:
        yield f"  {short(difference.words)}"
    elif difference.words:
        yield f"  {where}: {short(difference.words)}"
    else:
        apart = ratio(difference.noise_ratio)
        yield f"  {where}: {apart} times the noise apart (max abs {difference.max_abs:.3g})"
    if difference.domain:
        yield f"  = note: only where the domain is odd: {difference.domain}"
    if difference.case:
        yield f"  = note: {change.cases} of {change.asked} cases differ"
    for standing in change.standings:
        if standing.noise_ratio is None:
            yield f"  = note: {standing.point} refuses it"
        else:
            yield f"  = note: {standing.point} is {ratio(standing.noise_ratio)} times the noise from the truth"
    yield f"what: {_blame_words(change.blame)}"
    if change.blame.evidence:
        yield f"  = note: {short(change.blame.evidence)}"


def _blame_words(blame: Blame) -> str:
    how = "proven" if blame.proven else "likely"
    if blame.part is Part.OPTIMIZER and blame.name:
        return f"the optimizer {blame.name} ({how})"
    if blame.part is Part.FUSED_KERNEL:
        return f"the kernel that the optimizer {blame.name} puts in ({how})"
    if blame.part is Part.KERNEL and blame.name:
        return f"the kernel of {blame.op_type}, node `{blame.name}` ({how})"
    plain = {
        Part.OPTIMIZER: f"an optimizer of the level `{blame.level}`",
        Part.KERNEL: "a kernel",
        Part.REFUSAL: "one of the two refuses it",
        Part.FILE: "the file that is made",
    }
    return plain.get(blame.part, "not found out")


def _point_words(result: Bisection) -> Iterator[str]:
    """Each point with a letter for its answers."""
    for point in result.points:
        letter = "refuses" if point.refused else chr(ord("A") + point.answers % 26)
        yield f"{point.name} {letter}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
