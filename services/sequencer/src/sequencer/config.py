"""The sequencer's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.config import ServiceConfig


class SequencerConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of one sequencer process."""

    journal_replicas: Annotated[
        int, Meta(ge=1, le=5, description="copies of the journal when it is made; more than one needs as many servers")
    ] = 1
