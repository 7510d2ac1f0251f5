"""`GET /metrics`: what a server tells Prometheus, in the text form of OpenMetrics."""

from typing import Final, Protocol

from fastapi.responses import Response

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes, text_of

__all__ = ["Exposes", "metrics_routes"]

_TEXT: Final = text_of("application/openmetrics-text")


class Exposes(Protocol):
    """What has metrics."""

    def exposition(self) -> tuple[bytes, str]:
        """The text, and its content type."""


def metrics_routes(metrics: Exposes | None) -> Routes:
    """The one route; without metrics it says how to have them."""
    routes = Routes(tags=["metrics"])

    @routes.get("/metrics", response_class=Response, responses=_TEXT)
    async def read_metrics() -> Response:
        """Counters, gauges and histograms of this server for Prometheus, in the text form of OpenMetrics."""
        if metrics is None:
            text = "this server has no metrics: install the extra, pip install 'batonpass[metrics]', and start it again"
            raise ApiError(501, "no_metrics", text)
        text_of, content_type = metrics.exposition()
        return Response(text_of, headers={"content-type": content_type})

    return routes
