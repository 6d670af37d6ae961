"""What the page may ask for: its own files, those of onnxruntime-web, the model and the tensors of the bundle. Nothing else has a name here."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxproof.bundle.manifest import MANIFEST
from onnxproof.bundle.read import Bundle

_PACKAGE = Path(__file__).parents[1]
_OWN = {
    "": _PACKAGE / "bundle" / "page" / "replay.html",
    **{
        f"page/{name}": _PACKAGE / "bundle" / "page" / name
        for name in ("replay.css", "replay.mjs", "runner.mjs", "measures.mjs", "arrays.mjs")
    },
    "page/report.css": _PACKAGE / "report" / "page" / "report.css",
    "page/tensors.mjs": _PACKAGE / "runtimes" / "javascript" / "tensors.mjs",
}
_RUNTIME = re.compile(r"runtime/(ort[\w.-]*\.(?:mjs|wasm))")
_MODEL = re.compile(r"model/(\d{1,6})")
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "wasm": "application/wasm",
    "json": "application/json",
}
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A body to send."""

    kind: str
    size: int
    pieces: Iterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Everything that is served."""

    bundle: Bundle
    runtime: Path
    """The folder `dist` of onnxruntime-web."""
    model: Path
    other: bool = False
    """Whether it is another model than the bundle was made for."""
    external: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    threads: int = 0

    def find(self, name: str) -> Content | None:
        """The content behind a name, which is compared with the known ones and never joined to a folder."""
        if name in _OWN:
            return _from_disk(_OWN[name])
        if name == "settings.json":
            return _from_bytes(json.dumps(self._settings()).encode(), name)
        if name in self._members:
            archive = self.bundle.archive
            return Content(
                kind=_type_of(name), size=archive.size(name), pieces=archive.pieces(name)
            )
        return self._from_folders(name)

    def _from_folders(self, name: str) -> Content | None:
        runtime = _RUNTIME.fullmatch(name)
        if runtime and (self.runtime / runtime[1]).is_file():
            return _from_disk(self.runtime / runtime[1])
        model = _MODEL.fullmatch(name)
        paths = [self.model, *(self.model.parent / name for name in self.external)]
        if model and int(model[1]) < len(paths):
            return _from_disk(paths[int(model[1])])
        return None

    @property
    def most_answer(self) -> int:
        """Bytes that the answer to one call may have: twice what the reference's answer takes, and a header."""
        sizes = [self.bundle.archive.size(name) for name in self._members]
        return 2 * max(sizes) + (1 << 20)

    @property
    def calls(self) -> int:
        """Calls of the model that a whole replay takes on each backend."""
        manifest = self.bundle.manifest
        cases = [case for case in manifest.cases if self._wanted(case.name)]
        rollouts = [rollout for rollout in manifest.rollouts if self._wanted(rollout.name)]
        return len(cases) + sum(len(rollout.calls) for rollout in rollouts)

    @property
    def _members(self) -> frozenset[str]:
        manifest = self.bundle.manifest
        cases = [case.file for case in manifest.cases]
        return frozenset([MANIFEST, *cases, *(rollout.file for rollout in manifest.rollouts)])

    def _wanted(self, name: str) -> bool:
        return not self.only or name in self.only

    def _settings(self) -> dict[str, object]:
        """What the page has to know beside the bundle."""
        manifest = self.bundle.manifest
        return {
            "external": list(self.external),
            "only": list(self.only),
            "threads": self.threads,
            "outputs": output_names(self.bundle),
            "most_answer": self.most_answer,
            "judged": manifest.quantization is None,
            "made": self.bundle.proof.verdict.value,
            "bundle": self.bundle.path.name,
            "model": self.model.name,
            "other": self.other,
        }


def output_names(bundle: Bundle) -> list[str]:
    """The file's outputs that are compared, in the reference's order."""
    outputs = bundle.manifest.signature.outputs
    return [output.onnx_name for output in outputs if output.onnx_name is not None]


def _from_disk(path: Path) -> Content:
    return Content(kind=_type_of(path.name), size=path.stat().st_size, pieces=_read(path))


def _from_bytes(content: bytes, name: str) -> Content:
    return Content(kind=_type_of(name), size=len(content), pieces=iter([content]))


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _type_of(name: str) -> str:
    return _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
