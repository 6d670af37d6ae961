"""Where an ONNX Runtime session really runs: each node's provider, as the runtime recorded it while it divided the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime

from onnxproof.errors import BackendMissing, Refused
from onnxproof.results import Finding

RECORD = "session.record_ep_graph_assignment_info"
STRICT = "session.disable_cpu_ep_fallback"
CPU = "CPUExecutionProvider"
_SHOWN = 6
_BUILDS = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "openvino": "onnxruntime-openvino",
    "dml": "onnxruntime-directml",
    "qnn": "onnxruntime-qnn",
    "migraphx": "onnxruntime-migraphx",
    "cann": "onnxruntime-cann",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which nodes a provider took, and which went elsewhere."""

    provider: str
    taken: tuple[str, ...]
    elsewhere: tuple[str, ...]
    """Node, operator and the provider that has it."""
    pieces: int
    """Subgraphs that the provider took whole."""
    filed: int
    """Nodes in the file."""

    @property
    def fused(self) -> int:
        """Nodes of the file that were folded or fused before anything was placed."""
        return max(self.filed - len(self.taken) - len(self.elsewhere), 0)


def read(session: Any, provider: str, filed: int) -> Placement:
    """What the runtime recorded."""
    taken: list[str] = []
    elsewhere: list[str] = []
    pieces = 0
    for piece in session.get_provider_graph_assignment_info():
        nodes = [_describe_node(node) for node in piece.get_nodes()]
        if piece.ep_name == provider:
            pieces += 1
            taken += nodes
        else:
            elsewhere += [
                f"{node} on {piece.ep_name.removesuffix('ExecutionProvider')}" for node in nodes
            ]
    return Placement(
        provider=provider,
        taken=tuple(taken),
        elsewhere=tuple(elsewhere),
        pieces=pieces,
        filed=filed,
    )


def _describe_node(node: Any) -> str:
    if not node.name:
        return f"a {node.op_type} without a name"
    return f"{node.name} ({node.op_type})"


def judge(
    session: Any,
    provider: str,
    filed: int,
    *,
    forgiven: bool,
) -> list[Finding]:
    """Findings about where it runs; a fallback that is not forgiven is refused with the names of the nodes."""
    short = provider.removesuffix("ExecutionProvider")
    if provider not in session.get_providers():
        return [
            fallback(
                f"onnxruntime dropped {short} while it opened the model, and would run everything on the CPU",
                forgiven=forgiven,
            )
        ]
    if not hasattr(session, "get_provider_graph_assignment_info"):
        what = f"this onnxruntime can't tell which nodes {short} took"
        if forgiven:
            what += ", and it may fall back"
        else:
            what += ": it was opened so that it refuses to fall back"
        return [Finding(code="placement", what=what)]
    place = read(session, provider, filed)
    if not place.taken:
        return [
            fallback(
                f"{short} took none of the model's {len(place.elsewhere)} nodes: they run {_list_nodes(place.elsewhere)}",
                forgiven=forgiven,
            )
        ]
    if place.elsewhere:
        total = len(place.taken) + len(place.elsewhere)
        return [
            fallback(
                f"{len(place.elsewhere)} of {total} nodes do not run on {short}: {_list_nodes(place.elsewhere)}",
                forgiven=forgiven,
            )
        ]
    pieces = f"{place.pieces} piece{'s' * (place.pieces != 1)}"
    what = f"all {len(place.taken)} nodes run on {short}, in {pieces}"
    if place.fused:
        what += f"; {place.fused} of the file's {place.filed} nodes were folded or fused"
    return [Finding(code="placement", what=what)]


def fallback(what: str, *, forgiven: bool) -> Finding:
    """A fallback as a finding where it is forgiven; otherwise it is raised."""
    if not forgiven:
        raise Refused(
            "provider-fallback",
            what,
            help="mend the set-up of the provider, or accept it with `--allow-fallback`: then it is reported",
        )
    return Finding(
        code="provider-fallback",
        what=what,
        help="what was compared did not all run on the provider that was asked for",
    )


def _list_nodes(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:_SHOWN])
    if len(nodes) <= _SHOWN:
        return shown
    return f"{shown} and {len(nodes) - _SHOWN} more"


def provider_missing(provider: str, *, forgiven: bool) -> Finding:
    """The finding where that is forgiven; else an error with what to install."""
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
    return fallback(
        f"onnxruntime {onnxruntime.__version__} here has no {short}: everything ran on the CPU",
        forgiven=True,
    )
