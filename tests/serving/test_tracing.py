"""OpenTelemetry spans of requests."""

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from served import open_client

import itemfold as ir
from itemfold.serving.http import ServiceSettings, settings
from itemfold.serving.http.monitoring import tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter(monkeypatch):
    """Where the spans of a service go."""
    found = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "otlp_exporter", lambda: found)
    monkeypatch.setattr(settings, "OTEL", ("opentelemetry.sdk",))
    return found


def test_a_request_is_a_span_of_the_callers_trace(recommender, exporter):
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "r1"}
    with open_client(recommender, otel=True) as client:
        signed = client.post("/v1/recommend", json={"history": ["12"]}, headers=headers)
        client.get("/v1/similar", params={"item": "secret-item"})
    first, second = exporter.get_finished_spans()  # sent at the end of the service at the latest
    assert (first.name, first.kind) == ("POST /recommend", SpanKind.SERVER)
    assert f"{first.context.trace_id:x}" == TRACE.lstrip("0")
    assert f"{first.parent.span_id:x}" == PARENT
    assert first.attributes == {
        "http.request.method": "POST",
        "http.route": "/recommend",
        "http.response.status_code": 200,
        "itemfold.request_id": "r1",
        "itemfold.key": "none",
        "itemfold.run": "run",
        "itemfold.run_fingerprint": signed.headers["X-Run-Fingerprint"],
    }
    assert 0 < first.end_time - first.start_time < 60e9
    assert first.resource.attributes["service.name"] == "itemfold"
    assert second.context.trace_id != first.context.trace_id
    assert second.attributes["http.response.status_code"] == 404
    assert second.status.status_code is StatusCode.UNSET  # a client's mistake
    assert "secret" not in first.to_json() + second.to_json()


def test_a_bug_is_an_error_of_its_span(recommender, exporter, monkeypatch):
    def broken(*_, **__):
        raise ValueError("secret-user")

    monkeypatch.setattr(recommender, "recommend", broken, raising=False)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    with open_client(recommender, otel=True) as client:
        client.post("/v1/recommend", json={"history": ["12"]})
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.resource.attributes["service.name"] == "shop"
    assert "secret" not in span.to_json()


def test_nothing_is_traced_unless_asked_for(recommender, exporter):
    with open_client(recommender) as client:
        assert client.post("/v1/recommend", json={"history": ["12"]}).status_code == 200
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("package", ["opentelemetry.no_such_exporter", "no_such_package.sdk"])
def test_missing_packages_are_named(monkeypatch, package):
    monkeypatch.setattr(settings, "OTEL", ("opentelemetry.sdk", package))
    with pytest.raises(ir.ItemfoldError, match=r"'--otel' needs .*: pip install"):
        ServiceSettings(otel=True)
