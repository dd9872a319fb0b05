"""The settings of a rebuild."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ServiceConfig
from penstock_sequencer.rebuild.preconditions import ARCHIVE_AGE_MIN_MS


class RebuildConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of a rebuild; those of the sequencers of the cluster will do."""

    journal_replicas: Annotated[int, Meta(ge=1, le=5, description="copies of the new journal")] = 1
    archive_age_min_s: Annotated[
        int, Meta(ge=0, description="how long the archive must not have grown; 0 if no sequencer can be at work")
    ] = ARCHIVE_AGE_MIN_MS // 1000
    dry_run: Annotated[bool, Meta(description="only tell what would be done")] = False
    json: Annotated[bool, Meta(description="report as JSON")] = False
