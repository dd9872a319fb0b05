"""The janitor's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ServiceConfig
from penstock_janitor.rules.classification import ORPHAN_AGE_MIN_MS

HOUR_MS = 3_600_000


class JanitorConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of one janitor process."""

    grace_ms: Annotated[
        int, Meta(ge=0, description="how long a segment without records stays, for readers that know of it")
    ] = 600_000
    retention_interval_ms: Annotated[int, Meta(ge=10, description="between two looks for what is too old")] = 30_000
    reap_interval_ms: Annotated[int, Meta(ge=10, description="between two looks for segments to delete")] = 60_000
    sweep_interval_ms: Annotated[int, Meta(ge=10, description="in which the whole bucket is looked through once")] = (
        24 * HOUR_MS
    )
    orphan_age_ms: Annotated[
        int, Meta(ge=ORPHAN_AGE_MIN_MS, description="the age at which what nobody committed is deleted")
    ] = ORPHAN_AGE_MIN_MS
    lease_ms: Annotated[
        int, Meta(ge=1_000, le=600_000, description="how long what a janitor has in work waits if it dies")
    ] = 60_000
    dry_run: Annotated[bool, Meta(description="only tell what would be done")] = False
