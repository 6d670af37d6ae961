"""Run `verify` over looping faults and healthy models: caught, told apart, first bad call, node and cause.

python -m bench.loops                       # every case
python -m bench.loops --only window,slot    # those whose names have one of these words
python -m bench.loops --quick               # verdicts and steps alone
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.loops.case import Case

LIMIT_S = 400


def builders() -> dict[str, Callable[[Path], Case]]:
    """Every case by name."""
    from bench.loops import decoder_faults, healthy, streams

    planted = (*decoder_faults.FAULTS, *streams.FAULTS, *healthy.HEALTHY)
    return {make.__name__: (lambda folder, make=make: make().build(folder)) for make in planted}


def main(words: Sequence[str] | None = None) -> None:
    """Run what was asked for, one case at a time, each in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    if options.child:
        print("ROWS " + json.dumps(_run(options.child, quick=options.quick)))
        return
    chosen = [word for word in options.only.split(",") if word]
    rows: list[dict[str, Any]] = []
    for name in builders():
        if chosen and not any(word in name for word in chosen):
            continue
        more = _apart(name, quick=options.quick)
        for row in more:
            print(_line(row), flush=True)
        rows += more
    print(summary(rows))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


def _apart(name: str, *, quick: bool) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "bench.loops", "--child", name, *["--quick"] * quick]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return [{"case": name, "twin": "wrong", "verdict": "timeout"}]
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    if not lines:
        return [{"case": name, "twin": "wrong", "verdict": "crash", "why": done.stderr[-600:]}]
    rows: list[dict[str, Any]] = json.loads(lines[-1][5:])
    return rows


def _run(name: str, *, quick: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        case = builders()[name](Path(folder))
        twins = [("right", case.right)]
        if case.wrong is not None:
            twins.insert(0, ("wrong", case.wrong))
        return [
            {
                "case": name,
                "twin": twin,
                "healthy": case.wrong is None,
                **_verify(case, path, quick),
            }
            for twin, path in twins
        ]


def _verify(case: Case, path: Path, quick: bool) -> dict[str, Any]:
    import onnxproof

    options: dict[str, Any] = {"explain": False, "budget_s": 20.0} if quick else {}
    if case.loop is not None:
        options["loop"] = case.loop
    if case.dims is not None:
        options["dynamic_shapes"] = case.dims
    begun = time.process_time()
    try:
        proof = onnxproof.verify(case.model, path, case.example, **options)
    except Exception as why:  # whatever it is, the row says it
        return {"verdict": "crash", "why": f"{type(why).__name__}: {why}"[:600]}
    bad = [each for each in proof.rollouts if each.first_bad_step is not None]
    nodes = list(proof.location.nodes) if proof.location else []
    return {
        "verdict": proof.verdict.value,
        "ratio": max((gap.noise_ratio for gap in proof.gaps), default=0.0),
        "cpu_s": round(time.process_time() - begun, 1),
        "rollouts": len(proof.rollouts),
        "at": [
            [each.schedule, each.first_bad_step, each.first_bad_length, each.what] for each in bad
        ],
        "want": case.first_bad,
        "near": any(_is_near(each, case) for each in bad),
        "nodes": nodes[:3],
        "guilty": list(case.guilty),
        "first": bool(nodes) and nodes[0] in case.guilty,
        "within": bool(set(nodes[:3]) & set(case.guilty)),
        "file": proof.location.file if proof.location else "",
        "file_ok": not case.file
        or (proof.location is not None and proof.location.file == case.file),
        "causes": [[cause.code, cause.proven] for cause in proof.causes],
        "cause_ok": bool(proof.causes) and proof.causes[0].code in case.causes,
        "findings": sorted({finding.code for finding in proof.findings}),
        "why": proof.error[-300:],
    }


def _is_near(rollout: Any, case: Case) -> bool:
    """Whether the first bad call is the one that a plain loop shows, or next to it: by its number or by what was consumed."""
    if case.first_bad is None or case.first_bad_step is None:
        return False
    by_length = abs(rollout.first_bad_length - case.first_bad) <= 1
    return by_length or abs(rollout.first_bad_step - case.first_bad_step) <= 1


BAD = ("diverged", "drift", "error")


def _line(row: dict[str, Any]) -> str:
    shown = [f"{row['case']:28} {row['twin']:6} {row['verdict']:9}"]
    if row["twin"] == "wrong" and row["verdict"] in BAD:
        shown.append(f"near {row['near']} want {row['want']} at {row['at'][:3]}")
        shown.append(f"first {row['first']} {row['nodes']} of {row['guilty'][:3]}")
        shown.append(f"file {row['file_ok']} causes {row['causes'][:3]} {row['cause_ok']}")
    elif row["verdict"] != "faithful":
        shown.append(f"{row.get('ratio')} {row.get('at')} {row.get('findings')}")
    return " | ".join([*shown, f"{row.get('cpu_s')} s", str(row.get("why", ""))[-200:]])


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """What was measured, in a sentence."""
    wrong = [row for row in rows if row["twin"] == "wrong"]
    right = {row["case"]: row for row in rows if row["twin"] == "right"}
    caught = [row for row in wrong if row["verdict"] in BAD]
    apart = [row for row in caught if right.get(row["case"], {}).get("verdict") == "faithful"]
    alarms = [row for row in right.values() if row["verdict"] in ("diverged", "drift")]
    unsure = [row for row in right.values() if row["verdict"] not in ("faithful", *BAD)]
    located = [row for row in caught if row["guilty"]]
    return (
        f"caught {len(caught)} of {len(wrong)}, told apart {len(apart)}, "
        f"alarms {len(alarms)} of {len(right)}, neither {len(unsure)}, "
        f"first bad call within one {sum(row['near'] for row in caught)}, "
        f"node first {sum(row['first'] for row in located)} of {len(located)}, "
        f"within three {sum(row['within'] for row in located)}, "
        f"first cause right {sum(row['cause_ok'] for row in caught)}, "
        f"proven {sum(row['cause_ok'] and row['causes'][0][1] for row in caught)}"
    )


if __name__ == "__main__":
    main()
