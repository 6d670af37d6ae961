"""A zip archive that is what it says: no name twice, nothing hidden, nothing that unpacks to more than fits."""

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from onnxproof.errors import OnnxproofError, SubjectError
from onnxproof.system.user_files import readable_bytes, require_regular

_MOST_MEMBERS = 200_000
"""A model with 100,000 tensors has as many members."""
_BOMB = 100
"""Times its packed size that a member may unpack to; deflated source code and JSON reach 20, deflate itself ends at 1,032."""
_SMALL = 1 << 20
_PIECE = 1 << 20
_LOCAL_HEADER, _NAME_LENGTH, _DIRECTORY_HEADER, _END, _END_OF_ZIP64 = 30, 26, 46, 22, 76
"""Bytes of a header before its names, where in it their lengths stand, and the bytes of the records at the end (section 4.3 of PKWARE's APPNOTE)."""
_END_MARK = b"PK\x05\x06"
_UTF_8 = 0x800
_DESCRIPTORS = (12, 16, 20, 24)
"""Bytes of sizes behind a member that was written to a stream."""
_KNOWN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """The members of a checked archive by their names, below its one folder where it has one."""

    def __init__(
        self,
        path: Path,
        damaged: str,
        *,
        error: type[OnnxproofError] = SubjectError,
        one_folder: bool = True,
        gapless: bool = False,
    ) -> None:
        """Open and check; `damaged` is the code of the error for what is no archive of this kind, `error` its class.

        `gapless` refuses bytes that belong to no member: before the first, between two, or at the end.
        """
        self._error = error
        self._one_folder = one_folder
        self.path = require_regular(path, error)
        self._damaged = damaged
        try:
            self._zip = zipfile.ZipFile(path)
        except (
            zipfile.BadZipFile,
            ValueError,
            NotImplementedError,
            OSError,
            RecursionError,
        ) as why:
            raise self.refused(
                "it is no zip archive, or a damaged one", str(why), code=self._damaged
            ) from why
        try:
            self._entries = self._check_members()
            if gapless:
                self._check_gaps()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """Every member, in the archive's order."""
        return list(self._entries)

    def size(self, name: str) -> int:
        """The bytes that a member says it unpacks to."""
        return self._entries[name].file_size

    def read(self, name: str) -> bytes:
        """A member's content: never more than it says, and never less."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """The same in pieces, for what need not be in memory at once."""
        entry = self._entries[name]
        size = 0
        try:
            with self._zip.open(entry) as stream:
                while piece := stream.read(min(_PIECE, entry.file_size + 1 - size)):
                    size += len(piece)
                    yield piece
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            ValueError,
            NotImplementedError,
        ) as why:
            raise self.refused(
                f"its member `{name}` is damaged", str(why), code=self._damaged
            ) from why
        if size != entry.file_size:
            raise self.refused(
                f"its member `{name}` has {size:,} bytes and says {entry.file_size:,}",
                code=self._damaged,
            )

    def refused(
        self,
        what: str,
        note: str = "",
        *,
        code: str = "archive-refused",
        help: str = "",
    ) -> OnnxproofError:
        """The error that names this archive."""
        notes = [note[:300]] if note else []
        return self._error(
            code,
            f"`{self.path.name}` is refused: {what}",
            where=str(self.path),
            notes=notes,
            help=help,
        )

    def _check_members(self) -> Mapping[str, zipfile.ZipInfo]:
        entries = self._zip.infolist()
        if len(entries) > _MOST_MEMBERS:
            raise self.refused(
                f"it has {len(entries):,} members, and at most {_MOST_MEMBERS:,} are read",
                code="archive-too-large",
            )
        folders = {entry.filename.split("/", 1)[0] for entry in entries}
        if self._one_folder and len(folders) > 1:
            raise self.refused("its members are not in one folder", ", ".join(sorted(folders)[:6]))
        members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.is_dir() and entry.file_size == 0:
                continue
            name = entry.filename
            if self._one_folder:
                name = name.partition("/")[2]
            self._check_entry(entry, name)
            if name in members:
                raise self.refused(
                    f"two of its members are named `{name}`",
                    "one reader takes the first, and another the last",
                )
            members[name] = entry
        self._check_sizes(members)
        return members

    def _check_entry(self, entry: zipfile.ZipInfo, name: str) -> None:
        """One member by itself: a plain name, a regular file, a known way of packing."""
        words = name.split("/")
        printable = all(c.isprintable() and c != "\\" for c in name)
        if not name or not printable or any(word in ("", ".", "..") for word in words):
            raise self.refused(f"its member `{entry.filename}` has no plain name")
        if entry.orig_filename != entry.filename:
            raise self.refused(f"its member `{entry.filename}` has a second name")
        mode = entry.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise self.refused(f"its member `{name}` is no regular file")
        if entry.flag_bits & 0x1 or entry.compress_type not in _KNOWN_METHODS:
            raise self.refused(f"its member `{name}` is encrypted or packed in an unknown way")

    def _check_sizes(self, members: Mapping[str, zipfile.ZipInfo]) -> None:
        """Refuse before anything is unpacked: what is stored can't be more than the file, what is packed can't be a bomb, and all of it must fit."""
        own = self.path.stat().st_size
        stored = sum(entry.compress_size for entry in members.values())
        if stored > own:
            raise self.refused(
                f"its members say that they take {stored:,} bytes of a file of {own:,}",
                "members that overlap unpack to more than there is",
            )
        for name, entry in members.items():
            packed = entry.compress_type == zipfile.ZIP_DEFLATED
            if not packed and entry.file_size != entry.compress_size:
                raise self.refused(f"its member `{name}` says two sizes")
            if packed and entry.file_size > max(_SMALL, _BOMB * entry.compress_size):
                raise self.refused(
                    f"its member `{name}` would unpack from {entry.compress_size:,} to {entry.file_size:,} bytes",
                    code="archive-too-large",
                )
        total = sum(entry.file_size for entry in members.values())
        most = readable_bytes()
        if total > most:
            raise self.refused(
                f"it unpacks to {total:,} bytes, and {most:,} fit into memory",
                code="archive-too-large",
            )

    def _check_gaps(self) -> None:
        """Every member begins where the one before ends, then come the directory and its end."""
        entries = sorted(self._zip.infolist(), key=lambda entry: entry.header_offset)
        with self.path.open("rb") as stream:
            at = 0
            for entry in entries:
                loose = entry.header_offset - at
                if loose and not (at and loose in _DESCRIPTORS):
                    raise self._loose(loose)
                stream.seek(entry.header_offset + _NAME_LENGTH)
                lengths = struct.unpack("<HH", stream.read(4))
                at = entry.header_offset + _LOCAL_HEADER + sum(lengths) + entry.compress_size
            loose = self._zip.start_dir - at
            if loose and loose not in _DESCRIPTORS:
                raise self._loose(loose)
            stream.seek(self._zip.start_dir)
            directory = stream.read()
        loose = len(directory) - sum(map(_directory_bytes, entries)) - _END
        if directory[-_END : -_END + 4] != _END_MARK or loose not in (0, _END_OF_ZIP64):
            raise self._loose(loose)

    def _loose(self, count: int) -> OnnxproofError:
        return self.refused(f"{abs(count):,} of its bytes belong to no member", code=self._damaged)


def _directory_bytes(entry: zipfile.ZipInfo) -> int:
    """What a member takes in the directory; its name is stored as it was written."""
    name = entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF_8 else "cp437")
    return _DIRECTORY_HEADER + len(name) + len(entry.extra) + len(entry.comment)


def write(
    stream: IO[bytes],
    members: Mapping[str, bytes | str],
    copied: Mapping[str, str],
    source: Archive,
) -> None:
    """A new archive of the given contents, and of members that are copied from the source: `{new name: name there}`."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(f"archive/{name}", content)
        for name, there in copied.items():
            archive.writestr(f"archive/{name}", source.read(there))
    stream.seek(0)
