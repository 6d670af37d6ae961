"""A folder of ONNX files that together are one model: its files, what each is for, and how they are called in turn."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Role(StrEnum):
    """What a file does when the model is called again and again."""

    ENCODER = "encoder"
    """Runs once, before the first step."""
    FIRST = "first"
    """The decoder's first call: it takes no cache, and gives one."""
    STEP = "step"
    """Every call of a decoder that takes a cache; the first one too, with an empty cache, where no file is for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One file in one role. A merged decoder is two of them, one for each of its branches."""

    file: str
    """Its name in the folder."""
    role: Role
    path: Path
    """What is proven alone: the file itself, one branch of it, or the file with its mask filled in."""
    branch: str = ""
    """Which of a merged file's two branches this is."""

    @property
    def title(self) -> str:
        """The file, with the branch where it has two."""
        if not self.branch:
            return self.file
        return f"{self.file} ({self.branch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What a layout found in a folder."""

    folder: Path
    layout: str
    components: tuple[Component, ...]
    buffer: int = 0
    """Places of the one buffer that past and present share; 0 where a cache grows."""
    padding: bool = True
    """Whether a batch may hold prompts of different lengths, padded and masked."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the layout's own configuration says."""

    def component(self, role: Role) -> Component | None:
        """The file for a role, if the folder has one."""
        return next((part for part in self.components if part.role is role), None)

    @property
    def two_parts(self) -> bool:
        """Whether an encoder comes before the decoder."""
        return self.component(Role.ENCODER) is not None
