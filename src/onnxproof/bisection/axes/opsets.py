"""Opsets: the file converted to each by ONNX's version converter, or the module exported with each."""

from collections.abc import Sequence
from pathlib import Path

from onnxproof.bisection.axes import Place
from onnxproof.errors import ExportError
from onnxproof.options import ExportOptions
from onnxproof.reference.subject import Subject


class Opsets:
    """A file for each opset, in `folder`."""

    name = "opset"

    def __init__(
        self,
        points: Sequence[str],
        subject: Subject,
        folder: Path,
        *,
        file: Path | None = None,
        backend: str = "ort",
    ) -> None:
        self.points = list(points)
        self._subject = subject
        self._file = file
        if file is None and subject.onnx is not None:
            self._file = Path(subject.onnx)
        self._folder = folder
        self._backend = backend

    def prepare(self, point: str) -> Place:
        """The file with that opset."""
        path = self._folder / f"opset-{point}.onnx"
        if not path.exists():
            if self._file is None:
                self._export(int(point), path)
            else:
                _convert(self._file, int(point), path)
        return Place(path=path, backend=self._backend)

    def _export(self, opset: int, path: Path) -> None:
        from onnxproof.exporter.export import write

        write(self._subject, path, ExportOptions(opset=opset))


def _convert(file: Path, opset: int, path: Path) -> None:
    import onnx
    from onnx import version_converter

    model = onnx.load(file)
    try:
        converted = version_converter.convert_version(model, opset)
    except Exception as why:  # the converter raises plain RuntimeErrors from C++
        words = " ".join(str(why).split())[:300]
        raise ExportError(
            "not-converted", f"ONNX's converter can't make opset {opset} of `{file.name}`: {words}"
        ) from why
    onnx.save(converted, path)
