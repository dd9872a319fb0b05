"""How a process uses memory: the C library keeps large blocks, and Python's cycle collector skips startup objects."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
# By default every block over 128 KiB is a mapping of its own, returned to the kernel when it is freed. Each megabyte
# message then pays for 256 page faults. Measured: 1.1 ms of CPU per megabyte sent becomes 0.3.
MMAP_THRESHOLD_BYTES = 1 << 30
MMAP_THRESHOLD_BYTES_OLD = 32 << 20  # older C libraries accept no more
TRIM_THRESHOLD_BYTES = (1 << 31) - 1
TOP_PAD_BYTES = 64 << 20


def tune_malloc(load_library: Callable[[None], Any] = ctypes.CDLL) -> bool:
    """Keep freed blocks in the process, for messages of megabytes; whether it was possible.

    It is not possible where the C library is not glibc, and nothing depends on it.
    """
    try:
        mallopt = load_library(None).mallopt
    except (AttributeError, OSError):
        return False
    mapped = mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) or mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES_OLD)
    return bool(mapped and mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES) and mallopt(_M_TOP_PAD, TOP_PAD_BYTES))


def freeze_startup_objects() -> None:
    """Exclude all objects that exist now from later collections, except cycles that are dead already.

    A full collection visits every container. The modules alone are some 65,000, which takes 15 to 30 ms, every few
    seconds under load, and no request is answered meanwhile. They stay as long as the process. Later objects are
    collected as always.
    """
    gc.collect()
    gc.freeze()
