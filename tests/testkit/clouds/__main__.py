"""Runs the checks of `penstock doctor store` on every store that this machine can have; `make test-stores` does.

It prints a table with the guarantees of each store, and names the stores that are missing.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from penstock.cli.diagnosis.checks import Finding
from penstock.cli.diagnosis.store_guarantees import GUARANTEES, check_guarantees
from penstock.objectstore import CloudLimits, RetryLimits, S3Limits, StoreLimits, open_store
from penstock.runtime.clock import SystemClock
from tests.conformance.provision import Missing
from tests.testkit.clouds.azure import running_azurite
from tests.testkit.clouds.google import running_google
from tests.testkit.clouds.versity import running_versity
from tests.testkit.servers.moto import running_moto
from tests.testkit.servers.seaweed import running_seaweed

TIMEOUT_S = 60.0  # for servers on a busy machine
LIMITS = StoreLimits(
    s3=S3Limits(read_timeout_s=TIMEOUT_S),
    clouds=CloudLimits(read_timeout_s=TIMEOUT_S),
    retry=RetryLimits(attempt_s=TIMEOUT_S, deadline_s=2 * TIMEOUT_S),
)
STORES: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "folder": lambda folder: nullcontext(),
    "SeaweedFS": running_seaweed,
    "versitygw": running_versity,
    "moto": running_moto,
    "fake-gcs-server": running_google,
    "Azurite": running_azurite,
}
# These stores have been used for long; a broken guarantee fails the run.
SOUND = ("folder", "SeaweedFS", "moto", "fake-gcs-server", "Azurite")


async def findings_of(url: str) -> list[Finding]:
    """The findings of one store."""
    store = await open_store(url, limits=LIMITS)
    try:
        return await check_guarantees(store, "all-stores", SystemClock())
    finally:
        await store.close()


def main() -> int:
    """Print the table; 1 if a store that was sound is not."""
    found: dict[str, dict[str, Finding]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, start in STORES.items():
            folder = Path(scratch) / name
            folder.mkdir()
            try:
                with start(folder) as server:
                    url = server.url("some/prefix") if server else f"file://{folder}"
                    found[name] = {each.check: each for each in asyncio.run(findings_of(url))}
            except Missing as error:
                print(f"{name}: not here: {error}", file=sys.stderr)
    print(f"| guarantee | {' | '.join(found)} |")
    print("|---" * (len(found) + 1) + "|")
    for guarantee in GUARANTEES[:-1]:
        print(f"| {guarantee.name} | {' | '.join(found[name][guarantee.name].mark for name in found)} |")
    for name, findings in found.items():
        print(f"{name}: {findings[GUARANTEES[-1].name].fact}")
        for each in findings.values():
            if each.advice:
                print(f"{name}: {each.check}: {each.mark}: {each.fact}")
    return int(any(each.mark == "error" for name in SOUND if name in found for each in found[name].values()))


if __name__ == "__main__":
    sys.exit(main())
