"""Opens the traces that the settings of a service ask for."""

from importlib import import_module
from typing import Annotated, Protocol

from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, Entropy, SystemEntropy
from penstock.runtime.traces.traces import NO_TRACES, Traces

# The setting `traces_ratio` of each service that has spans.
TracesRatio = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="share of client requests that gateways trace; other services follow them if theirs is above 0; "
        "0: off",
    ),
]


class TracedService(Protocol):
    """The settings of a service that its traces need."""

    @property
    def cluster(self) -> str: ...

    @property
    def zone(self) -> str: ...

    @property
    def instance(self) -> str: ...

    @property
    def traces_ratio(self) -> float: ...


def open_traces(config: TracedService, role: str, clock: Clock, entropy: Entropy | None = None) -> Traces:
    """The traces of one service; `Invalid` if they are on and OpenTelemetry is not installed."""
    ratio = config.traces_ratio
    if not ratio:
        return NO_TRACES
    resource = {
        "service.name": f"penstock-{role}",
        "service.instance.id": config.instance,
        "penstock.cluster": config.cluster,
        "penstock.zone": config.zone,
    }
    try:
        otel = import_module("penstock.runtime.traces.otel")
    except ModuleNotFoundError as error:
        raise Invalid(
            f"traces_ratio is {ratio:g}, but OpenTelemetry is not installed ({error}): "
            "install penstock[otel], or set traces_ratio to 0"
        ) from error
    traces: Traces = otel.OtelTraces(ratio=ratio, resource=resource, clock=clock, entropy=entropy or SystemEntropy())
    return traces
