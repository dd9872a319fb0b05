"""The rebuild program: `python -m penstock_sequencer.rebuild`, which `penstock rebuild` starts."""

import asyncio
import os
import sys

from penstock.contracts.errors import PenstockError
from penstock.objectstore import has_landing, open_store
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.nats.client import connect_nats
from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.config import read_config
from penstock.runtime.process.logs import configure_logs
from penstock_sequencer.rebuild.config import RebuildConfig
from penstock_sequencer.rebuild.rebuild import Rebuild
from penstock_sequencer.rebuild.report import as_json, as_text
from penstock_sequencer.storage.journal_stream import NatsStreams

INTERRUPTED_EXIT_CODE = 130  # the shells' code for Ctrl-C; the next run completes the work


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
    store = await open_store(config.store_url, clock=clock)
    try:
        connection = await connect_nats(
            config.nats_url,
            name=config.instance,
            user=config.nats_user,
            password=config.nats_password,
            tls=NatsTls(config.nats_tls_ca, config.nats_tls_certificate, config.nats_tls_key),
        )
        try:
            streams = NatsStreams(connection, config.cluster, config.journal_replicas)
            rebuild = Rebuild(
                store=store,
                streams=streams,
                cluster=config.cluster,
                now_ms=clock.now_ms,
                entropy=SystemEntropy(),
                has_landing=has_landing(config.store_url),
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
