"""What a client asks its home instance, over the door of any homeserver: where an entity is, and to change who has it.

Each request is one of REST (docs/reference/rest.md), with its answer as it is there. Requests in the player's name need
no signature: the connection has proved who asks.
"""

import json
import secrets
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakSet

import anyio

from batonpass.client.home_link import HomeFailure, HomeLink, News
from batonpass.client.player_key import PlayerKey
from batonpass.client.records import (
    DeletedEntity,
    EntityRights,
    LeftEntity,
    MasterQuestion,
    OwnedEntity,
    RegisteredKeys,
    RegisteredServer,
    ReleasedEntity,
    ReportedLoads,
    TransferProgress,
    WhyNotRunning,
)

__all__ = ["HomeDirectory", "HomeFailure", "HomeNews", "News", "NewsLost"]

DOOR_FRESH_S: Final = 5.0
MAX_NEWS: Final = 1024
"""That wait for one reader."""


class NewsLost(Exception):
    """A reader of news took none for so long that some are lost: look how it stands, and read anew."""


class HomeNews:
    """What happens, from the moment on at which it was asked for; `async for` gives it.

    Raises NewsLost where its reader takes none while 1,024 wait.
    """

    def __init__(self) -> None:
        self._waiting: Final[deque[News]] = deque()
        self._has_some = anyio.Event()
        self._is_cut = False

    def __aiter__(self) -> "HomeNews":
        return self

    async def __anext__(self) -> News:
        while not self._waiting:
            if self._is_cut:
                raise NewsLost(f"{MAX_NEWS} news waited for this reader")
            await self._has_some.wait()
            self._has_some = anyio.Event()
        return self._waiting.popleft()

    def take(self, news: News) -> None:
        """There is news."""
        self._is_cut = self._is_cut or len(self._waiting) >= MAX_NEWS
        if not self._is_cut:
            self._waiting.append(news)
        self._has_some.set()


class HomeDirectory:
    """One player's way home; `run` has to run. Raises HomeFailure wherever it asks.

    Args:
        url: of any homeserver of the instance.
        key: who asks.
        invitation: by which the player is enrolled, if it is not known yet.
        context: which authorities are trusted for TLS.
    """

    def __init__(
        self, url: str, key: PlayerKey | None = None, invitation: str = "", context: ssl.SSLContext | None = None
    ) -> None:
        self._key: Final = key or PlayerKey()
        self.link: Final = HomeLink(url, self._key, invitation, context, self.told)
        # A reader that is not held any more is forgotten.
        self._readers: Final[WeakSet[HomeNews]] = WeakSet()
        self._doors: Final[dict[str, tuple[float, str]]] = {}

    async def run(self) -> None:
        """Keep a connection to one of the homeservers, until cancelled or turned away."""
        await self.link.run()

    @property
    def instances(self) -> Sequence[str]:
        """The instances whose homeservers are known: one, once it was connected."""
        return [self.link.instance] if self.link.instance else []

    # --- looking ------------------------------------------------------------------------------------------------------

    async def entity(self, name: str) -> EntityRights:
        """The record of an entity: `authority`, `owner`, `owner_rev` and what else docs/reference/rest.md names."""
        record: EntityRights = await self.link.ask("GET", f"/v1/entities/{name}")
        return record

    async def why(self, entity: str) -> WhyNotRunning:
        """Whether an entity runs, and if not, why, and what to do."""
        found: WhyNotRunning = await self.link.ask("GET", f"/v1/entities/{entity}/why")
        return found

    async def servers(self) -> list[RegisteredServer]:
        """All servers of the instance, with their leases."""
        rows: list[RegisteredServer] = await self.link.ask("GET", "/v1/servers")
        return rows

    async def server(self, name: str) -> RegisteredServer:
        """One server, of any instance."""
        row: RegisteredServer = await self.link.ask("GET", f"/v1/servers/{name}")
        return row

    async def loads(self) -> ReportedLoads:
        """How much the simulation servers have to do."""
        found: ReportedLoads = await self.link.ask("GET", "/v1/servers/load")
        return found

    async def keys_of(self, player: str) -> RegisteredKeys:
        """The public keys of a player, of any instance."""
        found: RegisteredKeys = await self.link.ask("GET", f"/v1/players/{player}/keys")
        return found

    async def simservers(self, instance: str = "") -> list[str]:
        """The names of the simulation servers of the instance."""
        if instance not in ("", *self.instances):
            raise HomeFailure("unknown_instance", f"no homeserver of {instance} is known")
        return [row["name"] for row in await self.servers() if row["role"] == "simserver"]

    async def door_of(self, server: str) -> str:
        """Where clients enter a simulation server; empty if that is not known now."""
        known = self._doors.get(server)
        if known is not None and anyio.current_time() < known[0]:
            return known[1]
        url = str((await self.link.ask("GET", f"/v1/servers/{server}/door")).get("url", ""))
        self._doors[server] = anyio.current_time() + DOOR_FRESH_S, url
        return url

    def hint(self, server: str, url: str) -> None:
        """Another server says where this one's door is."""
        self._doors[server] = anyio.current_time() + DOOR_FRESH_S, url

    def doubt(self, server: str) -> None:
        """A door did not open: ask anew where it is."""
        self._doors.pop(server, None)

    async def transfers(self, entity: str, limit: int = 100) -> list[TransferProgress]:
        """The transfers of an entity, those that moved it newest first."""
        found: list[TransferProgress] = await self.link.ask("GET", f"/v1/entities/{entity}/transfers?limit={limit}")
        return found

    async def transfer(self, transfer_id: str) -> TransferProgress:
        """How far a transfer is."""
        found: TransferProgress = await self.link.ask("GET", f"/v1/transfers/{transfer_id}")
        return found

    async def questions(self) -> list[MasterQuestion]:
        """What this player is asked, as the master of entities."""
        found: list[MasterQuestion] = await self.link.ask("GET", f"/v1/players/{self._key.name}/asks")
        return found

    async def owned(self) -> list[OwnedEntity]:
        """What this player owns."""
        path = f"/v1/players/{self._key.name}/entities?limit=1000"
        found: list[OwnedEntity] = await self.link.ask("GET", path)
        return found

    # --- changing -----------------------------------------------------------------------------------------------------

    async def spawn(self, entity: str, kind: str, server: str = "", **more: Any) -> EntityRights:
        """Create an entity, on `server` or on the one that has the least to do: its record.

        Said again with the same `server`, it finds the entity that there is.

        Args:
            more: `params` for the world, `rule`, and what else docs/reference/rest.md names.
        """
        if not server:
            server = await self._coolest()
        body = {"id": entity, "kind": kind, "spawner": self._key.name, "server": server, **more}
        record: EntityRights = await self.link.ask("POST", "/v1/entities", body)
        return record

    async def _coolest(self) -> str:
        alive = [row["name"] for row in await self.servers() if row["lease"] and row["lease"]["phase"] == "alive"]
        # Those that have told this homeserver nothing yet have as little to do as any.
        loads = {row["server"]: row for row in (await self.loads())["servers"]}
        usable = [name for name in alive if name not in loads or not loads[name]["draining"]]
        if not usable:
            raise HomeFailure("unknown_target", "there is no simulation server that takes entities now")
        busy = {name: loads[name]["tick_fraction"] if name in loads else 0.0 for name in usable}
        return min(usable, key=lambda name: (busy[name], secrets.randbits(16)))

    async def own(
        self, entity: str, *, want: str = "by_rule", owner_rev: int | None = None, transfer_id: str = "", **more: Any
    ) -> TransferProgress:
        """Ask to own an entity where it is: the transfer, which is done at once unless its master is asked."""
        body = {"want": want, "owner_rev": owner_rev, **self._as_requester(transfer_id), **more}
        view: TransferProgress = await self.link.ask("POST", f"/v1/entities/{entity}/ownership", body)
        return view

    async def move(self, entity: str, to: str, *, transfer_id: str = "", **more: Any) -> TransferProgress:
        """Have an entity moved to a simulation server, and own it there: the transfer, as far as it is."""
        body = {"to": to, **self._as_requester(transfer_id), **more}
        view: TransferProgress = await self.link.ask("POST", f"/v1/entities/{entity}/transfers", body)
        return view

    async def cancel(self, transfer_id: str) -> TransferProgress:
        """Take a request back that is not decided yet."""
        done: TransferProgress = await self._done("POST", f"/v1/transfers/{transfer_id}/cancel")
        return done

    async def answer(self, question: Mapping[str, Any], *, allow: bool) -> TransferProgress:
        """Answer a question as the master: the transfer that it is about."""
        target = f"/v1/transfers/{question['transfer_id']}/answer"
        done: TransferProgress = await self._done("POST", target, allow=allow, master_rev=question["master_rev"])
        return done

    async def divest(self, entity: str, owner_rev: int, *, if_wanted: bool = False) -> EntityRights:
        """Give an entity up; `owner_rev` is that of its ownership as the player saw it."""
        seen = {"owner_rev": owner_rev}
        done: EntityRights = await self._done("POST", f"/v1/entities/{entity}/divest", seen, if_wanted=if_wanted)
        return done

    async def hand_back(self, entity: str, owner_rev: int) -> EntityRights:
        """Give an entity back to its former owner."""
        done: EntityRights = await self._done("POST", f"/v1/entities/{entity}/hand-back", {"owner_rev": owner_rev})
        return done

    async def leave(self, entity: str, owner_rev: int) -> LeftEntity:
        """Go away from an entity, which gets another owner, waits, or ends, as its policy says."""
        done: LeftEntity = await self._done("POST", f"/v1/entities/{entity}/leave", owner_rev=owner_rev)
        return done

    async def delete(self, entity: str, master_rev: int) -> DeletedEntity:
        """Delete an entity for good."""
        done: DeletedEntity = await self._done("POST", f"/v1/entities/{entity}/delete", master_rev=master_rev)
        return done

    async def lock(self, entity: str, name: str, locks_rev: int) -> EntityRights:
        """Keep others from becoming owner."""
        done: EntityRights = await self._done("POST", f"/v1/entities/{entity}/locks/{name}/lock", locks_rev=locks_rev)
        return done

    async def unlock(self, entity: str, name: str, locks_rev: int) -> EntityRights:
        """Let others again."""
        done: EntityRights = await self._done("POST", f"/v1/entities/{entity}/locks/{name}/unlock", locks_rev=locks_rev)
        return done

    async def release(
        self, entity: str, master_rev: int, release_rev: int, *, discard_inputs: bool = False
    ) -> ReleasedEntity:
        """Have an entity simulated again that is quarantined or suspended."""
        target, stated = f"/v1/entities/{entity}/release", {"release_rev": release_rev}
        done: ReleasedEntity = await self._done(
            "POST", target, stated, master_rev=master_rev, discard_inputs=discard_inputs
        )
        return done

    async def attach(self, entity: str, parent: str, parent_rev: int) -> EntityRights:
        """Give an entity a parent, with which it moves, or none (empty)."""
        done: EntityRights = await self._done(
            "PUT", f"/v1/entities/{entity}/parent", parent=parent, parent_rev=parent_rev
        )
        return done

    async def change_rights(self, entity: str, seen: Mapping[str, Any], **changes: Any) -> EntityRights:
        """Change rule, owner, master or policies; `seen` is the record as the master saw it."""
        names = ["rule_rev", "owner_rev", "master_rev"]
        if changes.keys() - {"rule", "owner", "master"}:
            names.append("policies_rev")
        done: EntityRights = await self._done(
            "PATCH", f"/v1/entities/{entity}", {name: seen[name] for name in names}, **changes
        )
        return done

    def _as_requester(self, transfer_id: str) -> dict[str, Any]:
        return {"requester": self._key.name, "transfer_id": transfer_id or secrets.token_hex(12), "proof": ""}

    async def _done(self, method: str, target: str, seen: Mapping[str, int] | None = None, **stated: Any) -> Any:
        """Ask for what takes a proof elsewhere; `seen` are the revisions that stand in that and not in the body."""
        body = {"by": self._key.name, "proof": json.dumps(seen) if seen else "", **stated}
        return await self.link.ask(method, target, body)

    # --- news ---------------------------------------------------------------------------------------------------------

    def news(self) -> HomeNews:
        """What happens to the player's entities, to those that are followed (`link.follow`), and what it is asked."""
        reader = HomeNews()
        self._readers.add(reader)
        return reader

    def told(self, news: News) -> None:
        """Something happens: to be read by `news`."""
        for reader in list(self._readers):
            reader.take(news)
