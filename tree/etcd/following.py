"""Following etcd: the mirror is read once, and kept up by a watch that is begun again whenever it breaks."""

import logging
from typing import Final

import trio

from batonpass.tree.etcd.client import (
    AnswerTooBig,
    EtcdClient,
    EtcdForbids,
    FateUnknown,
    NotSent,
    RefusedByEtcd,
    RevisionCompacted,
)
from batonpass.tree.etcd.keys import EtcdKeys
from batonpass.tree.etcd.mirror import Loading, Mirror
from batonpass.tree.etcd.wire import EtcdHeader, KeyValue, MalformedAnswer, Watched

__all__ = ["EtcdReplaced", "Follower"]

log = logging.getLogger("batonpass.tree.etcd")

_PAGE_KEYS: Final = 2000
_AGAIN_S: Final = 0.05
# A change that etcd has told one connection of must come through the watch within this time. Else the watch is begun
# again elsewhere, since a connection can be dead without breaking.
WATCH_PATIENCE_S: Final = 1.0


class EtcdReplaced(Exception):
    """etcd is another cluster than before, or went back in time; going on could break a promise."""


class Follower:
    """Keeps a mirror up to date; others wait here for it to be."""

    def __init__(self, keys: EtcdKeys, mirror: Mirror) -> None:
        self._keys: Final = keys
        self._mirror: Final = mirror
        self._watch_from = 0
        self._cluster_id = 0
        self._scope = trio.CancelScope()
        self._advanced = trio.Event()
        # Whether the mirror has been read at all.
        self.loaded: Final = trio.Event()

    async def follow(self, client: EtcdClient) -> None:
        """Until cancelled; raises `Damaged`, `EtcdReplaced`, `RefusedByEtcd`."""
        while True:
            try:
                if not self._watch_from:
                    await self._load(client)
                await self._watch(client)
            except RevisionCompacted as error:
                log.warning("%s; reading everything again", error)
                self._watch_from = 0
            except (NotSent, FateUnknown) as error:
                self.bear(error)
                log.info("not following: %s", error)
            except MalformedAnswer as error:
                log.warning("the watch at %s is no watch of etcd's: %s", client.endpoint, error)
                client.avoid(client.endpoint)
            await trio.sleep(_AGAIN_S)

    async def _load(self, client: EtcdClient) -> None:
        """Read everything, as it was at one revision."""
        loading = Loading(self._keys)
        start, revision, limit = self._keys.prefix, 0, _PAGE_KEYS
        while True:
            try:
                page = await client.range(start, self._keys.end, revision=revision, limit=limit)
            except AnswerTooBig:
                limit = max(1, limit // 4)
                continue
            self.saw(page.header)
            revision = revision or page.header.revision
            loading.add_untrusted(page.found)
            if not page.more or not page.found:
                break
            start = page.found[-1].key + b"\0"
        self._mirror.become(loading)
        self._watch_from = revision + 1
        self.loaded.set()
        self._announce()

    async def _watch(self, client: EtcdClient) -> None:
        """Take what happens until the connection breaks or a caller has lost patience with it."""
        endpoint = client.endpoint
        with trio.CancelScope() as self._scope:
            async with client.watch(self._keys.prefix, self._keys.end, self._watch_from) as messages:
                whole = _WholeRevisions()
                async for message in messages:
                    if message.cancelled:
                        if message.compacted:
                            raise RevisionCompacted(f"revision {self._watch_from} is older than {message.compacted}")
                        log.info("etcd ended the watch: %s", message.reason or "no reason given")
                        return
                    self.saw(message.header)
                    for revision, events in whole.receive(message):
                        self._mirror.take_untrusted(events, revision)
                        self._watch_from = revision + 1
                        self._announce()
        if self._scope.cancelled_caught:
            log.warning("the watch at %s was behind", endpoint)
            client.avoid(endpoint)

    def bear(self, error: NotSent | FateUnknown) -> None:
        """Raise `RefusedByEtcd` if it is of no use to try again.

        What etcd forbids before anything was read is a mistake in the configuration. Later it may be mended while
        homeservers run: people change passwords and roles.
        """
        if isinstance(error, EtcdForbids) and not self.loaded.is_set():
            raise RefusedByEtcd(str(error)) from error

    def saw(self, header: EtcdHeader) -> None:
        """An answer came from this cluster; raises `EtcdReplaced` if it is another one than before."""
        if not header.cluster_id:
            return  # left out: some messages of a watch tell less than answers do
        if self._cluster_id not in (0, header.cluster_id):
            raise EtcdReplaced(
                f"an endpoint belongs to the etcd cluster {header.cluster_id:x}, the others, or the same one before, "
                f"to {self._cluster_id:x}: correct the endpoints, or restart to accept a cluster that was replaced"
            )
        self._cluster_id = header.cluster_id

    def accepted(self) -> None:
        """The mirror took a change that did not come through the watch."""
        self._announce()

    async def until(self, guard_revision: int) -> None:
        """Wait until the mirror has this revision of the guard."""
        await self.loaded.wait()
        while self._mirror.guard_revision < guard_revision:
            with trio.move_on_after(WATCH_PATIENCE_S) as patience:
                while self._mirror.guard_revision < guard_revision:
                    await self._advanced.wait()
            if patience.cancelled_caught:
                self._scope.cancel()

    async def advanced(self) -> None:
        """Wait until the mirror has advanced."""
        await self._advanced.wait()

    def _announce(self) -> None:
        self._advanced.set()
        self._advanced = trio.Event()


class _WholeRevisions:
    """Puts events together again that etcd sent in fragments: each revision once, complete."""

    def __init__(self) -> None:
        self._revision = 0
        self._events: list[KeyValue] = []

    def receive(self, message: Watched) -> list[tuple[int, list[KeyValue]]]:
        """The revisions that this message completes, in order."""
        complete: list[tuple[int, list[KeyValue]]] = []
        for event in message.events:
            if event.mod_revision != self._revision:
                complete += self._finish()
                self._revision = event.mod_revision
            self._events.append(event)
        if not message.fragment:
            complete += self._finish()
        return complete

    def _finish(self) -> list[tuple[int, list[KeyValue]]]:
        events, self._events = self._events, []
        return [(self._revision, events)] if events else []
