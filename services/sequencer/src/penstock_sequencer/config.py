"""The sequencer's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import ADVANCED, HostingConfig
from penstock.runtime.traces.opening import TracesRatio

SYNC_ALWAYS = "sync-always"


class SequencerConfig(HostingConfig, frozen=True, kw_only=True):
    """Settings of one sequencer process."""

    journal_replicas: Annotated[
        int,
        Meta(ge=1, le=5, description="copies of the journal at its creation; each copy needs a NATS server of its own"),
    ] = 1
    nats_monitor_url: Annotated[
        str, Meta(description="monitoring addresses of all NATS servers, http://host:port, separated by commas")
    ] = ""
    journal_assurance: Annotated[
        str,
        Meta(
            description="sync-always: the operator assures that every NATS server syncs each entry; "
            "monitoring has priority"
        ),
    ] = ""
    unsafe_journal: Annotated[
        bool, Meta(description="start on a journal that can lose entries that it acknowledged")
    ] = False
    snapshot_entries: Annotated[
        int, Meta(ge=1, description="a snapshot is due this many journal entries after the newest one", extra=ADVANCED)
    ] = 50_000
    snapshot_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="a snapshot is also due after this time, if commands came since or dead segments wait for one",
            extra=ADVANCED,
        ),
    ] = 600_000
    traces_ratio: TracesRatio = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.journal_assurance not in ("", SYNC_ALWAYS):
            raise Invalid(f"journal assurance must be {SYNC_ALWAYS} or empty: {self.journal_assurance!r}")
        for url in filter(None, self.nats_monitor_url.split(",")):
            if not url.strip().startswith(("http://", "https://")):
                raise Invalid(f"nats monitor url must be http://host:port, or several separated by commas: {url!r}")
