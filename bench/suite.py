"""A suite of 200 small models under kills: `python -m bench.suite --count 200 --seed 1`.

1. Undisturbed: every verdict, the throughput (the sum of what the models took, over the cores times the wall time, start-up included), the
   overhead (what a model takes beyond its command alone), the most memory that all processes held together.
2. Disturbed: the driver is killed with SIGKILL at three random times, and a worker at two; each time the suite is started again.
   Every verdict must be there exactly once, and be the same as in 1.
3. `--cost` instead: processor time of the start-up, of the commands, and beyond them, on few models, and the throughput that follows for
   200. Wall times say little on a machine that does much else, processor times do.
"""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxproof.runtimes.isolation.child import resident
from onnxproof.suite.store import Store

_MODELS = """
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.from_numpy(w)) for w in weights)

    def forward(self, x):
        for weight in self.weights:
            x = torch.relu(x @ weight)
        return x


def build(number):
    stored = np.load(__file__.replace("models.py", f"m{number}.npz"))
    net = Net([stored[name] for name in sorted(stored.files)]).eval()
    generator = torch.Generator().manual_seed(number)
    return net, (torch.randn(3, net.weights[0].shape[0], generator=generator),)
"""
_FAULTY = 10
"""Every tenth file has a wrong weight, every tenth another a factory that crashes."""


def make_models(folder: Path, count: int, budget_s: float) -> None:
    """The files, models.py and suite.toml."""
    crash = "\n\ndef crash(number):\n    import os\n\n    os.abort()\n"
    (folder / "models.py").write_text(_MODELS + crash)
    lines = ["[suite]", 'name = "bench"', f"budget_s = {budget_s}", "explain = false"]
    rng = np.random.default_rng(0)
    for number in range(count):
        sizes = rng.integers(4, 24, size=rng.integers(3, 6))
        weights = [
            rng.standard_normal(pair).astype(np.float32) / 3 for pair in itertools.pairwise(sizes)
        ]
        np.savez(folder / f"m{number}.npz", **{f"w{n}": w for n, w in enumerate(weights)})
        if number % _FAULTY == 3:
            weights[-1] = weights[-1] * np.float32(1.01)
        _write_onnx(folder / f"m{number}.onnx", weights)
        factory = "crash" if number % (2 * _FAULTY) == 7 else "build"
        lines += [
            "[[model]]",
            f'name = "m{number}"',
            f'subject = "models.py:{factory}"',
            f'file = "m{number}.onnx"',
            f"set = {{number = {number}}}",
        ]
    (folder / "suite.toml").write_text("\n".join(lines) + "\n")


def _write_onnx(path: Path, weights: Sequence[np.ndarray]) -> None:
    nodes, value = [], "x"
    for place in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [value, f"w{place}"], [f"p{place}"]))
        nodes.append(helper.make_node("Relu", [f"p{place}"], [f"r{place}"]))
        value = f"r{place}"
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", len(weights[0])])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", weights[-1].shape[1]])],
        [numpy_helper.from_array(weight, f"w{n}") for n, weight in enumerate(weights)],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def start(folder: Path, history: str, jobs: int, memory_gb: float) -> subprocess.Popen[bytes]:
    words = ["suite", "suite.toml", "--history", history, "--json", f"{history}.json", "--quiet"]
    limits = ["-j", str(jobs), "--memory-limit", str(memory_gb), "--time-limit", "120"]
    return subprocess.Popen(
        [sys.executable, "-m", "onnxproof", *words, *limits],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def results_of(path: Path) -> dict[str, str]:
    """Verdicts by model; a name that comes twice is an error."""
    results = json.loads(path.read_text())["results"]
    twice = [name for name, n in Counter(r["name"] for r in results).items() if n > 1]
    assert not twice, f"there twice: {twice}"
    return {result["name"]: result["verdict"] for result in results}


class Memory:
    """The most that a process and its descendants held together."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._pid, self._on = pid, True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._on:
            self.most = max(self.most, resident(self._pid))
            time.sleep(0.2)

    def end(self) -> float:
        self._on = False
        self._thread.join()
        return self.most / 1e9


def undisturbed(folder: Path, jobs: int, memory_gb: float) -> dict[str, str]:
    begun = time.monotonic()
    driver = start(folder, "calm.sqlite", jobs, memory_gb)
    memory = Memory(driver.pid)
    code = driver.wait()
    wall = time.monotonic() - begun
    held = memory.end()
    with Store(folder / "calm.sqlite") as store:
        results = store.results(1)
    single = sum(result.duration_s for result in results)
    workers = jobs * wall
    print(f"undisturbed: {len(results)} models in {wall:.1f} s, exit code {code}")
    print(f"  sum of single times {single:.1f} s, throughput {single / workers:.3f} of the ideal")
    print(f"  beyond the command itself: {(workers - single) / len(results):.3f} s a model")
    print(f"  memory: at most {held:.2f} GB, the limit is {memory_gb:g} GB")
    print(f"  verdicts: {dict(Counter(result.verdict for result in results))}")
    return results_of(folder / "calm.sqlite.json")


def disturbed(folder: Path, jobs: int, memory_gb: float, rng: random.Random) -> dict[str, str]:
    """Killed five times, finished at the sixth."""
    total = len(list(folder.glob("m*.onnx")))
    kinds = ["driver"] * 3 + ["worker"] * 2
    rng.shuffle(kinds)
    moments = sorted(rng.uniform(0.02, 0.95) for _ in kinds)
    driver = start(folder, "stormy.sqlite", jobs, memory_gb)
    for kind, moment in zip(kinds, moments, strict=True):
        while driver.poll() is None and _committed(folder) < moment * total:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.5))
        if driver.poll() is not None:
            break
        done = _committed(folder)
        if kind == "driver":
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            driver = start(folder, "stormy.sqlite", jobs, memory_gb)
        else:
            victim = rng.choice(_descendants(driver.pid))
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        print(f"  killed the {kind} after {done} of {total} results")
    code = driver.wait()
    with Store(folder / "stormy.sqlite") as store:
        again = sum(result.attempts - 1 for result in store.results(1))
        print(f"disturbed: exit code {code}, {len(store.runs())} run, {again} models started again")
    return results_of(folder / "stormy.sqlite.json")


def _committed(folder: Path) -> int:
    with suppress(Exception), Store(folder / "stormy.sqlite") as store:
        return len(store.results(1))
    return 0


def _descendants(pid: int) -> list[int]:
    found = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in list(found):
        with suppress(OSError):
            found += _descendants(child)
    return found


def cost(folder: Path, count: int) -> int:
    """Processor time, one worker."""
    from onnxproof.suite import manifest, plan
    from onnxproof.suite.expansion import expand
    from onnxproof.suite.job import Setting
    from onnxproof.suite.pool import Pool

    used = time.process_time()
    models = expand(manifest.read(folder / "suite.toml"))
    jobs = [item.job for item in plan.make(models, folder, {}, plan.Limits())]
    planned = time.process_time() - used
    pool = Pool(Setting(jobs=1, memory=8 << 30))
    beside, worker, start, driver = 0.0, 0, (0.0, 0.0), 0.0
    for event in pool.run(jobs):
        if event.kind == "started" and not worker:
            worker = _descendants(os.getpid())[1]
            start, driver = _processor_s(worker), time.process_time()
        if event.kind == "ended":
            beside += (event.outcome.answer or {}).get("beside_s", 0.0)
            end = _processor_s(worker)
    driver = time.process_time() - driver
    pool.close()
    each = (end[1] - start[1] - beside) / count
    beyond = (end[0] - start[0] + driver + beside) / count
    print(f"start-up of a worker {start[0]:.2f} s, planning {planned / count:.3f} s a model")
    print(f"a model: {each:.3f} s for its command, {beyond:.3f} s beyond it")
    total = 200 * (each + beyond + planned / count) + 2 * start[0]
    print(f"throughput of 200 models on 2 cores: {200 * each / total:.3f} of the ideal")
    return 0


def _processor_s(pid: int) -> tuple[float, float]:
    """Seconds of a process itself, and of those that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    user, system, of_children, system_of_children = map(int, fields[11:15])
    return (user + system) / tick, (of_children + system_of_children) / tick


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--memory", type=float, default=4.0)
    parser.add_argument("--cost", action="store_true", help="processor times on few models")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_models(folder, chosen.count, chosen.budget)
        if chosen.cost:
            return cost(folder, chosen.count)
        calm = undisturbed(folder, chosen.jobs, chosen.memory)
        rng = random.Random(chosen.seed)
        stormy = disturbed(folder, chosen.jobs, chosen.memory, rng)
    others = {n: (calm.get(n), stormy.get(n)) for n in calm if calm[n] != stormy.get(n)}
    print(f"the same verdicts: {len(calm) - len(others)} of {len(calm)}; others: {others}")
    return int(bool(others) or len(calm) != chosen.count or len(stormy) != chosen.count)


if __name__ == "__main__":
    sys.exit(main())
