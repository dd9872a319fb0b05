"""The settings of `penstock journal`."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ServiceConfig


class JournalMoveConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of a move; it can use the settings of the cluster's sequencers. `nats_url` names the old servers."""

    to_nats_url: Annotated[str, Meta(description="addresses of the new NATS servers; empty: only change copies")] = ""
    to_env_file: Annotated[
        str, Meta(description="file with the login at the new NATS servers; empty: the same login")
    ] = ""
    copies: Annotated[
        int, Meta(ge=0, le=5, description="copies of the journal; 0: three in a cluster of NATS servers, else one")
    ] = 0
    remove_old: Annotated[
        bool, Meta(description="remove the journal at the new NATS servers if it was moved away from there before")
    ] = False
    dry_run: Annotated[bool, Meta(description="report what the move would do, but change nothing")] = False
