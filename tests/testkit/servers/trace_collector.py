"""A collector of traces for tests: takes spans over OTLP and HTTP, and keeps them."""

import asyncio
import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

PATH = "/v1/traces"


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it came from a process."""

    service: str
    name: str
    trace: bytes
    span: bytes
    parent: bytes  # empty for a root
    links: list[bytes]  # the spans that it links to
    start_ns: int
    end_ns: int
    facts: dict[str, Any]


@dataclass
class TraceCollector:
    """The address for `OTEL_EXPORTER_OTLP_ENDPOINT`, and the spans so far."""

    url: str = ""
    spans: list[CollectedSpan] = field(default_factory=list)

    def named(self, name: str) -> list[CollectedSpan]:
        """The spans with this name, in the order of their coming."""
        return [span for span in list(self.spans) if span.name == name]

    def trace_of(self, root: CollectedSpan) -> dict[str, CollectedSpan]:
        """The spans of one trace, by name."""
        return {span.name: span for span in list(self.spans) if span.trace == root.trace}

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.spans += _spans_of(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


@contextlib.contextmanager
def running_trace_collector() -> Iterator[TraceCollector]:
    """A collector on a free port, in a thread of its own."""
    collector = TraceCollector()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="trace-collector", daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_serve(collector), loop).result()
    try:
        yield collector
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(collector: TraceCollector) -> web.AppRunner:
    app = web.Application()
    app.router.add_post(PATH, collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    collector.url = f"http://{host}:{port}"
    return runner


def _spans_of(request: ExportTraceServiceRequest) -> list[CollectedSpan]:
    found = []
    for resource in request.resource_spans:
        service = _facts(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            found += [
                CollectedSpan(
                    service,
                    span.name,
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    [link.span_id for link in span.links],
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _facts(span.attributes),
                )
                for span in scope.spans
            ]
    return found


def _facts(pairs: list[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value"))
