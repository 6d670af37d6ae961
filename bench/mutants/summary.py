"""Rows in words: a line for each, totals, and tables by kind and by model."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from bench.mutants.rows import Row


def line(row: Row) -> str:
    """One row of the listing."""
    start = f"{row.index:4d} {row.model:30s} {row.kind:26s} {row.verdict:9s} {row.seconds:6.1f}s"
    if row.healthy:
        return f"{start} twin: {row.what} {row.wrong} {row.why}"
    causes = "; ".join(_cause(cause) for cause in row.causes[:2])
    return (
        f"{start} moved {row.movement:.2g}x; {row.what}; guilty {', '.join(row.guilty[:3])}; "
        f"named {', '.join(row.nodes[:3]) or '-'} (rank {row.rank or '-'}); "
        f"{causes or 'no cause'} of {'|'.join(row.codes)} {row.wrong} {row.why}"
    )


def _cause(cause: dict[str, object]) -> str:
    word = "proven" if cause["proven"] else "likely"
    return f"{cause['code']} {word} {_number(cause['before'])}->{_number(cause['after'])}"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "-"


def totals(rows: Sequence[Row]) -> str:
    """The figures that the bench is for."""
    faults = [row for row in rows if not row.healthy]
    twins = [row for row in rows if row.healthy]
    lines = []
    if faults:
        lines += [
            f"faults: {len(faults)}",
            f"caught {_share(faults, [row.caught for row in faults])}",
            f"node first {_share(faults, [row.rank == 1 for row in faults])}",
            f"within three {_share(faults, [row.rank in (1, 2, 3) for row in faults])}",
            f"first cause right and proven {_share(faults, [row.proven_right for row in faults])}",
            f"wrong and proven {_share(faults, [row.proven_wrong for row in faults])}",
        ]
    if twins:
        alarms = [row.verdict != "faithful" for row in twins]
        lines.append(f"alarms {_share(twins, alarms)} of healthy twins")
    crashes = sum(row.verdict in ("crash", "timeout") for row in rows)
    times = [row.seconds for row in rows] or [0.0]
    lines.append(
        f"crashes {crashes}; {sum(times):.0f} s in all, {statistics.median(times):.1f} s in the median"
    )
    return "\n".join(lines)


def _share(rows: Sequence[Row], hits: Sequence[bool]) -> str:
    return f"{sum(hits)}/{len(rows)} ({100 * sum(hits) / len(rows):.1f} %)"


COLUMNS = ("faults", "caught", "first", "in three", "proven", "wrong", "twins", "alarms", "crashes")


def counts(rows: Sequence[Row], key: str) -> dict[str, list[int]]:
    """The columns for each kind or model."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, key)].append(row)
    return {name: _columns(group) for name, group in sorted(groups.items())}


def _columns(rows: Sequence[Row]) -> list[int]:
    faults = [row for row in rows if not row.healthy]
    twins = [row for row in rows if row.healthy]
    return [
        len(faults),
        sum(row.caught for row in faults),
        sum(row.rank == 1 for row in faults),
        sum(row.rank in (1, 2, 3) for row in faults),
        sum(row.proven_right for row in faults),
        sum(row.proven_wrong for row in faults),
        len(twins),
        sum(row.verdict != "faithful" for row in twins),
        sum(row.verdict in ("crash", "timeout") for row in rows),
    ]


def by(rows: Sequence[Row], key: str) -> str:
    """A table for the console."""
    head = f"{key:32s}" + "".join(f"{column:>9s}" for column in COLUMNS)
    body = [
        f"{name:32s}" + "".join(f"{number:9d}" for number in numbers)
        for name, numbers in counts(rows, key).items()
    ]
    return "\n".join(["", head, *body])


def page(rows: Sequence[Row]) -> str:
    """The totals and both tables for the docs."""
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in rows}))
    parts = [f"Seed {seeds}:", "", *(f"- {text}" for text in totals(rows).splitlines())]
    for key in ("kind", "model"):
        parts += ["", f"| {key} | {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * len(COLUMNS)]
        parts += [
            f"| {name} | {' | '.join(map(str, numbers))} |"
            for name, numbers in counts(rows, key).items()
        ]
    return "\n".join(parts) + "\n"
