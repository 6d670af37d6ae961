"""ONNX Runtime: any optimisation level (`ort:disabled`, `ort:basic`, `ort:extended`, `ort:all`) and any provider with its options (`ort:cuda,device_id=1`)."""

import glob
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from onnxproof.errors import BackendMissing, Crashed, Refused, UsageError
from onnxproof.results import Finding
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.session import placement
from onnxproof.runtimes.session.ort_refusals import explain_refused_model, explain_refused_run
from onnxproof.runtimes.session.placement import CPU
from onnxproof.system import guard

Array = np.ndarray[Any, Any]
_SCAN = b'"\x04Scan'
"""The operator's name as the bytes of a node: field 4, four letters."""
_LEVELS = {
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_ONNX_BFLOAT16 = 16
_OPENING_S = 2.0
"""Seconds beside those of a forward pass that opening a file may take. Not measured."""
_BYTES_A_SECOND = 2e7
"""Bytes of the file for which opening gets another second: a tenth of what a slow disk gives."""
_BUILDS = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "openvino": "onnxruntime-openvino",
    "dml": "onnxruntime-directml",
    "qnn": "onnxruntime-qnn",
    "migraphx": "onnxruntime-migraphx",
    "cann": "onnxruntime-cann",
}


IN_PROCESS = True
opened_devices: set[str] = set()
"""Providers with a device of their own that this process has opened: a fork could not use them."""
_ON_CPU = ("AzureExecutionProvider", "XnnpackExecutionProvider", "DnnlExecutionProvider")
"""Providers that open none."""


def describe() -> Description:
    """What `onnxproof backends` prints."""
    providers = ", ".join(
        p.removesuffix("ExecutionProvider") for p in onnxruntime.get_available_providers()
    )
    return Description(
        name="ort",
        about="ONNX Runtime, the runtime that most models are served on",
        installed=True,
        version=onnxruntime.__version__,
        device=providers,
        install="pip install 'onnxproof[ort]'",
        limits="ort:disabled, ort:basic, ort:extended, ort:all; any provider with its options: ort:openvino,device_type=GPU",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What stands behind `ort:`."""

    level: str = "all"
    provider: str = CPU
    options: Mapping[str, str] = field(default_factory=dict)


def parse(option: str) -> Wanted:
    """A level, a provider and its options, in any order, separated by commas.

    >>> parse("basic").level, parse("openvino,device_type=GPU").options
    ('basic', {'device_type': 'GPU'})
    """
    levels: list[str] = []
    providers: list[str] = []
    options: dict[str, str] = {}
    for word in filter(None, map(str.strip, option.split(","))):
        key, is_option, value = word.partition("=")
        if is_option:
            options[key] = value
        elif word in _LEVELS:
            levels.append(word)
        else:
            providers.append(word)
    if len(levels) > 1 or len(providers) > 1 or (options and not providers):
        raise UsageError(
            "bad-option",
            f"`ort:{option}` can't be understood",
            help="write a level, or a provider with its options: `ort:openvino,device_type=GPU`",
        )
    level = next(iter(levels), "all")
    if not providers:
        return Wanted(level=level)
    return Wanted(level=level, provider=_provider(providers[0]), options=options)


def open(
    model: Path | bytes,
    option: str = "",
    *,
    disabled_optimizers: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
) -> "OrtSession":
    """Open a file (or a serialized model) at a level or on a provider; where its nodes run is proven, not assumed."""
    wanted = parse(option)
    forgiven = current().allow_fallback
    findings: list[Finding] = []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = _LEVELS[wanted.level]
    options.intra_op_num_threads = current().threads or 0
    providers: list[Any] = [CPU]
    if wanted.provider != CPU:
        if wanted.provider not in onnxruntime.get_available_providers():
            findings.append(_provider_missing(wanted.provider, forgiven=forgiven))
        else:
            providers = _recorded_providers(options, wanted, forgiven=forgiven)
            opened_devices.update({wanted.provider}.difference(_ON_CPU))
    open_native = partial(
        native,
        model,
        options,
        providers=providers,
        disabled_optimizers=disabled_optimizers,
    )
    try:
        session = open_native()
    except Crashed:
        raise
    except Exception as why:
        # onnxruntime raises a dozen unrelated classes; each becomes one of ours with its words.
        raise explain_refused_model(model, str(why)) from why
    # Or a provider that fails in a run is replaced by the CPU, and the run is repeated.
    session.disable_fallback()
    if providers != [CPU]:
        nodes = _count_nodes(model)
        findings += placement.judge(session, wanted.provider, nodes, forgiven=forgiven)
    return OrtSession(session, outputs, findings, model, reopen=open_native)


def native(
    model: Path | bytes,
    options: onnxruntime.SessionOptions,
    *,
    providers: Sequence[Any] = (CPU,),
    disabled_optimizers: Sequence[str] = (),
) -> onnxruntime.InferenceSession:
    """onnxruntime's own session, opened under the guard: constant folding and inlining take what a file makes them take."""
    serving = current()
    source: bytes | str = model if isinstance(model, bytes) else str(model)
    size = len(model) if isinstance(model, bytes) else _bytes_of(model)
    limit_s = min(
        serving.time_s + _OPENING_S + size / _BYTES_A_SECOND,
        max(serving.open_s, serving.time_s),
    )
    stop: Callable[[], None] | None = None
    cancel = getattr(options, "set_load_cancellation_flag", None)  # since onnxruntime 1.21
    if cancel is not None:
        stop = partial(cancel, True)
    return guard.run(
        lambda: onnxruntime.InferenceSession(
            source,
            options,
            providers=list(providers),
            disabled_optimizers=list(disabled_optimizers) or None,
        ),
        limit_s=limit_s,
        what="opening the model in onnxruntime",
        stop=stop,
        memory_gb=serving.memory_gb,
    )


def _bytes_of(path: Path) -> int:
    """Of the file and of all that lies beside it under its name: external data."""
    try:
        return sum(
            file.stat().st_size
            for file in path.parent.glob(f"{glob.escape(path.stem)}*")
            if file.is_file()
        )
    except OSError:
        return 0


def _recorded_providers(
    options: onnxruntime.SessionOptions,
    wanted: Wanted,
    *,
    forgiven: bool,
) -> list[Any]:
    """Providers and settings under which the runtime records where each node goes, or at least refuses to fall back."""
    asked = (wanted.provider, dict(wanted.options))
    if hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        options.add_session_config_entry(placement.RECORD, "1")
        return [asked, CPU]
    if not forgiven:
        options.add_session_config_entry(placement.STRICT, "1")
        return [asked]
    return [asked, CPU]


def _count_nodes(model: Path | bytes) -> int:
    try:
        import onnx
    except ImportError:  # the virtual environment of another version has only what it needs
        return 0
    if isinstance(model, bytes):
        loaded = onnx.load_from_string(model)
    else:
        loaded = onnx.load(model, load_external_data=False)
    return sum(node.op_type != "Constant" for node in loaded.graph.node)


def _has_scan(model: Path | bytes) -> bool:
    """Whether a Scan is among the operators: the bytes of its name as a node's type."""
    if isinstance(model, bytes):
        return _SCAN in model
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_SCAN) >= 0


_parents_sessions: list[onnxruntime.InferenceSession] = []
"""Kept in a fork: to close one is to wait for its threads, which are not there."""


class OrtSession:
    """An InferenceSession that answers by name and refuses in one way."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        outputs: Sequence[str] | None = None,
        findings: Sequence[Finding] = (),
        model: Path | bytes = b"",
        reopen: Callable[[], onnxruntime.InferenceSession] | None = None,
    ) -> None:
        self._session = session
        self._reopen = reopen
        self._process = os.getpid()
        self.findings = findings
        self._model = model
        self._serving = current()
        self._hung: Crashed | None = None
        self.seconds = 0.0
        """The runtime's own time for the last run, without the guard around it."""
        self.input_names: Sequence[str] = [i.name for i in session.get_inputs()]
        self.output_names: Sequence[str] = list(outputs or (o.name for o in session.get_outputs()))

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays; bfloat16 goes in and out by its bits."""
        if any(a.size == 0 for a in inputs.values()) and _has_scan(self._model):
            raise Refused(
                "refused",
                "onnxruntime divides by zero in a Scan over an empty input, which ends the whole process; it is not asked",
            )
        if self._hung is not None:  # its thread may still be at work inside
            raise self._hung
        self._follow_fork()
        options = onnxruntime.RunOptions()
        try:
            return guard.run(
                lambda: self._answer(inputs, options),
                limit_s=self._serving.time_s,
                what="`ort`",
                stop=lambda: setattr(options, "terminate", True),
                memory_gb=self._serving.memory_gb,
            )
        except Crashed as why:
            if why.notes:  # it did not stop when it was told to
                self._hung = why
            raise
        except Exception as why:  # see open()
            raise explain_refused_run(str(why)) from why

    def _follow_fork(self) -> None:
        """Open the model anew in a fork, which has none of the threads of its parent's session."""
        if self._process == os.getpid() or self._reopen is None:
            return
        _parents_sessions.append(self._session)
        try:
            self._session = self._reopen()
        except Exception as why:  # see open()
            raise explain_refused_model(self._model, str(why)) from why
        self._process = os.getpid()

    def _answer(
        self,
        inputs: Mapping[str, Array],
        options: onnxruntime.RunOptions,
    ) -> list[Array | None]:
        if any(a.dtype == ml_dtypes.bfloat16 for a in inputs.values()) or self._has_bfloat16():
            return self._run_by_value(inputs, options)
        start = time.perf_counter()
        outputs = self._session.run(list(self.output_names), dict(inputs), options)
        self.seconds = time.perf_counter() - start
        return [None if value is None else np.asarray(value) for value in outputs]

    def close(self) -> None:
        """Let the native session go."""
        del self._session

    def _has_bfloat16(self) -> bool:
        return any("bfloat16" in o.type for o in self._session.get_outputs())

    def _run_by_value(
        self,
        inputs: Mapping[str, Array],
        options: onnxruntime.RunOptions,
    ) -> list[Array | None]:
        values = {}
        for name, array in inputs.items():
            if array.dtype == ml_dtypes.bfloat16:
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                    np.ascontiguousarray(array).view(np.uint16), _ONNX_BFLOAT16
                )
            else:
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        start = time.perf_counter()
        outputs = self._session.run_with_ort_values(list(self.output_names), values, options)
        self.seconds = time.perf_counter() - start
        return [_from_value(value) for value in outputs]


def _from_value(value: onnxruntime.OrtValue) -> Array:
    if "bfloat16" not in value.data_type():
        return np.asarray(value.numpy())
    import torch  # numpy has no bfloat16, and dlpack is the one way out of an OrtValue for it

    tensor = torch.utils.dlpack.from_dlpack(value._ortvalue.to_dlpack())
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _provider(option: str) -> str:
    wanted = option.lower().replace("-", "").replace("_", "")
    known = {
        p.removesuffix("ExecutionProvider").lower(): p for p in onnxruntime.get_all_providers()
    }
    if wanted not in known:
        raise UsageError(
            "unknown-provider",
            f"`ort:{option}` is neither a level nor a provider of onnxruntime",
            notes=[f"levels are {', '.join(_LEVELS)}", f"providers are {', '.join(sorted(known))}"],
            help="`ort` alone is the CPU with all optimisations, as most models are served",
        )
    return str(known[wanted])


def _provider_missing(provider: str, *, forgiven: bool) -> Finding:
    short = provider.removesuffix("ExecutionProvider")
    build = _BUILDS.get(short.lower())
    if not forgiven:
        help = "install the onnxruntime build that carries it"
        if build:
            help = f"`--backend 'ort@{build}:{short.lower()}'` makes a virtual environment with {build}, which has it"
        raise BackendMissing(
            "provider-missing",
            f"onnxruntime {onnxruntime.__version__} here has no {provider}",
            notes=[f"it has {', '.join(onnxruntime.get_available_providers())}"],
            help=help,
        )
    return placement.fallback(
        f"onnxruntime {onnxruntime.__version__} here has no {short}: everything ran on the CPU",
        forgiven=True,
    )
