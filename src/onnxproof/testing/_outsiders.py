"""A backend from another package, for a while: installed by an entry point, as other packages do, so that child processes find it too."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def outsider(folder: Path, source: str, *names: str) -> Iterator[None]:
    """Install a module with this source text in `folder`, as a package whose backends have these names."""
    module = f"outsider_{names[0].replace('-', '_')}"
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n", encoding="utf-8"
    )
    points = f"{names[0]} = {module}\n"
    if len(names) > 1:
        points = "".join(f"{name} = {module}:{name.replace('-', '_')}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[onnxproof.backends]\n{points}", encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
        importlib.invalidate_caches()
