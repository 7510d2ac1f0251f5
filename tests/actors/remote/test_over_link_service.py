"""Distribution over a link that is restarted under it: both are children of one supervisor, and both heal."""

from __future__ import annotations

from pathlib import Path

import trio

from batonpass.actors import Ref, ServiceSpec, Strategy, SupervisorSpec, System
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.remote import Distribution, NodeDown
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import PublicIdentity
from tests.actors.servers import Recorder, Watcher

NAMES = ("alpha", "beta")


class Directory:
    def __init__(self, keys: Path) -> None:
        self.identities = {name: KeyStore(keys / name).load_or_create() for name in NAMES}
        self.links: dict[str, LinkService] = {}

    async def keys_of(self, name: str) -> PublicIdentity | None:
        return self.identities[name].public

    async def address_of(self, name: str) -> Address | None:
        return self.links[name].address


async def start(system: System, directory: Directory) -> None:
    def make(port: int) -> LinkEndpoint:
        return LinkEndpoint(system.name, directory.identities[system.name], directory, port=port)

    link = directory.links[system.name] = LinkService(make)
    distribution = Distribution(system, link, directory)
    children = (ServiceSpec("link", link.serve, name="link"), ServiceSpec("distribution", distribution.serve))
    await system.start_child(SupervisorSpec("network", children, strategy=Strategy.REST_FOR_ONE))


async def recorded(system: System) -> list[object]:
    """What the recorder on beta has; as soon as it can be reached."""
    with trio.fail_after(90):
        while True:
            try:
                seen: list[object] = await system.remote("beta").named("recorder").call("all")
            except NodeDown:
                await trio.sleep(0.01)
            else:
                return seen


async def hear(ref: Ref, told: trio.Event) -> None:
    assert await ref.exited() == "noconnection"
    told.set()


async def test_when_the_link_is_killed_everybody_is_told_and_the_connection_comes_back(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    async with trio.open_nursery() as nursery, System.open("alpha") as alpha, System.open("beta") as beta:
        await start(alpha, directory)
        await start(beta, directory)
        await beta.start(Recorder, name="recorder")
        assert isinstance(beta.distribution, Distribution)
        beta.distribution.publish("recorder")
        recorder = alpha.remote("beta").named("recorder")
        recorder.cast(1)
        assert await recorder.call("all") == [("cast", 1)]
        ref = await recorder.lookup()
        assert ref is not None
        for killed, told in ((alpha, 1), (beta, 2)):
            watcher: Ref = await alpha.start(Watcher)
            watcher.cast(ref)
            told_once = trio.Event()
            nursery.start_soon(hear, ref, told_once)
            assert await recorded(alpha)  # so the monitor has arrived, too
            link = killed.whereis("link")
            assert link is not None
            link.kill()
            with trio.fail_after(90):
                await told_once.wait()
            assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
            assert await recorded(alpha)
            recorder.cast(told + 1)
        # The node has lived on all the time: the ref means the same actor.
        assert await ref.call("all") == [("cast", 1), ("cast", 2), ("cast", 3)]
