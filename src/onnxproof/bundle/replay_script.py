# mypy: ignore-errors
# ruff: noqa: B905 - Python 3.8 has no `strict=`
"""Replay this bundle with numpy and onnxruntime alone: `python replay.py MODEL.onnx`.

Unzip the bundle and run this file in its folder, or give the bundle with `--bundle model.proof`. Exit codes: 0 faithful or drift, 1 diverged
(or drift with --strict), 2 error, 3 nothing was compared. `--json PATH` writes a proof that `onnxproof report` reads. Python 3.8 or newer,
onnxruntime 1.17 or newer. `onnxproof replay` does more: other runtimes, a process of its own, placement, a quantized graph's simulation.

The measures are those of onnxproof: the error against the float64 truth, in units of the reference's own rounding noise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import struct
import sys
import time
import zipfile

import numpy as np

# The measures: `bundle/write` puts their text here.
from onnxproof.bundle.replay_measures import (
    classify,
    domain_of,
    judge,
    measure,
    severity,
    suspicious,
)

FAR_BELOW = 1e-9
ROUGH_KINDS = ("float64-graph", "float64-reference", "perturbed")
EXIT = {"faithful": 0, "drift": 0, "diverged": 1, "error": 2, "vacuous": 3}
_NAMES = "BOOL I8 I16 I32 I64 U8 U16 U32 U64 F16 F32 F64"
_DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
PLAIN = dict(zip(_NAMES.split(), _DTYPES.split()))


class Refused(Exception):
    """The bundle or the model can't be used."""


# Reading the bundle


def open_files(place):
    """A function that reads a file of the bundle: a zip, or the folder that it was unzipped to."""
    if not os.path.isdir(place):
        return zipfile.ZipFile(place).read

    def read(name):
        with open(os.path.join(place, *name.split("/")), "rb") as stream:
            return stream.read()

    return read


def read_manifest(read):
    """The manifest of a bundle of schema 1, if its other files are those that it lists."""
    manifest = json.loads(read("manifest.json").decode("utf-8"))
    if manifest.get("tool") != "onnxproof" or manifest.get("schema") != "1":
        raise Refused("this is no bundle of onnxproof with schema 1")
    for listed in manifest["files"]:
        name = listed["name"]
        own = name.startswith(("cases/", "rollouts/"))
        if own and hashlib.sha256(read(name)).hexdigest() != listed["sha256"]:
            raise Refused(f"`{name}` was changed")
    return manifest


def read_tensors(content, dtypes):
    """The arrays of a .safetensors file; `dtypes` names those that are stored as another."""
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size].decode("utf-8"))
    data = content[8 + size :]
    arrays = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        start, end = about["data_offsets"]
        array = np.frombuffer(data[start:end], dtype=PLAIN[about["dtype"]])
        array = array.reshape(about["shape"])
        dtype = dtypes.get(name, "")
        if dtype.startswith("complex"):
            array = np.ascontiguousarray(array).view(dtype)[..., 0]
        elif dtype:
            raise Refused(f"numpy has no {dtype}: use `onnxproof replay`")
        arrays[name] = array
    return arrays


def fingerprint(model, manifest):
    """SHA-256 over the model and its external data."""
    digest = hashlib.sha256()
    first = manifest["model"]["name"]
    folder = os.path.dirname(os.path.abspath(model))
    names = [file["name"] for file in manifest["model"]["files"] if file["name"] != first]
    for path in [model] + [os.path.join(folder, name) for name in names]:
        with open(path, "rb") as stream:
            for piece in iter(lambda stream=stream: stream.read(1 << 20), b""):
                digest.update(piece)
    return digest.hexdigest()


# Running


def feeds(case_inputs, signature):
    """The model's inputs from the reference's: renamed, and converted where the dtypes differ."""
    fed = {}
    for info, array in zip(signature["inputs"], case_inputs):
        if info["onnx_name"] is None:
            continue
        wanted = info["onnx_dtype"] or str(array.dtype)
        if wanted == "bfloat16":
            raise Refused("numpy has no bfloat16: use `onnxproof replay`")
        if array.dtype.kind == "c" and not wanted.startswith("complex"):
            array = np.stack([array.real, array.imag], axis=-1)
        if wanted not in (str(array.dtype), "unknown"):
            array = array.astype(wanted)
        fed[info["onnx_name"]] = np.array(array, order="C")
    return fed


def as_complex(output, dtype):
    """The model's pairs `[..., 2]` of what is complex in the reference."""
    if output is None or not dtype.startswith("complex") or output.shape[-1:] != (2,):
        return output
    return np.ascontiguousarray(output).view({4: "c8", 8: "c16"}[output.dtype.itemsize])[..., 0]


def answers_of(case, tensors):
    """What the reference said, by output."""
    answers = []
    for place, record in enumerate(case["outputs"]):
        answer = dict(record, reference=tensors[f"reference_{place}"])
        for name in ("truth", "unstable", "loud_unstable", "excused"):
            answer[name] = tensors.get(f"{name}_{place}")
        answers.append(answer)
    floats = [a["reference"] for a in answers if a["reference"].dtype.kind == "f"]
    finite = all(bool(np.isfinite(array).all()) for array in floats)
    return [dict(answer, all_finite=finite) for answer in answers]


def run_model(session, inputs, signature):
    """The outputs by the file's names, and why there are none."""
    try:
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, feeds(inputs, signature)))), ""
    except Refused:
        raise
    except Exception as why:  # whatever the runtime raises: it does not take this case
        return {}, " ".join(str(why).split())[:300]


def run_case(session, case, tensors, manifest, policy, backend):
    """The gaps of all outputs of one case."""
    signature = manifest["signature"]
    inputs = [tensors[f"input_{place}"] for place in range(len(signature["inputs"]))]
    outputs, error = run_model(session, inputs, signature)
    gaps = []
    for info, answer in zip(signature["outputs"], answers_of(case, tensors)):
        name = info["name"]
        label = {"case": case["name"], "group": case["group"], "backend": backend, "output": name}
        if answer.get("unread"):
            continue
        if error:
            gaps.append(dict(label, status="refused", detail=error, domain=case["domain"]))
            continue
        output = as_complex(outputs.get(info["onnx_name"]), info["dtype"])

        def remeasure(answer, output, noise, label=label, name=name):
            floor = manifest["usual_scale"].get(name, 0.0)
            if noise["kind"] not in ROUGH_KINDS:
                floor *= FAR_BELOW
            return measure(label, answer, output, noise, floor)

        gap = remeasure(answer, output, answer["noise"])
        if suspicious(gap, policy):
            domain = domain_of(gap, case, answer, manifest["half"])
            gap = dict(gap, domain=domain)
            if domain is None:
                gap = classify(gap, answer, output, remeasure, policy)
        gaps.append(dict(gap, confirmed=True, void=answer["void"], ordinary=case["ordinary"]))
    return gaps


def roll(session, rollout, tensors, manifest, policy, backend):
    """The worst gaps of a rollout in the model's own loop, and what it gave call by call."""
    signature = manifest["signature"]
    names = [info["name"] for info in signature["inputs"]]
    given = {
        input: tensors[f"initial_{names.index(input)}"] for input in rollout["states"].values()
    }
    told = {"schedule": rollout["name"], "backend": backend, "first_bad_step": None, "along": []}
    worst, length = {}, 0
    for number, call in enumerate(rollout["calls"]):
        for place, name in enumerate(names):
            given[name] = tensors.get(f"{number}_input_{place}", given.get(name))
        outputs, error = run_model(session, [given[name] for name in names], signature)
        answered = by_reference_names(outputs, signature)
        if not error and any(answered[output] is None for output in rollout["states"]):
            error = "a state did not come back"
        gaps = call_gaps(number, call, tensors, answered, error)
        length += call["length"]
        for gap in gaps:
            gap.update(case=rollout["name"], group="rollout", backend=backend)
            gap["detail"] = gap.get("detail") or f"call {number}"
            known = worst.get(gap["output"], gap)
            worst[gap["output"]] = max(known, gap, key=lambda one: severity(one, policy))
        ratios = [gap.get("noise_ratio", math.inf) for gap in gaps]
        told["along"].append({"length": length, "noise_ratio": max(ratios, default=0.0)})
        if judge(gaps, policy) not in ("faithful", "vacuous") and told["first_bad_step"] is None:
            told.update(first_bad_step=number, first_bad_length=length)
        if error:
            break
        for output, input in rollout["states"].items():
            given[input] = answered[output]
    return list(worst.values()), dict(told, steps=len(told["along"]))


def by_reference_names(outputs, signature):
    """The file's outputs by the reference's names; None for one that it does not have."""
    answered = {}
    for info in signature["outputs"]:
        answered[info["name"]] = as_complex(outputs.get(info["onnx_name"]), info["dtype"])
    return answered


def call_gaps(number, call, tensors, answered, error):
    """The gaps of the answers to one call, at the places that are real."""
    gaps = []
    for place, about in enumerate(call["answers"]):
        label = {"output": about["output"], "confirmed": True, "domain": None, "void": None}
        if error:
            gaps.append(dict(label, status="refused", detail=f"call {number}: {error}"))
            continue
        answer = {"reference": tensors[f"{number}_reference_{place}"]}
        for name in ("truth", "unstable"):
            answer[name] = tensors.get(f"{number}_{name}_{place}")
        output, real = answered.get(about["output"]), tensors.get(f"{number}_real")
        if real is not None and output is not None and output.shape[:2] == real.shape:
            output = output[real]
        gaps.append(measure(label, answer, output, about["noise"], 0.0))
    return gaps


def plain(value):
    """Infinities and NaN as the strings that a proof has for them."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def proof_of(manifest, model, backend, gaps, rollouts, verdict):
    """What `onnxproof report` reads."""
    where = {"python": platform.python_version(), "machine": platform.machine()}
    where["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    proof = {name: manifest[name] for name in ("subject", "signature", "policy", "half")}
    proof.update(schema="1", verdict=verdict, candidate=model, backends=[backend], gaps=gaps)
    proof["sizes"] = {case["name"]: case["sizes"] for case in manifest["cases"]}
    return plain(dict(proof, environment=where, rollouts=rollouts))


def table(gaps, policy):
    """The worst gap of each output, as lines."""
    lines = [f"{'output':24} {'cases':>6} {'noise ratio':>12} {'max abs':>12}  verdict"]
    for output in dict.fromkeys(gap["output"] for gap in gaps):
        own = [gap for gap in gaps if gap["output"] == output]
        counted = [gap for gap in own if gap.get("domain") is None] or own
        worst = max(counted, key=lambda gap: severity(gap, policy))
        times, apart = worst.get("noise_ratio", math.nan), worst.get("max_abs", math.nan)
        name = "".join(c if c.isprintable() else "?" for c in output)[:24]
        lines.append(f"{name:24} {len(own):6} {times:12.3g} {apart:12.3g}  {judge(own, policy)}")
    return lines


def replay(options):
    """Run the cases; gives the exit code."""
    import onnxruntime

    read = open_files(options.bundle)
    manifest = read_manifest(read)
    policy = manifest["policy"]
    if manifest["quantization"] is not None:
        raise Refused("a quantized graph is judged by a simulation: use `onnxproof replay`")
    same = fingerprint(options.model, manifest) == manifest["model"]["fingerprint"]
    if not same and not options.allow_other_model:
        raise Refused(f"`{options.model}` is not the file that the bundle was made for")
    providers = [options.provider or "CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(options.model, providers=providers)
    except Exception as why:  # onnxruntime has classes of its own, others in each version
        raise Refused(
            f"onnxruntime {onnxruntime.__version__} does not load the model: {why}"
        ) from why
    backend = f"ort:{session.get_providers()[0]}"
    if options.provider and session.get_providers()[0] != options.provider:
        raise Refused(f"{options.provider} is not to be had, only {session.get_providers()}")
    gaps, rollouts = [], []
    for case in manifest["cases"]:
        tensors = read_tensors(read(case["file"]), case["dtypes"])
        gaps += run_case(session, case, tensors, manifest, policy, backend)
    for rollout in manifest["rollouts"]:
        if rollout["allowed_db"] is not None:
            raise Refused("states in 8 bits are judged by quality: use `onnxproof replay`")
        tensors = read_tensors(read(rollout["file"]), rollout["dtypes"])
        worst, told = roll(session, rollout, tensors, manifest, policy, backend)
        gaps += worst
        rollouts.append(told)
    verdict = judge(gaps, policy)
    print("\n".join(table(gaps, policy)))
    rolled = f" and {len(rollouts)} rollouts" if rollouts else ""
    print(f"{verdict.upper()}: {len(manifest['cases'])} cases{rolled} on {backend}")
    if not same:
        print("note: the model is not the file that the bundle was made for")
    if options.json:
        proof = proof_of(manifest, options.model, backend, gaps, rollouts, verdict)
        with open(options.json, "w") as stream:
            json.dump(proof, stream, indent=1, allow_nan=False)
    return 1 if verdict == "drift" and options.strict else EXIT[verdict]


def main():
    """Read the command line, replay, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the ONNX file that the bundle was made for")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bundle", default=here, help="the bundle, or the folder it is in")
    parser.add_argument("--provider", help="such as CUDAExecutionProvider")
    parser.add_argument("--json", help="write a proof that `onnxproof report` reads")
    parser.add_argument("--strict", action="store_true", help="drift fails, too")
    parser.add_argument("--allow-other-model", action="store_true")
    try:
        return replay(parser.parse_args())
    except (Refused, OSError, ValueError, KeyError, zipfile.BadZipFile) as why:
        sys.stderr.write(f"error: {why}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
