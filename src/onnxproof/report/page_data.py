"""A proof as the data of a page: columns for the charts and the long tables, short names, numbers of four digits.

Names are cut and made visible here once, so that nothing later has to remember it.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onnxproof.report.plain import percent, ratio, short
from onnxproof.report.rows import numbers
from onnxproof.results import Gap
from onnxproof.results.judging import judge_gap, level_words, severity
from onnxproof.results.proof import Proof

LEAST, MOST = 1e-2, 1e9
"""Ratios beyond are drawn at these: a log scale has no zero and no infinity."""


def data(proof: Proof) -> dict[str, Any]:
    """Every dataset that the charts name; those without rows are left out."""
    made = {
        "gaps": _columns(_gaps(proof)),
        "nodes": _columns(_nodes(proof)),
        "causes": _columns(_causes(proof)),
        "losses": _columns(_losses(proof)),
        "ranges": _columns(_ranges(proof)),
    }
    return {name: columns for name, columns in made.items() if columns}


def choices(proof: Proof) -> dict[str, list[str]]:
    """What the filters offer."""
    return {
        "backend": [short(backend) for backend in proof.backends],
        "group": [short(group) for group in dict.fromkeys(gap.group for gap in proof.gaps)],
        "verdict": list(dict.fromkeys(_verdict(gap, proof) for gap in proof.gaps)),
    }


def dims(proof: Proof) -> list[str]:
    """The dims that took more than one size."""
    seen: dict[str, set[int]] = {}
    for sizes in proof.sizes.values():
        for name, size in sizes.items():
            seen.setdefault(name, set()).add(size)
    return [name for name, sizes in seen.items() if len(sizes) > 1]


def source_line(file: str, line: int) -> str:
    """The file's name and the line."""
    return short(f"{Path(file).name}:{line}", 80)


def _gaps(proof: Proof) -> Iterable[dict[str, Any]]:
    several = len(proof.backends) > 1
    names = dims(proof)
    groups = list(dict.fromkeys(gap.group for gap in proof.gaps))
    places: dict[str, dict[str, int]] = {group: {} for group in groups}
    worst: dict[tuple[str, str], Gap] = {}
    for gap in proof.gaps:
        places[gap.group].setdefault(gap.case, len(places[gap.group]))
        best = worst.get((gap.case, gap.backend))
        if best is None or severity(gap, proof.policy) > severity(best, proof.policy):
            worst[gap.case, gap.backend] = gap
    for gap in proof.gaps:
        said, peak, largest, tolerance = numbers(gap)
        place = places[gap.group][gap.case]
        row = short(f"{gap.group} · {gap.backend}" if several else gap.group, 60)
        sizes = proof.sizes.get(gap.case, {})
        yield {
            "case": short(gap.case),
            "group": short(gap.group),
            "backend": short(gap.backend),
            "output": short(gap.output),
            "row": row,
            "rank": groups.index(gap.group) * 100 + _index(proof.backends, gap.backend),
            "place": place,
            "end": place + 1,
            "top": worst[gap.case, gap.backend] is gap,
            "shown": _drawn(gap),
            "said": said,
            "peak": peak,
            "largest": largest,
            "tolerance": tolerance,
            "error": _number(gap.rms),
            "noise": _number(gap.noise),
            "verdict": _verdict(gap, proof),
            "dims": tuple(sizes.get(name) for name in names),
        }


def _index(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _verdict(gap: Gap, proof: Proof) -> str:
    return (
        "note"
        if gap.domain is not None and not proof.policy.strict_domains
        else judge_gap(gap, proof.policy).value
    )


def _drawn(gap: Gap) -> float:
    """The ratio within what can be drawn; what has no ratio (another shape, a refusal, a lost value) is as bad as it gets."""
    broken = gap.lost or gap.status.value in ("shape", "missing", "refused")
    return MOST if broken else clamped(gap.noise_ratio)


def clamped(value: float) -> float:
    """Within what a log scale can show, four digits."""
    return MOST if math.isnan(value) else float(f"{min(max(value, LEAST), MOST):.4g}")


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _nodes(proof: Proof) -> Iterable[dict[str, Any]]:
    if proof.profile is None:
        return
    location = proof.location
    first = location.nodes[0] if location is not None and location.nodes else None
    guilty = {first} | {
        suspect.node
        for suspect in (location.suspects if location is not None else ())
        if suspect.why
    }
    for place, node in enumerate(proof.profile.nodes):
        source = node.source
        yield {
            "place": place,
            "node": short(node.node),
            "op": short(node.op_type),
            "shown": clamped(node.ratio),
            "said": ratio(node.ratio),
            "module": short(node.module or ""),
            "line": source_line(source.file, source.line) if source else "",
            "text": short(source.text, 160) if source else "",
            "guilty": node.node in guilty,
            "first": node.node == first,
        }


def _causes(proof: Proof) -> Iterable[dict[str, Any]]:
    for place, cause in enumerate(proof.causes):
        if not cause.before or cause.after is None:
            continue
        for when, value in (("before", cause.before), ("after", cause.after)):
            yield {
                "code": short(cause.code, 60),
                "place": place,
                "when": when,
                "shown": clamped(value),
                "said": ratio(value),
            }


def _losses(proof: Proof) -> Iterable[dict[str, Any]]:
    total = 0.0
    for place, step in enumerate(proof.waterfall):
        yield {
            "place": place,
            "name": short(step.code, 80),
            "from": _number(total),
            "to": _number(total + step.share),
            "share": _number(step.share),
            "recovers": f"{step.db:+.1f} dB",
            "then": level_words(step.after_db),
        }
        total += step.share


def _ranges(proof: Proof) -> Iterable[dict[str, Any]]:
    for place, found in enumerate(proof.ranges):
        yield {
            "place": place,
            "tensor": short(found.tensor, 120),
            "clipped": _number(found.clipped),
            "unused": _number(found.unused),
            "clips": percent(found.clipped, 3),
            "leaves": percent(found.unused, 0),
            **{
                name: _number(getattr(found, name))
                for name in ("low", "high", "chosen_low", "chosen_high")
            },
        }


def _columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns instead of rows; a value that repeats is written once and then by its number."""
    made = list(rows)
    return {name: _column([row[name] for row in made]) for name in made[0]} if made else {}


def _column(values: list[Any]) -> Any:
    known = {value: place for place, value in enumerate(dict.fromkeys(values))}
    if all(isinstance(value, bool | int | float | None) for value in values) or len(
        known
    ) > 0.7 * len(values):
        return [int(value) if isinstance(value, bool) else value for value in values]
    return {"values": list(known), "at": [known[value] for value in values]}
