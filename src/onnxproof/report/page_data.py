"""A proof as the data of a page: columns for the charts and the long tables, short names, numbers of four digits.

Names are cut and made visible here once, so that nothing later has to remember it.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onnxproof.report.matrix_table import parts_in_words
from onnxproof.report.plain import percent, ratio, short
from onnxproof.report.rows import numbers
from onnxproof.results import Gap
from onnxproof.results.judging import judge_gap, level_words, severity
from onnxproof.results.proof import Proof

LEAST = 1e-2
MOST = 1e9
"""Ratios beyond are drawn at these: a log scale has no zero and no infinity."""
_MOSTLY_DISTINCT = 0.7
"""Share of different values beyond which numbering them saves nothing (not measured)."""


def data(proof: Proof) -> dict[str, Any]:
    """Every dataset that the charts name; those without rows are left out."""
    datasets = {
        "gaps": _columns(_gaps(proof)),
        "nodes": _columns(_nodes(proof)),
        "causes": _columns(_causes(proof)),
        "losses": _columns(_losses(proof)),
        "ranges": _columns(_ranges(proof)),
        "matrices": _columns(_matrices(proof)),
        "front": _columns(_block_front(proof)),
    }
    return {name: columns for name, columns in datasets.items() if columns}


def choices(proof: Proof) -> dict[str, list[str]]:
    """What the filters offer."""
    return {
        "backend": [short(backend) for backend in proof.backends],
        "group": [short(group) for group in dict.fromkeys(gap.group for gap in proof.gaps)],
        "verdict": list(dict.fromkeys(_verdict(gap, proof) for gap in proof.gaps)),
    }


def dims(proof: Proof) -> list[str]:
    """The dims that took more than one size."""
    by_name: dict[str, set[int]] = {}
    for sizes in proof.sizes.values():
        for name, size in sizes.items():
            by_name.setdefault(name, set()).add(size)
    return [name for name, taken in by_name.items() if len(taken) > 1]


def source_line(file: str, line: int) -> str:
    """The file's name and the line."""
    return short(f"{Path(file).name}:{line}", 80)


def _gaps(proof: Proof) -> Iterable[dict[str, Any]]:
    several = len(proof.backends) > 1
    names = dims(proof)
    groups = list(dict.fromkeys(gap.group for gap in proof.gaps))
    places: dict[str, dict[str, int]] = {group: {} for group in groups}
    for gap in proof.gaps:
        places[gap.group].setdefault(gap.case, len(places[gap.group]))
    worst = _worst_by_case(proof)
    for gap in proof.gaps:
        noise_ratio, peak, largest, tolerance = numbers(gap)
        place = places[gap.group][gap.case]
        row = f"{gap.group} · {gap.backend}" if several else gap.group
        sizes = proof.sizes.get(gap.case, {})
        yield {
            "case": short(gap.case),
            "group": short(gap.group),
            "backend": short(gap.backend),
            "output": short(gap.output),
            "row": short(row, 60),
            "rank": groups.index(gap.group) * 100 + _index(proof.backends, gap.backend),
            "place": place,
            "end": place + 1,
            "top": worst[gap.case, gap.backend] is gap,
            "shown": _drawn(gap),
            "said": noise_ratio,
            "peak": peak,
            "largest": largest,
            "tolerance": tolerance,
            "error": _number(gap.rms),
            "noise": _number(gap.noise),
            "verdict": _verdict(gap, proof),
            "dims": tuple(sizes.get(name) for name in names),
        }


def _worst_by_case(proof: Proof) -> dict[tuple[str, str], Gap]:
    """The worst output of each case on each backend."""
    worst: dict[tuple[str, str], Gap] = {}
    for gap in proof.gaps:
        known = worst.get((gap.case, gap.backend))
        if known is None or severity(gap, proof.policy) > severity(known, proof.policy):
            worst[gap.case, gap.backend] = gap
    return worst


def _index(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _verdict(gap: Gap, proof: Proof) -> str:
    if gap.domain is not None and not proof.policy.strict_domains:
        return "note"
    return judge_gap(gap, proof.policy).value


def _drawn(gap: Gap) -> float:
    """The ratio within what can be drawn; what has no ratio (another shape, a refusal, a lost value) is as bad as it gets."""
    if gap.lost or gap.status.value in ("shape", "missing", "refused"):
        return MOST
    return clamp(gap.noise_ratio)


def clamp(value: float) -> float:
    """Within what a log scale can show, four digits."""
    if math.isnan(value):
        return MOST
    return _round(min(max(value, LEAST), MOST))


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _number(value: float) -> float | None:
    """Four digits; None for what JSON has no number for."""
    if not math.isfinite(value):
        return None
    return _round(value)


def _nodes(proof: Proof) -> Iterable[dict[str, Any]]:
    if proof.profile is None:
        return
    first: str | None = None
    guilty: set[str | None] = set()
    if proof.location is not None:
        first = next(iter(proof.location.nodes), None)
        guilty = {suspect.node for suspect in proof.location.suspects if suspect.why}
    for place, node in enumerate(proof.profile.nodes):
        line = text = ""
        if node.source:
            line = source_line(node.source.file, node.source.line)
            text = short(node.source.text, 160)
        yield {
            "place": place,
            "node": short(node.node),
            "op": short(node.op_type),
            "shown": clamp(node.ratio),
            "said": ratio(node.ratio),
            "module": short(node.module or ""),
            "line": line,
            "text": text,
            "guilty": node.node in guilty or node.node == first,
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
                "shown": clamp(value),
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


def _matrices(proof: Proof) -> Iterable[dict[str, Any]]:
    for place, each in enumerate(proof.matrices):
        yield {
            "place": place,
            "matrix": short(each.name, 120),
            "form": each.form,
            "bits": _number(each.bits),
            "size": each.size,
            "cost": _number(each.cost),
            "parts": parts_in_words(each),
            "next": each.next_form,
            "more": each.next_bytes,
            "saves": _number(each.next_saves),
        }


def _block_front(proof: Proof) -> Iterable[dict[str, Any]]:
    for each in proof.block_front:
        yield {
            "point": each.name,
            "size": each.size,
            "cost": _number(each.cost),
            "ms": _number(each.latency_s * 1e3),
            "best": each.best,
        }


def _ranges(proof: Proof) -> Iterable[dict[str, Any]]:
    for place, each in enumerate(proof.ranges):
        yield {
            "place": place,
            "tensor": short(each.tensor, 120),
            "clipped": _number(each.clipped),
            "unused": _number(each.unused),
            "clips": percent(each.clipped, 3),
            "leaves": percent(each.unused, 0),
            "low": _number(each.low),
            "high": _number(each.high),
            "chosen_low": _number(each.chosen_low),
            "chosen_high": _number(each.chosen_high),
        }


def _columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns instead of rows; a value that repeats is written once and then by its number."""
    records = list(rows)
    if not records:
        return {}
    return {name: _column([record[name] for record in records]) for name in records[0]}


def _column(values: list[Any]) -> Any:
    known = {value: place for place, value in enumerate(dict.fromkeys(values))}
    plain_numbers = all(isinstance(value, bool | int | float | None) for value in values)
    if plain_numbers or len(known) > _MOSTLY_DISTINCT * len(values):
        return [int(value) if isinstance(value, bool) else value for value in values]
    return {"values": list(known), "at": [known[value] for value in values]}
