"""What the system says of a path: a mistake in the call's words, and no bug of ours, wherever it is met."""

import errno

from onnxproof.errors import UsageError

_CODES = {
    errno.ENAMETOOLONG: "bad-path",
    errno.ELOOP: "bad-path",
    errno.ENOTDIR: "bad-path",
    errno.EISDIR: "bad-path",
    errno.EACCES: "no-permission",
    errno.EPERM: "no-permission",
    errno.EROFS: "no-permission",
}
_LONGEST = 200


def path_error(why: BaseException) -> UsageError | None:
    """The error in our form, if it is about a path."""
    if isinstance(why, OSError) and why.errno in _CODES:
        return UsageError(
            _CODES[why.errno],
            f"the system says: {why.strerror}",
            where=_shorten(str(why.filename or "")),
            help="check the path and its permissions",
        )
    if isinstance(why, ValueError) and "embedded null" in str(why):
        return UsageError("bad-path", "a path has a NUL character in it, which no system can hold")
    return None


def _shorten(path: str) -> str:
    if len(path) <= _LONGEST:
        return path
    return f"{path[:_LONGEST]}... ({len(path):,} characters)"
