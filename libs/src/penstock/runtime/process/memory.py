"""Memory settings of a process: its freed blocks, and the objects that the collector of Python skips."""

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from typing import Any

import msgspec

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
MMAP_THRESHOLD_BYTES_OLD = 32 << 20  # older C libraries accept no more


class MallocSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When glibc gives freed blocks back to the kernel."""

    # A block of this size is a separate mapping, which goes back to the kernel when it is freed.
    mmap_threshold_bytes: int
    # So much free memory at the end of the heap goes back to the kernel.
    trim_threshold_bytes: int
    # The heap grows by so much more than it needs.
    top_pad_bytes: int


# For a process of messages of megabytes. With glibc's own settings each of them costs 256 page faults. Measured: 1.1 ms
# of CPU per megabyte sent becomes 0.3.
KEEP_FREED_BLOCKS = MallocSettings(
    mmap_threshold_bytes=1 << 30, trim_threshold_bytes=(1 << 31) - 1, top_pad_bytes=64 << 20
)
# For a process with a large state, whose large blocks are rare. When such a block is freed, it goes back at once. The
# price is 15 ms of CPU for a command of a megabyte. `release_freed_memory` is not for this process: to search a large
# heap for free memory may take a second.
FREE_LARGE_BLOCKS = MallocSettings(mmap_threshold_bytes=128 << 10, trim_threshold_bytes=8 << 20, top_pad_bytes=1 << 20)


def tune_malloc(
    settings: MallocSettings = KEEP_FREED_BLOCKS, load_library: Callable[[None], Any] = ctypes.CDLL
) -> bool:
    """Apply the settings; return whether that was possible.

    It is possible only with glibc. Nothing depends on it. All threads share one heap. The C library never gives back
    the end of another thread's heap: measured, 60 MB of a gateway after large requests.
    """
    try:
        mallopt = load_library(None).mallopt
    except (AttributeError, OSError):
        return False
    mapped = mallopt(_M_MMAP_THRESHOLD, settings.mmap_threshold_bytes) or mallopt(
        _M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES_OLD
    )
    has_one_heap = mallopt(_M_ARENA_MAX, 1)
    return bool(
        mapped
        and has_one_heap
        and mallopt(_M_TRIM_THRESHOLD, settings.trim_threshold_bytes)
        and mallopt(_M_TOP_PAD, settings.top_pad_bytes)
    )


def release_freed_memory(load_library: Callable[[None], Any] = ctypes.CDLL) -> bool:
    """Give freed blocks back to the kernel; return whether there were any. Other threads run meanwhile.

    It is possible only with glibc. A process does it seldom, when large work is over: see `tune_malloc`.
    """
    try:
        malloc_trim = load_library(None).malloc_trim
    except (AttributeError, OSError):
        return False
    return bool(malloc_trim(0))


def freeze_startup_objects() -> None:
    """Exclude all objects that exist now from later collections, except cycles that are already dead.

    A full collection visits every container. The modules alone have some 65,000. They live as long as the process, and
    a visit takes 15 to 30 ms. Under load that happens every few seconds, and blocks all requests. Later objects are
    collected as always.
    """
    gc.collect()
    gc.freeze()


def resident_bytes_max(platform: str = sys.platform) -> int:
    """The most memory that this process has used. Only macOS counts it in bytes."""
    unit = 1 if platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
