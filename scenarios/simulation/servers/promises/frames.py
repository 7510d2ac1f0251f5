"""What is watched of shows: no frame number has two contents, no node goes back, and nothing is sent too early.

Every head that a controller signs is seen, and every state that an engine shows, on whichever server.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.sync.followers.frames import FrameHead, HeadFlag
from batonpass.simserver.sync.shows.host import wire_epoch

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["FrameWatch", "ShowFrames"]

_SILENT_S: Final = 0.5
"""For how long at most a node shows nothing new when all is well; its engine may be late (`shows`)."""
_BEHIND: Final = 20
"""By how many frames at most what a controller knows to be at a node is behind the newest when all is well."""


@dataclass(slots=True)
class _SeenShow:
    """What one engine has shown."""

    frame: int = -1
    at_s: float = 0.0
    epoch: int = -1


@dataclass(slots=True)
class _OneShow:
    contents: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    # The highest limit of which another server keeps a copy, or the own disk of one that is alone, by the wire's epoch.
    kept: dict[int, int] = field(default_factory=dict)
    shown: dict[str, _SeenShow] = field(default_factory=dict)


class FrameWatch:
    """The judge of all shows of a cluster.

    Args:
        violated: takes a kind and a sentence.
        newest: by which server, and under which fence, an entity was taken up last.
        came: under which fence it came there.
        now_s: virtual time.
    """

    def __init__(
        self,
        violated: Callable[[str, str], None],
        newest: Callable[[str], tuple[str, Fence]],
        came: Callable[[str], Fence],
        was_set_back: Callable[[str], bool],
        now_s: Callable[[], float],
    ) -> None:
        self._violated: Final = violated
        self._newest: Final = newest
        self._came: Final = came
        self._was_set_back: Final = was_set_back
        self._now_s: Final = now_s
        self._shows: Final[dict[str, _OneShow]] = {}
        self.sent = 0
        self.shown_frames = 0
        self.resent = 0

    def _show(self, entity: str) -> _OneShow:
        return self._shows.setdefault(entity, _OneShow())

    def kept(self, entity: str, fence: Fence, state: bytes) -> None:
        """A server keeps this copy, of another server's or of its own on the disk."""
        kept, epoch = self._show(entity).kept, wire_epoch(fence)
        kept[epoch] = max(kept.get(epoch, 0), EntitySnapshot.decode(state).world["limit"])

    def signs(self, server: str, entity: str, head: FrameHead, on_disk: tuple[Fence, int, bytes] | None) -> None:
        """A node signs a frame, to send it; this is the checkpoint that its server has on disk."""
        if self._was_set_back(entity):
            return
        newest, fence = self._newest(entity)
        if (newest, wire_epoch(fence)) != (server, head.epoch):
            self._violated(
                "fenced-off",
                f"{server} sends frame {head.frame} of {entity} in epoch {head.epoch}; {newest} has it under {fence}",
            )
        self._has_content(entity, head.frame, head.digest, f"what {server} sent in epoch {head.epoch}")
        if head.flags & HeadFlag.RESENT:
            self.resent += 1
            return
        self.sent += 1
        if on_disk is not None:
            # It counts where no other server is left.
            self.kept(entity, on_disk[0], on_disk[2])
        # What came with a hand-over may be what a failover begins with, until there is a copy of what it became.
        since, kept = wire_epoch(self._came(entity)), self._show(entity).kept
        limit = max((kept[epoch] for epoch in kept if since <= epoch <= head.epoch), default=0)
        if head.frame >= limit:
            self._violated(
                "before-copy",
                f"{server} sends frame {head.frame} of {entity} in epoch {head.epoch}, of which a copy is kept for"
                f" frames below {limit}",
            )

    def _has_content(self, entity: str, frame: int, digest: bytes, whose: str) -> None:
        known, first = self._show(entity).contents.setdefault(frame, (digest, whose))
        if known != digest:
            self._violated("two-contents", f"frame {frame} of {entity} is {first}, and {whose}")

    def engine_begins(self, server: str, entity: str) -> None:
        """An engine begins, with nothing in memory."""
        self._show(entity).shown[server] = _SeenShow(at_s=self._now_s())

    def given(self, server: str, entity: str, epoch: int) -> None:
        """An engine is given the data of a frame."""
        shown = self._show(entity).shown[server]
        if epoch < shown.epoch:
            self._violated("fenced-off", f"{server} is given a frame of epoch {epoch}, after one of {shown.epoch}")
        shown.epoch = max(shown.epoch, epoch)

    def shown(self, server: str, entity: str, frame: int, digest: bytes) -> None:
        """An engine shows a frame."""
        self.shown_frames += 1
        shown = self._show(entity).shown[server]
        before, shown.frame, shown.at_s = shown.frame, frame, self._now_s()
        if self._was_set_back(entity):
            return
        if frame <= before:
            self._violated("frame-went-back", f"{server} shows frame {frame} of {entity} after frame {before}")
        self._has_content(entity, frame, digest, f"what {server} shows")

    def silent_s(self, entity: str, server: str) -> float:
        """For how long an engine has shown nothing new."""
        shown = self._show(entity).shown.get(server)
        return float("inf") if shown is None or shown.frame < 0 else self._now_s() - shown.at_s


class ShowFrames:
    """Frames continue at every node of every show in the end, and its controller hears of that."""

    def __init__(self, cluster: "ServersCluster", entities: list[str]) -> None:
        self._cluster: Final = cluster
        self._entities: Final = entities

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log does nothing with shows but with other entities."""

    def unsettled(self) -> str:
        """Which node shows nothing new, in a sentence."""
        cluster = self._cluster
        for entity in self._entities:
            if cluster.left_out(entity):
                continue
            for name in cluster.servers_of(entity.partition(".")[0]):
                engine = cluster.shows.engines.get((name, entity))
                if name in cluster.gone or (engine is not None and engine.has_failed):
                    continue
                if (silent_s := cluster.watch.silent_s(entity, name)) > _SILENT_S:
                    return f"{name} has shown no frame of {entity} for {silent_s:.1f} s"
                if behind := self._unacknowledged(name, entity):
                    return behind
        return ""

    def _unacknowledged(self, controller: str, entity: str) -> str:
        """Whose frames the controller of a show has not heard of, in a sentence; empty at another server."""
        shows = self._cluster.servers[controller].node.shows
        for part in [] if shows is None else shows.inspect(drops=0):
            if part.entity != entity or not part.is_controller or part.newest is None:
                continue
            for node in part.nodes:
                engine = self._cluster.shows.engines.get((node.name, entity))
                takes_part = engine is not None and engine.is_running and node.name not in self._cluster.gone
                if takes_part and node.name != controller and (node.acknowledged or 0) < part.newest - _BEHIND:
                    what = f"that {node.name} has a frame of {entity} after {node.acknowledged}"
                    return f"{controller} has not heard {what}"
        return ""
