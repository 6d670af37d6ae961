"""One measurement, alone in its process: `python -m bench.scale.child WHAT MODEL FILE`; prints JSON."""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from bench.scale.models import make

CPU_CLOCK = "cpu"
"""The word that lets a verification count the CPU time of its process instead of the seconds on the wall: then the load of the machine changes
neither its budget nor its cases. Not for explaining, which goes on in a fork with a CPU time of its own."""


def main() -> int:
    """Run one kind of measurement and print what it took."""
    what, name, file, *rest = sys.argv[1:]
    path = Path(file)
    if what == "write":
        measured = write(name, path)
    elif what == "plain":
        measured = run_plain(name, path)
    elif what == "write-fault":
        from bench.scale.faults import plant

        measured = plant(name, path, rest[0])
    else:
        if CPU_CLOCK in rest:
            time.perf_counter = time.process_time
        measured = run_verify(name, path, float(rest[0]), explain=what == "explain")
    print(json.dumps({**measured, **_peak()}))
    return 0


def write(name: str, path: Path) -> dict[str, Any]:
    """Export with the weights beside the file."""
    import onnx
    import torch

    sample = make(name)
    with torch.no_grad():
        torch.onnx.export(
            sample.module,
            sample.inputs,
            path,
            dynamo=True,
            dynamic_shapes=sample.dynamic_shapes,
            external_data=True,
            verbose=False,
        )
    model = onnx.load(path, load_external_data=False)
    parameters = sum(parameter.numel() for parameter in sample.module.parameters())
    return {
        "parameters": parameters,
        "nodes": len(model.graph.node),
        "outputs": len(model.graph.output),
    }


def run_plain(name: str, path: Path) -> dict[str, Any]:
    """The script that a user would write: the module and a session, one pass each."""
    import onnxruntime
    import torch

    sample = make(name)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    begun = time.perf_counter()
    with torch.no_grad():
        sample.module(*sample.inputs)
    torch_s = time.perf_counter() - begun
    names = [port.name for port in session.get_inputs()]
    arrays = [tensor.numpy() for tensor in sample.inputs]
    session.run(None, dict(zip(names, arrays, strict=True)))
    return {"pass_s": torch_s}


def run_verify(name: str, path: Path, budget_s: float, *, explain: bool) -> dict[str, Any]:
    """Verify; what it took by kind of pass, and what was said."""
    import onnxproof

    sample = make(name)
    begun, cpu = time.perf_counter(), time.process_time()
    proof = onnxproof.verify(
        sample.module,
        path,
        sample.inputs,
        dynamic_shapes=sample.dynamic_shapes,
        budget_s=budget_s,
        explain=explain,
    )
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    seconds = {key: round(value, 3) for key, value in proof.seconds.items() if key != "total"}
    gaps = [gap for gap in proof.gaps if gap.domain is None]
    return {
        "verdict": proof.verdict.value,
        "cases": len({gap.case for gap in proof.gaps}),
        "wall": wall,
        "cpu": cpu,
        "verified": proof.seconds["total"],
        "forward": sum(seconds.values()),
        "seconds": seconds,
        "passes": dict(proof.passes),
        "ratio": max((gap.noise_ratio for gap in gaps), default=0.0),
        "findings": [f"{finding.code}: {finding.what}" for finding in proof.findings],
        "nodes_named": list(proof.location.nodes[:3]) if proof.location else [],
        "causes": [f"{cause.code} {cause.proven}" for cause in proof.causes],
    }


def _peak() -> dict[str, float]:
    """The largest resident sizes in GB of this process and of the largest child."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"peak_gb": own / 2**20, "child_gb": children / 2**20}


if __name__ == "__main__":
    sys.exit(main())
