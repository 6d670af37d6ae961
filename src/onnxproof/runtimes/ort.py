"""ONNX Runtime: any optimisation level (`ort:disabled`, `ort:basic`, `ort:extended`, `ort:all`), without an optimizer (`ort:without=GeluFusion`), and any provider with its options (`ort:cuda,device_id=1`)."""

import glob
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onnxproof.errors import Crashed, Refused, UsageError
from onnxproof.numerics import port_values
from onnxproof.results import Finding
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.session import ort_operators, placement
from onnxproof.runtimes.session.ort_operators import mentions
from onnxproof.runtimes.session.ort_refusals import explain_refused_model, explain_refused_run
from onnxproof.runtimes.session.ort_values import BY_BITS, as_arrays, from_value, to_value
from onnxproof.runtimes.session.placement import CPU
from onnxproof.system import guard, temporary

Array = np.ndarray[Any, Any]
_SCAN = b'"\x04Scan'
"""The operator's name as the bytes of a node: field 4, four letters."""
_LEVELS = {
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_OPENING_S = 2.0
"""Seconds beside those of a forward pass that opening a file may take. Not measured."""
_BYTES_A_SECOND = 2e7
"""Bytes of the file for which opening gets another second: a tenth of what a slow disk gives."""
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""Where a model that was opened from bytes has its external data."""

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
    without: tuple[str, ...] = ()
    """Optimizers that are turned off."""


def parse(option: str) -> Wanted:
    """A level, optimizers that are turned off, a provider and its options, in any order, separated by commas.

    >>> parse("basic").level, parse("openvino,device_type=GPU").options, parse("without=GeluFusion+MatMulAddFusion").without
    ('basic', {'device_type': 'GPU'}, ('GeluFusion', 'MatMulAddFusion'))
    """
    levels: list[str] = []
    providers: list[str] = []
    options: dict[str, str] = {}
    without: tuple[str, ...] = ()
    for word in filter(None, map(str.strip, option.split(","))):
        key, is_option, value = word.partition("=")
        if is_option and key == "without":
            without = tuple(value.split("+"))
        elif is_option:
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
        return Wanted(level=level, without=without)
    return Wanted(level=level, provider=_provider(providers[0]), options=options, without=without)


def open(
    model: Path | bytes,
    option: str = "",
    *,
    disabled_optimizers: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    weights: Path | None = None,
) -> "OrtSession":
    """Open a file (or a serialized model, and the folder of its `weights`) at a level or on a provider; where its nodes run is proven, not assumed."""
    wanted = parse(option)
    forgiven = current().allow_fallback
    findings: list[Finding] = []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = _LEVELS[wanted.level]
    ort_operators.register(options, model)
    providers: list[Any] = [CPU]
    if wanted.provider != CPU:
        if wanted.provider not in onnxruntime.get_available_providers():
            findings.append(placement.provider_missing(wanted.provider, forgiven=forgiven))
        else:
            providers = _recorded_providers(options, wanted, forgiven=forgiven)
            opened_devices.update({wanted.provider}.difference(_ON_CPU))
    open_native = partial(
        native,
        model,
        options,
        providers=providers,
        disabled_optimizers=(*wanted.without, *disabled_optimizers),
        weights=weights,
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


def open_model(
    model: Any,
    option: str = "",
    *,
    disabled_optimizers: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
) -> "OrtSession":
    """Open a file, or a graph changed in memory, of any size: weights that stay in a file are mapped, and beyond what a protobuf holds it goes by way of one."""
    from onnxproof.onnxmodel import large_models, mapped_weights

    folder, source, weights = None, model, None
    if not isinstance(model, Path):
        if large_models.fits_in_memory(model):
            weights = mapped_weights.folder_of(model)
            source = model.SerializeToString()
        else:
            folder = temporary.Folder()
            source = large_models.save(model, folder.path / "changed.onnx")[0]
    session = open(
        source, option, disabled_optimizers=disabled_optimizers, outputs=outputs, weights=weights
    )
    session.folder = folder
    return session


def native(
    model: Path | bytes,
    options: onnxruntime.SessionOptions,
    *,
    providers: Sequence[Any] = (CPU,),
    disabled_optimizers: Sequence[str] = (),
    weights: Path | None = None,
) -> onnxruntime.InferenceSession:
    """onnxruntime's own session, opened under the guard: constant folding and inlining take what a file makes them take."""
    serving = current()
    options.intra_op_num_threads = options.intra_op_num_threads or serving.threads or 0
    source: bytes | str = model if isinstance(model, bytes) else str(model)
    size = len(model) if isinstance(model, bytes) else _bytes_of(model)
    if weights is not None:
        options.add_session_config_entry(_WEIGHTS_FOLDER, str(weights))
        size += _bytes_of(weights)
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
            list(providers),
            disabled_optimizers=list(disabled_optimizers) or None,
        ),
        limit_s=limit_s,
        what="opening the model in onnxruntime",
        stop=stop,
        memory_gb=serving.memory_gb,
    )


def _bytes_of(path: Path) -> int:
    """Of the file and of all that lies beside it under its name: external data; of a folder, of all that is in it."""
    folder, names = path.parent, f"{glob.escape(path.stem)}*"
    if path.is_dir():
        folder, names = path, "*"
    try:
        return sum(file.stat().st_size for file in folder.glob(names) if file.is_file())
    except OSError:
        return 0


def _recorded_providers(
    options: onnxruntime.SessionOptions, wanted: Wanted, *, forgiven: bool
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
        self.folder: temporary.Folder | None = None  # of a file that goes with the session
        self.input_names: Sequence[str] = [i.name for i in session.get_inputs()]
        self.output_names: Sequence[str] = list(outputs or (o.name for o in session.get_outputs()))
        ports = (*session.get_inputs(), *session.get_outputs())
        self._kinds: Mapping[str, str] = {
            port.name: port.type for port in ports if not port.type.startswith("tensor")
        }
        """The ports that are no tensors, in ONNX Runtime's words."""
        self._types: Mapping[str, str] = {port.name: port.type for port in session.get_outputs()}

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays; bfloat16 and floats of 8 bits go in and out by their bits."""
        if any(a.size == 0 for a in inputs.values()) and mentions(self._model, _SCAN):
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
        if any(a.dtype.name in BY_BITS for a in inputs.values()) or self._has_bfloat16():
            return self._run_by_value(inputs, options)
        fed: dict[str, Any] = dict(inputs)
        if self._kinds:
            fed = port_values.assemble(inputs, self._kinds)
        start = time.perf_counter()
        outputs = self._session.run(list(self.output_names), fed, options)
        self.seconds = time.perf_counter() - start
        return [
            as_arrays(value, self._types.get(name, ""))
            for name, value in zip(self.output_names, outputs, strict=True)
        ]

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
            values[name] = to_value(array)
        start = time.perf_counter()
        outputs = self._session.run_with_ort_values(list(self.output_names), values, options)
        self.seconds = time.perf_counter() - start
        return [
            as_arrays(from_value(value), self._types.get(name, ""))
            for name, value in zip(self.output_names, outputs, strict=True)
        ]


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
