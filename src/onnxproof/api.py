"""What a user calls. Only this module and `examination` know all stages, and compose them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from onnxproof.errors import InputError
from onnxproof.examination import examine, verify_subject
from onnxproof.inspection import inspect
from onnxproof.options import (
    BundleOptions,
    ExportOptions,
    Listening,
    QuantizeKeywords,
    QuantizeOptions,
    ReplayKeywords,
    ReplayOptions,
    VerifyKeywords,
    VerifyOptions,
)
from onnxproof.reference import subject as subjects
from onnxproof.reference.subject import Subject
from onnxproof.report.arguments import public
from onnxproof.results.proof import Proof
from onnxproof.runtimes import use_serving
from onnxproof.system.user_files import require_regular
from onnxproof.verification.progress import Report, announcer, with_proofs

if TYPE_CHECKING:
    from onnxproof.diagnosis.remedy import Mended
    from onnxproof.quantization.result import Quantized
    from onnxproof.quantization.tuning_state import Budget

_CONVERTED = (".xml", ".tflite")
_DIFFED = (".onnx", *_CONVERTED)
"""Files of models that come without code: ONNX, and OpenVINO's own."""
__all__ = ["bundle", "diff", "explain", "export", "inspect", "mend", "quantize", "replay", "verify"]


@public
def verify(
    model: Any,
    onnx: str | Path,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    pipeline: Any = None,
    progress: Report | None = None,
    **options: Unpack[VerifyKeywords],
) -> Proof:
    """Prove that an ONNX file, or a folder of them, matches a PyTorch module.

    >>> import torch, onnxproof
    >>> module, x = torch.nn.Linear(4, 2).eval(), torch.randn(3, 4)
    >>> proof = onnxproof.export(module, (x,), "linear.onnx")      # doctest: +SKIP
    >>> onnxproof.verify(module, "linear.onnx", (x,)).verdict      # doctest: +SKIP
    <Verdict.FAITHFUL: 'faithful'>
    """
    chosen = VerifyOptions.of(options)
    from onnxproof.packages import is_component

    path = Path(onnx)
    if path.is_dir() or is_component(model, path):
        return _verify_folder(model, path, chosen, progress)
    subject = load(
        model, path, example_inputs, dynamic_shapes=dynamic_shapes, data=data, pipeline=pipeline
    )
    if pipeline is None:
        return verify_subject(subject, path, chosen, progress)
    from onnxproof.preprocessing import pipelines

    compared = pipelines.compare(subject, pipeline, path)
    bare = replace(subject, data=None, preprocess=None)
    return compared.add_to(
        verify_subject(bare, path, chosen, with_proofs(progress, compared.add_to))
    )


@public
def diff(
    first: str | Path | Subject,
    second: str | Path,
    example_inputs: Any = None,
    *,
    data: Any = None,
    progress: Report | None = None,
    **options: Unpack[VerifyKeywords],
) -> Proof:
    """Prove that two files match; the first is the reference, and PyTorch is not needed. One of them may be OpenVINO's own file (`.xml`) or TensorFlow Lite's.

    >>> import onnxproof
    >>> onnxproof.diff("before.onnx", "after.onnx").verdict      # doctest: +SKIP
    <Verdict.FAITHFUL: 'faithful'>
    """
    words = str(first.source if isinstance(first, Subject) else first)
    if Path(words).suffix not in _DIFFED:
        raise InputError(
            "not-onnx",
            f"`{words}` is not an .onnx file",
            help="`onnxproof verify` takes a PyTorch reference",
        )
    if Path(second).suffix in _CONVERTED:
        return _diff_converted(first, Path(second), example_inputs, data, progress, options)
    return verify(first, second, example_inputs, data=data, progress=progress, **options)


def _diff_converted(
    first: str | Path | Subject,
    second: Path,
    example_inputs: Any,
    data: Any,
    progress: Report | None,
    options: VerifyKeywords,
) -> Proof:
    """An ONNX file, and what another runtime's converter made of it: it answers in the place of the ONNX file, whose nodes it no longer has."""
    words = str(first.source if isinstance(first, Subject) else first)
    if Path(words).suffix in _CONVERTED:
        raise InputError(
            "not-onnx",
            f"neither `{words}` nor `{second}` is an .onnx file",
            help="compare each of them with the ONNX file that it was made of",
        )
    require_regular(second, InputError)
    chosen: VerifyKeywords = {**options, "backends": (f"file:{second}",), "explain": False}
    proof = verify(first, words, example_inputs, data=data, progress=progress, **chosen)
    return replace(proof, candidate=str(second))


@public
def explain(
    model: Any,
    onnx: str | Path,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    calibration: Any = None,
    progress: Report | None = None,
    **options: Unpack[VerifyKeywords],
) -> Proof:
    """Verify, and say where and why.

    >>> import onnxproof
    >>> proof = onnxproof.explain("model.py:build", "model.int8.onnx", calibration="calib.npz")      # doctest: +SKIP
    >>> proof.location.nodes, proof.causes                                                           # doctest: +SKIP
    """
    chosen = replace(VerifyOptions.of(options), explain=True)
    subject = load(model, Path(onnx), example_inputs, dynamic_shapes=dynamic_shapes, data=data)
    return examine(subject, Path(onnx), chosen, progress, calibration).proof


@public
def mend(
    model: Any,
    onnx: str | Path,
    output: str | Path | None = None,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    calibration: Any = None,
    **options: Unpack[VerifyKeywords],
) -> "Mended":
    """Explain, apply the fixes of the proven causes, and verify the mended file; it is written to `output` if it is faithful or better.

    >>> import onnxproof
    >>> mended = onnxproof.mend("model.py:build", "model.onnx", "fixed.onnx")      # doctest: +SKIP
    >>> mended.verdict, mended.causes                                              # doctest: +SKIP
    """
    chosen = replace(VerifyOptions.of(options), explain=True)
    subject = load(model, Path(onnx), example_inputs, dynamic_shapes=dynamic_shapes, data=data)
    return examine(subject, Path(onnx), chosen, None, calibration).mend(output)


@public
def export(
    model: Any,
    example_inputs: Any,
    path: str | Path,
    *,
    dynamic_shapes: Any = None,
    opset: int | None = None,
    options: ExportOptions | None = None,
    data: Any = None,
    progress: Report | None = None,
    **verification: Unpack[VerifyKeywords],
) -> Proof:
    """Export a module to an ONNX file and prove that the file matches it.

    Without `dynamic_shapes`, every dim that can vary does; `proof.export` tells which, what the others are fixed by, and what was assumed.
    With `ExportOptions(with_cache=True)` a Hugging Face model becomes a folder of files.

    >>> import torch, onnxproof
    >>> onnxproof.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),), "linear.onnx").verdict      # doctest: +SKIP
    <Verdict.FAITHFUL: 'faithful'>
    """
    from onnxproof.exporter.export import prepare_subject, write

    chosen = VerifyOptions.of(verification)
    wanted = options or ExportOptions()
    if opset is not None:
        wanted = replace(wanted, opset=opset)
    announce = announcer(progress, chosen.budget_s)
    if wanted.with_cache:
        from onnxproof.packages.export import export_folder

        export_folder(model, Path(path), wanted, backends=chosen.backends, tell=announce)
        return _verify_folder(model, Path(path), chosen, progress)
    subject = prepare_subject(model, example_inputs, wanted, dynamic_shapes, data)
    written = write(subject, Path(path), wanted, backends=chosen.backends, tell=announce)
    record = written.examined(Path(path), wanted.pipeline)
    open_dims = {dim.name for dim in written.record.dims}
    sizes = {name: size for name, size in subject.dims.items() if name in open_dims}
    subject = replace(subject, dims=sizes)
    if record.pipeline is not None:
        subject = replace(subject, data=None, preprocess=None)
    proof = verify_subject(subject, Path(path), chosen, with_proofs(progress, record.added_to))
    return record.added_to(proof)


@public
def quantize(
    model: Any,
    path: str | Path,
    *,
    calibration: Any = None,
    evaluate: Any = None,
    budget: "Budget | float | None" = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    data: Any = None,
    **options: Unpack[QuantizeKeywords],
) -> "Quantized":
    """Quantize a model, tune it to a budget, and prove what it costs.

    >>> import onnxproof
    >>> result = onnxproof.quantize("model.onnx", "model.int8.onnx", calibration="calib.npz")      # doctest: +SKIP
    >>> result.score.sqnr_db, result.verdict                                                       # doctest: +SKIP
    """
    from onnxproof.exporter.export import write
    from onnxproof.quantization import quantize as stage

    subject = subjects.load(model, example_inputs, dynamic_shapes=dynamic_shapes, data=data)
    source = stage.Source(
        subject=subject,
        calibration=calibration,
        evaluate=evaluate,
        export=write,
        verify=_quick_proof,
    )
    return stage.quantize(source, Path(path), QuantizeOptions.of(options), budget)


def bundle(
    proof: str | Path,
    path: str | Path,
    options: BundleOptions | None = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    progress: Report | None = None,
) -> Proof:
    """Run the cases of a stored proof again, which holds no tensors, and write its bundle; gives the proof that is in it."""
    from onnxproof.bundle.stored_proof import request_of

    stored = request_of(Path(proof))
    subject = load(stored.proof.origin, stored.path, dynamic_shapes=dynamic_shapes, data=data)
    again = verify_subject(subject, stored.path, stored.options, progress)
    bundled = stored.with_tensors_of(again)
    bundled.to_bundle(path, options)
    return bundled


@public
def replay(
    path: str | Path, *, progress: Report | None = None, **options: Unpack[ReplayKeywords]
) -> Proof:
    """Prove a file on the runtimes of this machine by the cases of a bundle; PyTorch is not needed. The keywords are the fields of `ReplayOptions`.

    >>> onnxproof.replay("model.proof", backends=("ort:cuda",)).verdict      # doctest: +SKIP
    """
    from onnxproof.bundle import replay as stage

    return stage.replay(Path(path), ReplayOptions.of(options), progress)


def serve_replay(
    path: str | Path,
    listening: Listening,
    announce: Callable[[str], None],
    progress: Report | None = None,
    **options: Unpack[ReplayKeywords],
) -> Proof:
    """`replay` in the browser of whoever opens the address that `announce` gets: it runs the cases, and its answers are judged here."""
    from onnxproof.bundle.serve import serve

    return serve(Path(path), ReplayOptions.of(options), listening, announce, progress)


def load(
    model: Any,
    onnx: Path,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    data: Any = None,
    pipeline: Any = None,
) -> Subject:
    """The subject of a verification; TorchScript without an example gets one from the file's inputs."""

    def example_from_file() -> Any:
        from onnxproof.reference.graph import example_for

        return example_for(onnx)

    return subjects.load(
        model,
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        data=data,
        inside=pipeline is None,
        otherwise=example_from_file,
    )


def _verify_folder(
    model: Any, folder: Path, options: VerifyOptions, progress: Report | None
) -> Proof:
    """Every file of a folder alone, then the whole."""
    from onnxproof.packages.verify import verify_folder

    def verify_file(subject: Subject, path: Path, chosen: VerifyOptions) -> Proof:
        return verify_subject(subject, path, chosen, early)

    early = with_proofs(progress, lambda proof: replace(proof, candidate=str(folder)))
    with use_serving(options.serving):
        return verify_folder(model, folder, options, verify_file)


def _quick_proof(subject: Subject, path: Path, options: VerifyOptions) -> Proof:
    return verify_subject(subject, path, replace(options, explain=False), None)
