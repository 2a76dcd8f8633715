"""OpenTelemetry spans of requests; needs the extra `otel`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode

KEPT = {  # attributes, from fields of the log line
    "http.request.method": "method",
    "http.route": "path",
    "http.response.status_code": "status",
    **{f"itemfold.{name}": name for name in ("request_id", "key", "run", "run_fingerprint")},
}


def otlp_exporter() -> SpanExporter:
    """The exporter over HTTP to the collector of OTEL_EXPORTER_OTLP_ENDPOINT."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter()
    return exporter


class Tracing:
    """A server span per request; it continues the trace of the header `traceparent`.

    Variables of OpenTelemetry such as OTEL_SERVICE_NAME and OTEL_TRACES_SAMPLER apply. The provider
    is not the global one, so nothing else in the process is traced.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        named = Resource({SERVICE_NAME: "itemfold"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=Resource.create(dict(named.attributes)))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("itemfold.serving")

    def record(self, headers: Mapping[str, str], seconds: float, fields: Mapping[str, Any]) -> None:
        """Record an answered request.

        Args:
            headers: The headers of the request.
            seconds: How long it took, the upload included.
            fields: The fields of its log line; some become attributes.
        """
        end, status = time.time_ns(), fields["status"]
        span = self._tracer.start_span(
            "{method} {path}".format_map(fields),
            context=extract(headers),
            kind=SpanKind.SERVER,
            start_time=end - int(1e9 * seconds),
            attributes={name: fields[field] for name, field in KEPT.items() if field in fields},
        )
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def close(self) -> None:
        """Flush the recorded spans."""
        self._provider.shutdown()
