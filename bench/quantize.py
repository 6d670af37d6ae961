"""`make bench-quantize`: int8 models of onnxproof and of other tools, side by side in one run on networks trained on real data.

SQNR is that of the outputs against the float model on test images that no tool saw; top-1 has its paired 95 % interval; latencies are
measured in turns on one thread.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import torch

import onnxproof
from bench import quantize_models as models
from bench import quantize_tools as tools
from onnxproof.exporter import export
from onnxproof.onnxmodel import onnx_file
from onnxproof.quantization.calibration import batches
from onnxproof.quantization.calibration.observe import observe
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.kernel_report import count_kernels, latencies
from onnxproof.quantization.paired_metric import interval
from onnxproof.reference import subject
from onnxproof.verification.quantized import decibels

CALIBRATED_ON = 256


def outputs(model: Path, images: np.ndarray) -> np.ndarray:
    from onnxproof.runtimes import ort

    session = ort.open(model)
    name = session.input_names[0]
    return np.concatenate(
        [session.run({name: images[k : k + 100]})[0] for k in range(0, len(images), 100)]
    )


def others(source: Path, calibration: Path, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """What each tool makes of it, and the reasons of those that make nothing."""
    made, missing = {}, {}
    for tool in tools.TOOLS:
        target = folder / f"{tool.replace(' ', '-')}.onnx"
        try:
            tools.make(tool, source, calibration, target)
            made[tool] = target
        except tools.NotThere as why:
            missing[tool] = str(why)
            print(f"  {tool}: {why}", file=sys.stderr)
    return made, missing


def compared(name: str, module: torch.nn.Module, data: models.Data, folder: Path) -> list[dict]:
    """One network: every tool's model, measured alike."""
    source, calibration = folder / "float.onnx", folder / "calibration.npz"
    example = (torch.from_numpy(data.train[:2]),)
    export.write(subject.load(module, example, dynamic_shapes=({0: "batch"},)), source)
    np.savez(calibration, x=data.train[:CALIBRATED_ON])
    made, missing = others(source, calibration, folder)
    start = time.perf_counter()
    result = onnxproof.quantize(
        module,
        folder / "onnxproof.onnx",
        example_inputs=example,
        dynamic_shapes=({0: "batch"},),
        calibration={"x": data.train[:CALIBRATED_ON]},
        budget=onnxproof.Budget(min_sqnr=25.0, seconds=120),
    )
    seconds = time.perf_counter() - start
    made["onnxproof"] = folder / "onnxproof.onnx"
    wanted = outputs(source, data.test)
    right = (wanted.argmax(1) == data.test_labels).astype(float)
    name_in = onnx.load(source).graph.input[0].name
    times = latencies([source, *made.values()], {name_in: data.test[:1]}, rounds=200, seconds=20)
    rows = [{"net": name, "tool": "float", "top1": right.mean(), "ms": times[0] * 1e3}]
    for (tool, path), latency in zip(made.items(), times[1:], strict=True):
        found = outputs(path, data.test)
        mine = (found.argmax(1) == data.test_labels).astype(float)
        low, high = interval(right, mine)
        done, heavy = count_kernels(path).heavy
        rows.append(
            {
                "net": name,
                "tool": tool,
                "top1": mine.mean(),
                "drop": (right - mine).mean(),
                "low": low,
                "high": high,
                "ms": latency * 1e3,
                "db": decibels(float((wanted**2).sum()), float(((found - wanted) ** 2).sum())),
                "integer": f"{done}/{heavy}",
                "verdict": result.verdict.value if tool == "onnxproof" else "",
                "seconds": seconds if tool == "onnxproof" else None,
            }
        )
    return rows + [{"net": name, "tool": tool, "missing": why} for tool, why in missing.items()]


def show(rows: list[dict]) -> list[str]:
    lines = [
        "| network | tool | SQNR dB | top-1 | drop, points (95 %) | latency ms | integer kernels |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if "missing" in row:
            lines.append(f"| | {row['tool']} | {row['missing']} | | | | |")
            continue
        if row["tool"] == "float":
            lines.append(f"| {row['net']} | float | | {row['top1']:.3f} | | {row['ms']:.4f} | |")
            continue
        lines.append(
            f"| | {row['tool']} | {row['db']:.1f} | {row['top1']:.3f} | {100 * row['drop']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f}) "
            f"| {row['ms']:.4f} | {row['integer']} |"
        )
    return lines


def bars(rows: list[dict]) -> list[str]:
    """The bars of the issue, each with its figures."""
    lines = []
    for net in dict.fromkeys(row["net"] for row in rows):
        mine = next(row for row in rows if row["net"] == net and row["tool"] == "onnxproof")
        rest = [
            row
            for row in rows
            if row["net"] == net
            and row["tool"] not in ("onnxproof", "float")
            and "missing" not in row
        ]
        best, fastest = max(row["db"] for row in rest), min(row["ms"] for row in rest)
        lines.append(
            f"{net}: SQNR {mine['db']:.1f} dB, best of the others {best:.1f}: {'met' if mine['db'] > best else 'MISSED'}; "
            f"latency {mine['ms'] / fastest:.3f} of the fastest other: {'met' if mine['ms'] <= 1.05 * fastest else 'MISSED'}; "
            f"drop {100 * mine['drop']:+.2f} points: {'met' if mine['drop'] <= 0.002 + 1e-9 else 'MISSED'}; {mine['verdict']}, made in {mine['seconds']:.0f} s"
        )
    return lines


def calibration_cost() -> list[str]:
    """Peak memory and time of a pass with histograms, in processes of their own, beside ONNX Runtime's min-max."""
    lines = []
    for what, count in (
        ("ours", 50),
        ("ours", 3200),
        *(("ort", 800), ("ours", 800)) * 3,
    ):  # in turns: the machine may be busy
        done = subprocess.run(
            [sys.executable, "-m", "bench.quantize", "--pass", what, str(count)],
            capture_output=True,
            text=True,
            check=True,
        )
        lines.append(done.stdout.strip())
    return lines


def one_pass(what: str, count: int) -> None:
    """One calibration pass over a conv net at 3x64x64, streamed."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    ).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        export.write(
            subject.load(net, (torch.randn(2, 3, 64, 64),), dynamic_shapes=({0: "batch"},)), path
        )
        rng = np.random.default_rng(0)
        model = prepare(path)
        name = model.graph.input[0].name
        before = peak_kb()
        start = time.perf_counter()
        if what == "ours":
            stream = batches.split_batches(
                (
                    {name: rng.standard_normal((8, 3, 64, 64), dtype=np.float32)}
                    for _ in range(count // 8 + 1)
                ),
                onnx_file.read(path).inputs,
            )
            observe(Observer(model), stream)
        else:
            from onnxruntime.quantization import (
                CalibrationDataReader,
                CalibrationMethod,
                create_calibrator,
            )

            class Reader(CalibrationDataReader):
                left = count // 8 + 1

                def get_next(self):
                    self.left -= 1
                    return (
                        {name: rng.standard_normal((8, 3, 64, 64), dtype=np.float32)}
                        if self.left >= 0
                        else None
                    )

            calibrator = create_calibrator(
                path,
                None,
                augmented_model_path=str(Path(folder) / "augmented.onnx"),
                calibrate_method=CalibrationMethod.MinMax,
            )
            calibrator.collect_data(Reader())
            calibrator.compute_data()
        peak = peak_kb()
        print(
            f"{what} {count} samples: {time.perf_counter() - start:.2f} s, peak {peak / 1024:.0f} MB ({(peak - before) / 1024:.0f} MB more than before)"
        )


def peak_kb() -> int:
    """The peak of this program's memory; `ru_maxrss` would count the process that started it."""
    return int(
        next(
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pass", dest="single", nargs=2)
    parser.add_argument("--net", action="append")
    parser.add_argument("--markdown")
    words = parser.parse_args()
    torch.set_num_threads(1)
    if words.single:
        one_pass(words.single[0], int(words.single[1]))
        return
    data = models.load()
    rows: list[dict] = []
    for name, module in models.networks(data).items():
        if words.net and name not in words.net:
            continue
        print(f"{name} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            rows += compared(name, module, data, Path(folder))
    lines = [
        f"{data.name}; {CALIBRATED_ON} calibration images, {len(data.test)} test images",
        "",
        *show(rows),
        "",
        *(f"- {line}" for line in bars(rows)),
        "",
        "Calibration:",
        "",
        *(f"- {line}" for line in calibration_cost()),
    ]
    print("\n".join(lines))
    if words.markdown:
        Path(words.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
