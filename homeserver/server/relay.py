"""A relay between instances that do not know each other's addresses: it passes messages on and can read none of them.

It extends the hop trace of the parcels that it carries, both ways, so that H is counted where it happens.
"""

import logging
import math
from dataclasses import replace
from typing import Any, Final

import trio
from fastapi import FastAPI

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.app import ERROR_RESPONSES, ApiError, prepare_app
from batonpass.actors.http.callers import check_callers
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.actors.http.web_service import serve_app
from batonpass.actors.supervision.signals import run_until_signalled
from batonpass.authority.node.tls_files import believe_authorities, context_of
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import BadTrace
from batonpass.authority.wire.transfer import Parcel
from batonpass.homeserver.config import PeerConfig, RelayConfig
from batonpass.homeserver.names.federation import REQUEST_TIMEOUT_S
from batonpass.homeserver.rest.callers import RELAY_CALLERS
from batonpass.homeserver.rest.errors import install_errors, nobody_waits
from batonpass.homeserver.rest.models import SEALED, FederationBody, Health, WaitMs

__all__ = ["Relay", "main", "make_relay_app", "run"]

_log = logging.getLogger("batonpass.homeserver.server.relay")
ROLE: Final = "relay"


class Relay:
    """Passes federation messages on, towards the instance that they name."""

    def __init__(self, config: RelayConfig, client: HttpClient, clock: Clock) -> None:
        self._name = config.name
        self._peers = {peer.instance: peer for peer in config.peers}
        self._client = client
        self._clock = clock
        self._urls: dict[str, str] = {}

    async def forward(self, body: FederationBody, wait_s: float = math.inf) -> dict[str, Any]:
        """Send a message one hop further and bring its answer one hop back, as long as its sender waits for that.

        Raises:
            ApiError: there is no way to continue, no member there answered, or the sender waits no more.
            MessageError: the parcel is malformed.
        """
        until_s = trio.current_time() + wait_s
        peer = self._peers.get(body.to_instance)
        if peer is None:
            raise ApiError(404, "no_route", f"{self._name} knows no way to {body.to_instance}", body.to_instance)
        onward = body.model_dump(exclude_none=True)
        if body.parcel is not None:
            onward["parcel"] = self._crossed(Parcel.from_data_untrusted(body.parcel)).to_data()
        answer = await self._post(peer, body.to, onward, until_s)
        if "parcel" in answer:
            answer["parcel"] = self._crossed(Parcel.from_data_untrusted(answer["parcel"])).to_data()
        return answer

    def _crossed(self, parcel: Parcel) -> Parcel:
        """The parcel with this relay in its trace: it arrived here, and leaves again."""
        if not parcel.on_path:
            return parcel
        now_ns = self._clock.monotonic_ns()
        try:
            trace = parcel.trace.arrive(self._name, now_ns, len(parcel.sealed)).leave(self._name, parcel.kind, now_ns)
        except BadTrace as error:
            raise ApiError(400, "bad_trace", str(error)) from error
        return replace(parcel, trace=trace)

    async def _post(self, peer: PeerConfig, to: str | None, body: dict[str, Any], until_s: float) -> dict[str, Any]:
        problem: ApiError | None = None
        for url in await self._order(peer, to):
            wait_s = min(REQUEST_TIMEOUT_S, until_s - trio.current_time())
            if wait_s <= 0:
                raise problem or nobody_waits()
            headers = {WAIT_HEADER: str(round(wait_s * 1000))}
            try:
                answered = await self._client.request(
                    "POST", f"{url}/v1/federation", json=body, headers=headers, timeout_s=wait_s
                )
                answer = answered.json()
            except (HttpFailed, ValueError) as error:
                text = f"{self._name} got no answer from {url}: {error}"
                problem = ApiError(502, "peer_unreachable", text, url)
                self._forget(to)
                continue
            if answered.status == 200 and isinstance(answer, dict):
                return answer
            code, message = "peer_error", f"{url} answered HTTP {answered.status}"
            if isinstance(answer, dict):
                code, message = str(answer.get("code", code)), str(answer.get("message", message))
            if answered.status == 421:
                self._forget(to)
            problem = ApiError(502 if answered.status >= 500 else answered.status, code, message)
        raise problem or ApiError(502, "peer_unreachable", f"no address of {peer.instance} is configured")

    def _forget(self, to: str | None) -> None:
        """A member is not there, or another server is: where it is now is asked for again."""
        if to is not None:
            self._urls.pop(to, None)

    async def _order(self, peer: PeerConfig, to: str | None) -> tuple[str, ...]:
        """The addresses to try: the named member's alone, when this relay is the last one; all of them otherwise."""
        if to is None or peer.hops > 1:
            return peer.urls
        if to not in self._urls:
            await self._learn(peer)
        return (self._urls[to],) if to in self._urls else peer.urls

    async def _learn(self, peer: PeerConfig) -> None:
        for url in peer.urls:
            try:
                asked = self._client.request("GET", f"{url}/healthz", timeout_s=REQUEST_TIMEOUT_S)
                health = (await asked).json()
                self._urls[str(health["name"])] = url
            except (HttpFailed, ValueError, KeyError, TypeError):
                continue


def make_relay_app(relay: Relay, name: str) -> FastAPI:
    """The relay's HTTP face."""
    app = FastAPI(title="batonpass relay", version="1", docs_url=None, redoc_url=None, responses=ERROR_RESPONSES)
    prepare_app(app, {"/v1/federation": SEALED})
    install_errors(app)

    @app.get("/healthz")
    async def healthz() -> Health:
        """A relay is ready when it answers."""
        return Health(status="ok", name=name, role=ROLE)

    @app.post("/v1/federation")
    async def federation(body: FederationBody, wait_ms: WaitMs = None) -> dict[str, Any]:
        """Pass a message on."""
        return await relay.forward(body, math.inf if wait_ms is None else wait_ms / 1000)

    check_callers(app, RELAY_CALLERS)
    return app


async def run(config: RelayConfig) -> None:
    """Run one relay until cancelled."""
    tls = context_of(config.tls)
    believe_authorities(config.tls)
    async with HttpClient() as client:
        relay = Relay(config, client, Clock())
        app = make_relay_app(relay, config.name)
        await serve_app(app, config.rest.host, config.rest.port, hosts=config.allowed_hosts, tls=tls)


def main(config: RelayConfig) -> int:
    """Run one relay until SIGINT or SIGTERM; the exit status."""
    run_until_signalled(config.name, lambda: run(config))
    return 0
