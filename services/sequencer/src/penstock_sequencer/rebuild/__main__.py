"""The rebuild program: `python -m penstock_sequencer.rebuild`, which `penstock rebuild` starts."""

import asyncio
import os
import sys
from typing import Annotated

from msgspec import Meta

from penstock.contracts.errors import PenstockError
from penstock.objectstore import open_store
from penstock.runtime.clock import SystemClock
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import NatsConnection, connect_nats
from penstock.runtime.process.config import ServiceConfig, read_config
from penstock.runtime.process.logs import configure_logs
from penstock_sequencer.rebuild.liveness import ARCHIVE_AGE_MIN_MS
from penstock_sequencer.rebuild.rebuild import Rebuild
from penstock_sequencer.rebuild.report import as_json, as_text
from penstock_sequencer.rebuild.stream import Streams

INTERRUPTED_EXIT_CODE = 130  # the shells' code for Ctrl-C; the next run completes the work


class RebuildConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of a rebuild; a rebuild can use the settings of the cluster's sequencers."""

    journal_replicas: Annotated[int, Meta(ge=1, le=5, description="copies of the new journal")] = 1
    archive_age_min_s: Annotated[
        int, Meta(ge=0, description="age that the newest archive object must have; 0: no sequencer can be running")
    ] = ARCHIVE_AGE_MIN_MS // 1000
    dry_run: Annotated[bool, Meta(description="report the result, but change nothing")] = False
    json: Annotated[bool, Meta(description="print the report as JSON")] = False


class NatsStreams(Streams):
    """Streams of a NATS server, and the journal over them."""

    def __init__(self, connection: NatsConnection, cluster: str, replicas: int) -> None:
        super().__init__(connection.bus, cluster)
        self._connection = connection
        self._cluster = cluster
        self._replicas = replicas

    async def journal(self) -> Journal:
        return await self._connection.journal(self._cluster, create=False, replicas=self._replicas)


def main() -> int:
    """Rebuild and print the report; 0 after success, 1 and one sentence after a failure."""
    config = read_config(RebuildConfig, sys.argv[1:], os.environ, program="rebuild")
    configure_logs("rebuild", config.instance, config.log_level, config.log_format)
    try:
        asyncio.run(_run(config))
    except PenstockError as error:
        sys.stderr.write(f"rebuild: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    return 0


async def _run(config: RebuildConfig) -> None:
    clock = SystemClock()
    store = await open_store(config.store_url, now_ms=clock.now_ms)
    try:
        connection = await connect_nats(
            config.nats_url, name=config.instance, user=config.nats_user, password=config.nats_password
        )
        try:
            streams = NatsStreams(connection, config.cluster, config.journal_replicas)
            rebuild = Rebuild(
                store,
                streams,
                config.cluster,
                clock.now_ms,
                replicas=config.journal_replicas,
                archive_age_min_ms=config.archive_age_min_s * 1000,
            )
            await rebuild.run(is_dry_run=config.dry_run)
        finally:
            await connection.close()
    finally:
        await store.close()
    report = rebuild.report
    sys.stdout.write((as_json(report) if config.json else as_text(report)) + "\n")


if __name__ == "__main__":
    sys.exit(main())
