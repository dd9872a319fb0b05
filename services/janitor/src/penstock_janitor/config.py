"""The janitor's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ADVANCED, HostingConfig
from penstock_janitor.rules.classification import ORPHAN_AGE_MIN_MS

HOUR_MS = 3_600_000


class JanitorConfig(HostingConfig, frozen=True, kw_only=True):
    """Settings of one janitor process."""

    grace_ms: Annotated[
        int,
        Meta(ge=0, description="time that a dead segment stays, for readers that still know of it", extra=ADVANCED),
    ] = 600_000
    retention_interval_ms: Annotated[
        int, Meta(ge=10, description="time between two searches for records beyond their retention", extra=ADVANCED)
    ] = 30_000
    reap_interval_ms: Annotated[
        int, Meta(ge=10, description="time between two searches for segments to delete", extra=ADVANCED)
    ] = 60_000
    sweep_interval_ms: Annotated[
        int,
        Meta(ge=10, description="time in which all janitors together list the bucket once", extra=ADVANCED),
    ] = 24 * HOUR_MS
    orphan_age_ms: Annotated[
        int,
        Meta(ge=ORPHAN_AGE_MIN_MS, description="age at which an uncommitted object is deleted", extra=ADVANCED),
    ] = ORPHAN_AGE_MIN_MS
    lease_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=600_000,
            description="time after which other janitors take over the work of a janitor that died",
            extra=ADVANCED,
        ),
    ] = 60_000
    dry_run: Annotated[bool, Meta(description="log deletions and expiries, but change nothing")] = False
