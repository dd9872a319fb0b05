"""Memory settings of a process: the C library keeps freed blocks, and Python's collector skips startup objects."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
# By default, every block over 128 KiB is a separate mapping. It goes back to the kernel when it is freed. Then each
# message of a megabyte costs 256 page faults. Measured: 1.1 ms of CPU per megabyte sent becomes 0.3.
MMAP_THRESHOLD_BYTES = 1 << 30
MMAP_THRESHOLD_BYTES_OLD = 32 << 20  # older C libraries accept no more
TRIM_THRESHOLD_BYTES = (1 << 31) - 1
TOP_PAD_BYTES = 64 << 20


def tune_malloc(load_library: Callable[[None], Any] = ctypes.CDLL) -> bool:
    """Keep freed blocks in the process, for messages of megabytes; return whether that was possible.

    It is possible only with glibc. Nothing depends on it. All threads share one heap. The C library never gives back
    the end of another thread's heap: measured, 60 MB of a gateway after large requests.
    """
    try:
        mallopt = load_library(None).mallopt
    except (AttributeError, OSError):
        return False
    mapped = mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) or mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES_OLD)
    has_one_heap = mallopt(_M_ARENA_MAX, 1)
    return bool(
        mapped
        and has_one_heap
        and mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
        and mallopt(_M_TOP_PAD, TOP_PAD_BYTES)
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
