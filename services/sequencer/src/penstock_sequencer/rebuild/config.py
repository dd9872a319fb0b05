"""The settings of a rebuild."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ServiceConfig
from penstock_sequencer.rebuild.preconditions import ARCHIVE_AGE_MIN_MS


class RebuildConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of a rebuild; a rebuild can use the settings of the cluster's sequencers."""

    journal_replicas: Annotated[int, Meta(ge=1, le=5, description="copies of the new journal")] = 1
    archive_age_min_s: Annotated[
        int, Meta(ge=0, description="age that the newest archive object must have; 0: no sequencer can be running")
    ] = ARCHIVE_AGE_MIN_MS // 1000
    dry_run: Annotated[bool, Meta(description="report the result, but change nothing")] = False
    json: Annotated[bool, Meta(description="print the report as JSON")] = False
