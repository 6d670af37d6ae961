"""Memory that the allocator keeps for later is given back before the next large step."""

import ctypes
import sys


def release_free_memory() -> None:
    """Return what is free to the system: after a pass with large tensors, glibc keeps hundreds of megabytes in its heap."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; musl has none
        if trim is not None:
            trim(0)
