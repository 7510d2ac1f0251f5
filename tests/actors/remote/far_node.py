"""A node in a process of its own: `python -m tests.actors.remote.far_node NAME KEYS OTHER OTHER_KEYS`.

It publishes a recorder and something that never answers, prints the address of its link, and runs until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from batonpass.actors import ActorSpec, ServiceSpec, System
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.remote import Distribution, DistributionSettings
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import Identity, PublicIdentity
from tests.actors.servers import Recorder, Waiting

TICK_S = 0.3
UNREACHABLE_AFTER_S = 0.7


class Keys:
    """Two nodes that know each other."""

    def __init__(self, **keys: PublicIdentity) -> None:
        self._keys = keys

    async def keys_of(self, name: str) -> PublicIdentity | None:
        return self._keys.get(name)


async def serve(name: str, identity: Identity, keys: Keys) -> None:
    link = LinkEndpoint(name, identity, keys, unreachable_after_s=UNREACHABLE_AFTER_S)
    async with trio.open_nursery() as nursery:
        address = await nursery.start(link.serve)
        children = [
            ActorSpec("recorder", Recorder, name="recorder"),
            ActorSpec("waiting", Waiting, name="waiting"),
        ]
        async with System.open(name, children) as system:
            distribution = Distribution(system, link, settings=DistributionSettings(tick_s=TICK_S))
            distribution.publish("recorder")
            distribution.publish("waiting")
            await system.start_child(ServiceSpec("distribution", distribution.serve))
            sys.stdout.write(f"{address[0]} {address[1]}\n")
            sys.stdout.flush()
            await trio.sleep_forever()


def main() -> None:
    name, keys, other, other_keys = sys.argv[1:]
    identity = KeyStore(Path(keys)).load_or_create()
    others = KeyStore(Path(other_keys)).load_or_create().public
    trio.run(serve, name, identity, Keys(**{name: identity.public, other: others}))


if __name__ == "__main__":
    main()
