"""Reports of low free space on the disk of the data folder; on a full disk, producers wait."""

import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.runtime.concurrency.beat import until_beat


def shortage(folder: Path, free_bytes_min: int) -> str:
    """A sentence for the user if too little space is free under `folder`, else ""."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return f"cannot read the free space of {folder}: {error.strerror}"
    if free_bytes >= free_bytes_min:
        return ""
    return f"only {free_bytes // 2**20:,} MiB are free under {folder}; on a full disk nothing is acknowledged"


async def report_shortages(
    folder: Path, find: Callable[[], str], report: Callable[[str], None], *, poll_s: float
) -> None:
    """For ever, report each shortage that `find` returns once, and its end once."""
    is_reported = False
    while True:
        found = find()
        if found and not is_reported:
            report(found)
        elif is_reported and not found:
            report(f"there is free space again under {folder}")
        is_reported = bool(found)
        await until_beat(poll_s)
