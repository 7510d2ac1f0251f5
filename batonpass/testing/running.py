"""A cluster of real processes that runs beside a test: started, killed, paused and asked by plain calls.

It lives in a thread of its own, so the test may be a plain function, or run under trio or asyncio.
"""

import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from batonpass.client.blocking import BlockingPlayerClient, connect_blocking
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.events import ClusterEvent, Kept
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.players.rest_client import SILENT, ApiFailure, RestClient, create_entity

__all__ = ["RunningCluster", "running_cluster"]

T = TypeVar("T")
_LOOK_S: Final = 0.05
_log: Final = logging.getLogger(__name__)


class RunningCluster:
    """Made by `running_cluster`; may be called from any thread.

    Each method raises `AssertionError` where what it waits for does not come within `patience_s`.
    """

    def __init__(self, portal: BlockingPortal, cluster: LocalCluster, rest: RestClient, patience_s: float) -> None:
        self._portal: Final = portal
        self._cluster: Final = cluster
        self._rest: Final = rest
        self._patience_s: Final = patience_s
        self._instance: Final = next(iter(cluster.homeserver_urls()))
        self._players: Final[dict[str, Identity]] = {}
        self._paused: Final[set[str]] = set()

    @property
    def url(self) -> str:
        """Of a homeserver of the first instance: what `batonpass.connect` begins with."""
        return self._cluster.homeserver_urls()[self._instance][0]

    @property
    def servers(self) -> list[str]:
        """The names of all servers, as `alpha.h1` and `alpha.s1`."""
        return [server.name for server in self._cluster.servers]

    def url_of(self, server: str) -> str:
        """The REST address of a server."""
        return self._cluster.server(server).rest_url

    def client_token(self, instance: str = "") -> str:
        """The token of trusted services."""
        return self._cluster.client_token(instance or self._instance)

    # --- what happens to servers ---------------------------------------------------------------------------------

    def kill(self, server: str, *, at_once: bool = False) -> None:
        """End a server as `kill -9` does, once other servers have copies of what lives there.

        Whatever came a moment ago and is on that server alone would wait for it to return. `at_once` is for tests of
        just that.
        """
        if not at_once:
            self._copied(server)
        self._portal.call(self._cluster.kill, server)

    def restart(self, server: str) -> None:
        """Start a server again that was killed; returns when it is ready."""
        self._portal.call(self._cluster.restart, server)

    def pause(self, server: str, *, at_once: bool = False) -> None:
        """Stop a server as it stands, with its connections open: a machine that hangs. It waits first, as `kill`."""
        if not at_once:
            self._copied(server)
        self._paused.add(server)
        self._portal.call(self._cluster.pause, server)

    def resume(self, server: str) -> None:
        """Let it continue."""
        self._paused.discard(server)
        self._portal.call(self._cluster.resume, server)

    def _copied(self, server: str) -> None:
        """Wait until another server has copies of what lives on this one, if both are simulation servers that run."""
        instance = self._cluster.server(server).instance
        running = {name for name in self._cluster.simserver_urls() if self._runs(name, instance)}
        if server in running and len(running) > 1:
            url = f"{self.url_of(server)}/v1/local/stats"
            self.until(lambda: self._portal.call(self._rest.get, url)["without_copy"], lambda count: count == 0)

    def _runs(self, server: str, instance: str) -> bool:
        found = self._cluster.server(server)
        return found.instance == instance and found.pid is not None and server not in self._paused

    # --- players and entities ------------------------------------------------------------------------------------

    def player(self, name: str) -> Identity:
        """The keys of a player, which are registered with its instance."""
        if name not in self._players:
            keys = Identity.generate()
            self.rest("PUT", f"/v1/players/{name}/keys", {"keys": keys.public.to_jwks()["keys"]})
            self._players[name] = keys
        return self._players[name]

    def invite(self, players: str, kinds: Sequence[str] = (), *, uses: int = 64, hours: float = 24.0) -> str:
        """An invitation for players of these names (`alpha.guest-*`), who may then have entities of these kinds."""
        body = {"players": players, "kinds": list(kinds), "uses": uses, "expires_in_s": round(hours * 3600)}
        return str(self.rest("POST", "/v1/invitations", body)["invitation"])

    def connect(self, player: str = "") -> AbstractContextManager[BlockingPlayerClient]:
        """A client of this player, or an observer; as `batonpass.connect_blocking`."""
        return connect_blocking(self.url, player=player, identity=self.player(player) if player else None)

    def spawn(self, entity: str, kind: str, owner: str, server: str = "", **params: Any) -> Mapping[str, Any]:
        """Create an entity on a server, the first one if it is not said, once that has a lease: its record."""
        self.player(owner)
        server = server or next(name for name in self.servers if name.partition(".")[2].startswith("s"))
        body = {"id": entity, "kind": kind, "spawner": owner, "server": server, "params": params}
        creating = partial(create_entity, self._rest, self._instance, body, self._patience_s)
        record: Mapping[str, Any] = self._portal.call(creating)
        return record

    def move(self, entity: str, to: str) -> Mapping[str, Any]:
        """Hand an entity over to a server: the transfer, which is done. Ordered anew where a server was silent."""
        wish = {"transfer_id": secrets.token_hex(12), "to": to}

        def ordered() -> Any:
            found = self.rest("POST", f"/v1/entities/{entity}/transfers", dict(wish))
            if found["reason"] in SILENT:
                wish["transfer_id"] = secrets.token_hex(12)
                return found | {"phase": "to be ordered anew"}
            return found

        transfer: Mapping[str, Any] = self.until(ordered, lambda found: found["phase"] in {"done", "refused"})
        if transfer["phase"] != "done":
            raise AssertionError(f"{entity} was not handed over to {to}: {transfer['reason']}")
        return transfer

    def authority(self, entity: str) -> str:
        """The server that simulates an entity; empty while there is none."""
        return str(self.rest("GET", f"/v1/entities/{entity}")["authority"])

    def state(self, entity: str) -> Any:
        """What an observer is shown of an entity now."""
        with self.connect() as client:
            watch = client.watch(entity=entity)
            change = watch.next(self._patience_s)
            if change is None:
                raise AssertionError(f"{entity} was not shown within {self._patience_s:g} s")
            return change.entity.state

    def rest(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the first instance, as a trusted service. Raises ApiFailure: it is refused."""
        return self._portal.call(partial(self._rest.call, self._instance, method, path, body))

    def until(self, look: Callable[[], T], fits: Callable[[T], object] = bool) -> T:
        """Look until what is seen is like that, and give it; what is refused meanwhile is asked again."""
        return self._portal.call(self._until, look, fits)

    async def _until(self, look: Callable[[], T], fits: Callable[[T], object]) -> T:
        last: object = "nothing was seen"
        with anyio.move_on_after(self._patience_s):
            while True:
                try:
                    seen = await anyio.to_thread.run_sync(look)
                except ApiFailure as failure:
                    last = failure
                else:
                    if fits(seen):
                        return seen
                    last = seen
                await anyio.sleep(_LOOK_S)
        raise AssertionError(f"not within {self._patience_s:g} s; last: {last!r}")


@contextmanager
def running_cluster(
    world: str | None = None,
    *,
    instances: Mapping[str, int] | None = None,
    simservers: int = 2,
    lease_term_s: float = 6.0,
    directory: Path | None = None,
    patience_s: float = 120.0,
    **more: Any,
) -> Iterator[RunningCluster]:
    """A cluster on loopback, for as long as the block lasts.

    Args:
        world: as `package.module:ClassName`, found as by the test itself; balls if it is not said.
        instances: homeservers per instance; one of `alpha` if it is not said.
        simservers: of each instance.
        lease_term_s: after so long a simulation server that was killed is replaced.
        directory: where it lives, to be looked at afterwards; one that is named if something fails, if it is not said.
        patience_s: how long anything is waited for.
        more: what else `batonpass.scenarios.cluster.topology.ClusterSpec` has.
    """

    def tell(event: ClusterEvent) -> None:
        if isinstance(event, Kept) and directory is None:
            _log.warning("%s", event.sentence)

    spec = ClusterSpec(
        instances=instances or {"alpha": 1},
        simservers=simservers,
        world=world,
        lease_term_s=lease_term_s,
        directory=directory,
        **{"log_level": "WARNING", **more},
    )
    # Servers find the world where the test does.
    paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    with start_blocking_portal("trio") as portal:
        starting = LocalCluster.start(spec, progress=tell, grace_s=patience_s, environment=paths)
        with portal.wrap_async_context_manager(starting) as cluster:
            rest = portal.call(cluster.rest_client, patience_s)
            try:
                yield RunningCluster(portal, cluster, rest, patience_s)
            finally:
                portal.call(rest.aclose)
