"""Run the zoo, each architecture in a process of its own, and write docs/zoo.md."""

import argparse
import concurrent.futures
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.zoo import ENTRIES

BUDGET_S = 20.0


@dataclass(slots=True, kw_only=True)
class Row:
    """One architecture."""

    name: str
    family: str
    about: str
    verdict: str = "crash"
    opened: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Dims that should have come out open, and did not."""
    fixed: list[str] = field(default_factory=list)
    """Dims the module itself takes at other sizes, each with what fixed it."""
    way: str = "standard"
    cause: str = ""
    ratio: float = 0.0
    cases: int = 0
    export_s: float = 0.0
    seconds: float = 0.0


def one(name: str) -> Row:
    """Export and verify one, in this process."""
    import torch

    import onnxproof

    torch.set_num_threads(1)
    torch.manual_seed(0)
    entry = ENTRIES[name]
    row = Row(name=name, family=entry.family, about=entry.about)
    module, inputs = entry.build()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            proof = onnxproof.export(module, inputs, Path(folder) / "m.onnx", budget_s=BUDGET_S)
        except onnxproof.OnnxproofError as why:
            row.verdict, row.cause = (
                "error",
                f"{why.code}: {why.what}{f' at {Path(why.where).name}' if why.where else ''}",
            )
            return row
    row.seconds, row.verdict = round(time.perf_counter() - start, 1), proof.verdict.value
    assert proof.export is not None
    row.export_s = round(proof.export.seconds, 1)
    row.opened = sorted({dim.name for dim in proof.export.dims if dim.name})
    row.missing = [name for name in entry.opens if name not in row.opened]
    row.fixed = [
        f"{dim.input}[{dim.axis}] = {dim.size}: {dim.reason}{f' at {Path(dim.source.file).name}:{dim.source.line}' if dim.source else ''}"
        for dim in proof.export.dims
        if dim.baked
    ]
    row.fixed += [
        f"tried {attempt.name}: {attempt.what}"
        for attempt in proof.export.attempts
        if row.fixed and not attempt.worked
    ]
    row.way = next(
        (attempt.name for attempt in proof.export.attempts if attempt.worked), "standard"
    )
    counted = [gap for gap in proof.gaps if gap.domain is None]
    row.ratio, row.cases = (
        max((gap.noise_ratio for gap in counted), default=0.0),
        len({gap.case for gap in proof.gaps}),
    )
    row.cause = "" if row.verdict == "faithful" else _cause(proof)
    return row


def _cause(proof: "object") -> str:
    """The first proven cause, else the assumption that was broken, else the located node, else the sentence."""
    for cause in proof.causes:  # type: ignore[attr-defined]
        return f"{cause.code} ({'proven' if cause.proven else 'likely'}): {cause.evidence}"
    for finding in proof.findings:  # type: ignore[attr-defined]
        if finding.code in ("guard", "random", "state"):
            return f"{finding.code}: {finding.what}"
    place = proof.location  # type: ignore[attr-defined]
    where = (
        f"stage {place.stage.value}, node {', '.join(place.nodes[:2])}; "
        if place is not None
        else ""
    )
    return f"unnamed: {where}{proof.sentence()}"  # type: ignore[attr-defined]


def child(name: str, limit: float) -> Row:
    """The same in a process of its own: a crash or a hang is a row, too."""
    entry = ENTRIES[name]
    failed = Row(name=name, family=entry.family, about=entry.about)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.zoo", "--child", name],
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        failed.verdict, failed.cause = "timeout", f"no answer within {limit:.0f} s"
        return failed
    rows = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not rows:
        failed.cause = (
            (done.stderr or done.stdout).strip().splitlines()[-1][:300]
            if (done.stderr or done.stdout).strip()
            else "no output"
        )
        return failed
    return Row(**json.loads(rows[-1][4:]))


def table(rows: Sequence[Row]) -> str:
    """docs/zoo.md."""
    faithful, opened = (
        sum(row.verdict == "faithful" for row in rows),
        sum(not row.missing and bool(row.cases) for row in rows),
    )
    lines = [
        "# The zoo",
        "",
        "Made by `make bench-zoo`: each architecture is built small with random weights and exported by `onnxproof export` without a word about",
        f"dims, then verified with a budget of {BUDGET_S:g} s and the default policy. `x noise` is the largest error in units of the reference's own rounding noise.",
        "",
        f"- {len(rows)} architectures: {faithful} faithful; {opened} with every dim open that should be.",
        f"- {sum(row.export_s for row in rows):.0f} s of exports, {sum(row.seconds for row in rows):.0f} s in all.",
        "",
        "| architecture | what | verdict | open dims | way | x noise | cases | export s |",
        "| --- | --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.name} | {row.family}: {row.about} | {row.verdict} | {', '.join(row.opened)} | {row.way} | {row.ratio:.1f} | {row.cases} | {row.export_s} |"
        for row in rows
    ]
    bad = [row for row in rows if row.verdict != "faithful"]
    lines += ["", "## Not faithful", ""] + (
        [f"- **{row.name}** ({row.verdict}): {_cell(row.cause)}" for row in bad] or ["None."]
    )
    fixed = [row for row in rows if row.missing or row.fixed]
    lines += ["", "## Dims that the export fixed and the module does not", ""]
    lines += [
        f"- **{row.name}**{f': {chr(44).join(row.missing)} should be open' if row.missing else ''}{': ' if row.fixed else ''}{'; '.join(map(_cell, row.fixed[:3]))}"
        for row in fixed
    ] or ["None."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _kept(path: Path | None) -> dict[str, Row]:
    """Rows of a run before, by name."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return {row.name: row for row in (Row(**json.loads(line)) for line in lines)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print each as it ends, write the page when all were run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument(
        "--rows",
        type=Path,
        help="keep each row here as it ends, and take those that are here already: a run that was stopped goes on",
    )
    parser.add_argument("--child")
    options = parser.parse_args(arguments)
    if options.child:
        print("ROW " + json.dumps(asdict(one(options.child))))
        return 0
    kept = _kept(options.rows)
    names = [
        name
        for name in ENTRIES
        if name not in kept
        and (not options.only or any(word in name for word in options.only.split(",")))
    ]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda name: child(name, options.limit), names):
            kept[row.name] = row
            if options.rows:
                with options.rows.open("a") as out:
                    out.write(json.dumps(asdict(row)) + "\n")
            print(
                f"{row.name:20s} {row.verdict:9s} {row.ratio:6.1f} {row.way:12s} {','.join(row.opened):30s} {row.export_s:6.1f}s {row.seconds:6.1f}s "
                f"{'MISSING ' + ','.join(row.missing) if row.missing else ''} {row.cause[:140]}",
                flush=True,
            )
    rows = [kept[name] for name in ENTRIES if name in kept]
    page = table(rows)
    if options.markdown:
        options.markdown.write_text(page)
    print(page.partition("| architecture")[0])
    return int(any(row.verdict in ("crash", "timeout") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
