"""Module to ONNX file by torch's own exporter, then straight into the proof that the file says what the module says."""

import io
import logging
import re
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof import prove, subject
from onnxproof.errors import ExportError, UsageError

if TYPE_CHECKING:
    from onnxproof.proof import Proof
    from onnxproof.types import Policy, Serving

NEWEST_OPSET = 23
"""What every onnxruntime that we support can read."""
_PROTOBUF_LIMIT = int(1.9e9)
"""A protobuf ends at 2 GB; heavier weights go into a file beside the model."""
_OPERATOR = re.compile(r"No (?:ONNX function|decompositions?|ONNX implementation)[^<\n]*<OpOverload\(op='([\w.]+)'")
_FIXED = re.compile(r"inferred a static shape of (\d+) for dimension inputs\['([^']+)'\]\.shape\[(\d+)\]")
_USER_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.+)')
_LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), "<")
_HELP = (
    ("operator", "write the operation in terms of operators that torch.onnx knows, or register a translation (custom_translation_table)"),
    ("data-dependent", "the graph must not depend on values: replace the Python `if` or loop by torch.where or torch.cond, and `.item()` by a tensor"),
    ("dims", "give that dim a range with torch.export.Dim, or leave it out of dynamic_shapes"),
    ("inputs", "call the module with the example inputs by itself; `dynamic_shapes` follows the order and names of `forward`"),
    ("other", "add --debug (or look at `__cause__`) for torch's whole report"),
)


def export(model: Any, example_inputs: Any, path: str | Path, *, dynamic_shapes: Any = None, opset: int | None = None, data: Any = None,
           backends: Sequence[str] = ("ort",), policy: "Policy | None" = None, budget_s: float = 60.0, seed: int = 0, explain: bool = True,
           only: Sequence[str] = (), serving: "Serving | None" = None, progress: prove.Report | None = None, profile: bool = False) -> "Proof":
    """Export a module to an ONNX file and prove that the file says what the module says.

    >>> import torch, onnxproof
    >>> onnxproof.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),), "linear.onnx").verdict      # doctest: +SKIP
    <Verdict.FAITHFUL: 'faithful'>
    """
    found = subject.load(model, example_inputs, dynamic_shapes=dynamic_shapes, data=data)
    write(found, Path(path), opset=opset)
    return prove.verify(found, path, backends=backends, policy=policy, budget_s=budget_s, seed=seed, explain=explain, only=only, serving=serving,
                        progress=progress, profile=profile)


def write(found: subject.Subject, path: Path, *, opset: int | None = None) -> None:
    """Only the export: quiet, in eval mode, with the module left as it was found."""
    _check(found, path, opset)
    try:
        import torch

        from onnxproof.backends._keeper import Keeper
    except ImportError as why:
        raise ExportError("torch-missing", f"exporting needs a package that isn't installed: {why.name or why}", help="pip install 'onnxproof[torch]'") from why
    shapes = _all_inputs(found.dynamic_shapes, found)
    options: dict[str, Any] = {} if opset is None else {"opset_version": opset}
    try:
        with quiet(), Keeper(found.module), torch.no_grad():
            torch.onnx.export(found.module, found.args, str(path), kwargs=dict(found.kwargs), dynamic_shapes=shapes, dynamo=True, verbose=False,
                              external_data=_weight(found.module) > _PROTOBUF_LIMIT, **options)
    except Exception as why:  # torch raises dozens of classes here; each becomes one of ours, in the user's terms
        raise explain_failure(why, found.name) from why


def _check(found: subject.Subject, path: Path, opset: int | None) -> None:
    if found.onnx is not None:
        raise UsageError("nothing-to-export", f"`{found.name}` is an ONNX file already", where=str(found.onnx),
                         help="give a PyTorch module, or use `onnxproof diff`")
    if opset is not None and opset > NEWEST_OPSET:
        raise UsageError("opset-too-new", f"opset {opset} is newer than what onnxruntime reads for sure", help=f"ask for {NEWEST_OPSET} or less")
    if not path.absolute().parent.is_dir():
        raise UsageError("cannot-write", f"there is no folder `{path.parent}` to write the model to", where=str(path), help="make the folder first")


def _all_inputs(shapes: Any, found: subject.Subject) -> Any:
    """torch wants every input named once any is; those that the user leaves out stay fixed."""
    if not isinstance(shapes, Mapping):
        return shapes
    from onnxproof.backends.torch import bind

    names = bind(found.module, found.args, found.kwargs)
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise UsageError("unknown-input", f"dynamic_shapes names `{unknown[0]}`, which the module does not take", notes=[f"it takes {', '.join(names)}"])
    return {name: shapes.get(name) for name in names}


def _weight(module: Any) -> int:
    """Bytes of parameters and buffers, shared ones once."""
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())} if hasattr(module, "parameters") else {}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


@contextmanager
def quiet() -> Iterator[None]:
    """The exporter warns about its own inside; what the user must know is in our error or in the proof."""
    log = logging.getLogger("torch")
    children = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith("torch.")]
    levels = [(logger, logger.level) for logger in (log, *children)]
    silent = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(silent), redirect_stderr(silent):
        warnings.simplefilter("ignore")
        for logger, _ in levels:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in levels:
                logger.setLevel(level)


def explain_failure(why: BaseException, name: str) -> ExportError:
    """torch's report in the user's terms: the operator or the reason, the line of the user's Python, and what to do."""
    chain = list(_chain(why))
    text = "\n".join(str(link) for link in chain)
    kind, what = _kind(chain, text)
    place = _user_line(chain, text)
    notes = [f"`{place[1]}`"] if place and place[1] else []
    return ExportError("export-failed", f"torch can't export `{name}`: {what}", where=place[0] if place else "", notes=notes, help=dict(_HELP)[kind])


def _kind(chain: Sequence[BaseException], text: str) -> tuple[str, str]:
    operator = _OPERATOR.search(text)
    if operator:
        return "operator", f"ONNX has no translation for the operator `{operator[1]}`"
    if "data-dependent" in text or "DataDependent" in text or "Dynamic control flow" in text:
        return "data-dependent", "its path through the code depends on the values of a tensor"
    fixed = _FIXED.search(text)
    if fixed:
        return "dims", f"dim {fixed[3]} of `{fixed[2]}` should vary, and the module fixes it at {fixed[1]}"
    if "onstraints violated" in text or "user-specified ranges" in text:
        return "dims", "a dim that should vary can't, or not over its whole range"
    deepest = chain[-1]
    kind = "inputs" if isinstance(deepest, TypeError) else "other"
    return kind, f"{type(deepest).__name__}: {_first_line(str(deepest))}"


def _chain(why: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while why is not None and id(why) not in seen:
        seen.add(id(why))
        yield why
        why = why.__cause__ or why.__context__


def _user_line(chain: Sequence[BaseException], text: str) -> tuple[str, str] | None:
    """The last frame that is neither torch's nor Python's own: from torch's message, else from the traceback."""
    told = [(file, line, code) for file, line, _, code in _USER_LINE.findall(text) if not file.startswith(_LIBRARIES)]
    if told:
        file, line, code = told[-1]
        return f"{file}:{line}", code.strip()
    for link in reversed(chain):
        if place := _frame(link):
            return place, ""
    return None


def _frame(why: BaseException) -> str:
    """The deepest frame of the user's own code in the traceback, or nothing."""
    trace, place = why.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, str(Path(__file__).parent))):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= 300 else line[:300] + " ..."
