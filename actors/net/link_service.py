"""The link as a service that survives its own end: every time it is served, a new endpoint at the same address.

For peers it is as if this node had restarted: their sessions end (they are told, as far as that is possible) and new
ones begin, what they have not had acknowledged they send again. What this side had queued and not got acknowledged is
lost, and so are received messages that were not taken from the inbox. A sender over a link has to repeat anyway what
matters and stays unanswered.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import trio

from batonpass.actors.link import Address, Event
from batonpass.actors.net.endpoint import Backlog, LinkDown, LinkEndpoint
from batonpass.actors.net.inbox import LinkInbox
from batonpass.crypto.keys import Identity

__all__ = ["LinkService"]


class LinkService:
    """What a node has of its link, whichever endpoint serves at the moment.

    `make` makes an endpoint that listens on the port it is given, 0 meaning any: the first gets `port`, those after it
    the one that the first had, so that peers find this node where it was.
    """

    def __init__(self, make: Callable[[int], LinkEndpoint], port: int = 0) -> None:
        self._make: Final = make
        self._port = port
        self._address: Address | None = None
        self._endpoint: LinkEndpoint | None = None
        self._counted: Counter[str] = Counter()

    async def serve(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve a new endpoint until cancelled; started, with its address, when it listens. One at a time.

        Raises OSError when the address cannot be bound.
        """
        if self._endpoint is not None:
            self._counted.update(self._endpoint.stats)
            del self._counted["links"]
        self._endpoint = self._make(self._port)
        async with trio.open_nursery() as nursery:
            self._address = await nursery.start(self._endpoint.serve)
            self._port = self._address[1]
            task_status.started(self._address)

    def change_identity(self, identity: Identity) -> None:
        """`LinkEndpoint.change_identity`, of the present endpoint; `make` has to give later ones the same identity."""
        if self._endpoint is not None and self._endpoint.is_serving:
            self._endpoint.change_identity(identity)

    @property
    def address(self) -> Address:
        """Where it listens, also while it is being restarted. Raises RuntimeError before it has served."""
        if self._address is None:
            raise RuntimeError("the link has no address yet: serve it first")
        return self._address

    @property
    def inbox(self) -> LinkInbox:
        """What peers have sent to the present endpoint; it ends when that does."""
        return self._present.inbox

    @property
    def stats(self) -> dict[str, int]:
        """The counters of all endpoints together, and how many links the present one has; see `LinkEndpoint.stats`."""
        present = {} if self._endpoint is None else self._endpoint.stats
        return dict(self._counted + Counter(present)) | {"links": present.get("links", 0)}

    async def send(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        """`LinkEndpoint.send`; raises LinkDown also while the link is being restarted."""
        await self._serving(peer).send(peer, address, message, channel=channel)

    def post(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        """`LinkEndpoint.post`; raises LinkDown while the link is being restarted."""
        self._serving(peer).post(peer, address, message, channel=channel)

    def claim(self, channel: int) -> LinkInbox:
        """`LinkEndpoint.claim`, of the present endpoint: the inbox ends when that does; claim it again then."""
        return self._present.claim(channel)

    def listen(self, listener: Callable[[str, Event], object]) -> Callable[[], None]:
        """`LinkEndpoint.listen`, of the present endpoint."""
        return self._present.listen(listener)

    def backlog(self, peer: str) -> Backlog:
        """`LinkEndpoint.backlog`, of the present endpoint."""
        return self._present.backlog(peer)

    @property
    def name(self) -> str:
        """What peers look up."""
        return self._present.name

    @property
    def _present(self) -> LinkEndpoint:
        if self._endpoint is None:
            raise RuntimeError("the link has no endpoint yet: serve it first")
        return self._endpoint

    def _serving(self, peer: str) -> LinkEndpoint:
        endpoint = self._endpoint
        if endpoint is None or not endpoint.is_serving:
            raise LinkDown(peer, "this side's link is not running at the moment")
        return endpoint
