"""The C library's allocator told to keep large blocks, for processes that move megabytes in every message."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
# By default every block over 128 KiB is a mapping of its own, given back when freed: each megabyte message then pays
# for 256 page faults. Measured: 1.1 ms of CPU per megabyte sent becomes 0.3.
MMAP_THRESHOLD_BYTES = 1 << 30
MMAP_THRESHOLD_BYTES_OLD = 32 << 20  # what older C libraries accept at most
TRIM_THRESHOLD_BYTES = (1 << 31) - 1
TOP_PAD_BYTES = 64 << 20


def tune_malloc() -> bool:
    """Whether it could be done; it cannot where the C library is not glibc, and nothing depends on it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mapped = mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) or mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES_OLD)
    return bool(mapped and mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES) and mallopt(_M_TOP_PAD, TOP_PAD_BYTES))
