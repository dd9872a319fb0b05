"""The cacher's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ADVANCED, PoolConfig
from penstock.runtime.traces.opening import TracesRatio

MIB = 1024 * 1024


class CacherConfig(PoolConfig, frozen=True, kw_only=True):
    """Settings of one cacher process."""

    cache_bytes_max: Annotated[int, Meta(ge=16 * MIB, description="bytes of chunks kept in memory")] = 512 * MIB
    loads_bytes_max: Annotated[
        int, Meta(ge=4 * MIB, description="bytes of chunks that are loaded at the same time", extra=ADVANCED)
    ] = 128 * MIB
    requests_bytes_max: Annotated[
        int, Meta(ge=8 * MIB, description="bytes of chunks that requests may wait for", extra=ADVANCED)
    ] = 256 * MIB
    traces_ratio: TracesRatio = 0.0
