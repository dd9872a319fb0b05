"""Whether the disk under the data folder has room; where there is none, producers wait."""

import shutil
from pathlib import Path

FREE_BYTES_MIN = 256 * 1024 * 1024  # some seconds of heavy writing, and larger than a nats-server's own files


def disk_trouble(folder: Path) -> str:
    """What there is to say of too little room under `folder`, "" if there is enough."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return f"cannot look at {folder}: {error.strerror}"
    if free_bytes >= FREE_BYTES_MIN:
        return ""
    return f"only {free_bytes // 2**20:,} MiB are free under {folder}; on a full disk nothing is acknowledged"
