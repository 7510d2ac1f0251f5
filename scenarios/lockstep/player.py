"""One client of `baton run lockstep`: it joins, posts what is planned, computes, and keeps what it has seen."""

from random import Random
from typing import Final

import httpx
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.actors.http.client import HttpClient
from batonpass.scenarios.lockstep.game import TALLIED, WatchedGame
from batonpass.scenarios.lockstep.judge import LockstepClient
from batonpass.scenarios.lockstep.plan import LockstepPlan, PlannedClient
from batonpass.scenarios.lockstep.way import LossyWay
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.lockstep.schedule import TOLERANCE
from batonpass.simserver.sync.play.session import StreamLost, follow_stream

__all__ = ["STREAM", "LockstepPlayer"]

STREAM: Final = "lockstep"

# Often enough for a run of seconds; the stream drops what is before.
OFFER_EVERY_TICKS: Final = 200
FRAME_S: Final = 0.02
# The speed of a machine is not judged. A client bears a takeover that takes minutes, and the run gives up on clients
# that come no farther.
PATIENCE_MS: Final = 3_600_000
# All clients are in one process: an answer that is there may wait until the others have computed what they are behind.
ANSWER_S: Final = 60.0


class LockstepPlayer:
    """A client with its game, its follower and its own way to the doors."""

    def __init__(
        self, plan: LockstepPlan, client: PlannedClient, doors: list[str], net: httpx.AsyncBaseTransport
    ) -> None:
        dice = Random(f"{plan.seed} way of {client.name}")
        at = dice.randrange(len(doors))
        self._client: Final = client
        self._doors: Final = [*doors[at:], *doors[:at]]
        self._game: Final = WatchedGame()
        self._way: Final = LossyWay(net, dice, plan.loss, plan.jitter_ms / 1e3)
        key = Ed25519PrivateKey.from_private_bytes(dice.randbytes(32))
        public = key.public_key().public_bytes_raw()
        self.follower: Final = StreamFollower(
            self._game,
            STREAM,
            f"{client.name}-{dice.getrandbits(64):016x}",
            sign=(lambda text: (public, key.sign(text))) if client.signs else None,
            offer_every=OFFER_EVERY_TICKS,
            fault_window_ms=PATIENCE_MS,
        )
        self._posted: Final[list[str]] = []
        self._leads_ticks: Final[list[tuple[float, int]]] = []
        self._catch_ups_ms: Final[list[float]] = []
        self._behind_since_s: float | None = None
        self._failure = ""

    @property
    def name(self) -> str:
        """In sentences."""
        return self._client.name

    @property
    def posted(self) -> int:
        """How many events it has posted."""
        return len(self._posted)

    @property
    def unacknowledged(self) -> int:
        """How many of these no server has acknowledged yet."""
        return self.follower.unacknowledged

    @property
    def tick(self) -> int:
        """What it has computed."""
        return self._game.tick

    @property
    def is_done(self) -> bool:
        """Whether it has joined, posted all, and all of that is acknowledged; or it has failed."""
        has_joined = bool(self.follower.public_id)
        is_all_said = has_joined and self.posted == len(self._client.events) and not self.unacknowledged
        return bool(self._failure) or is_all_said

    def has_come_to(self, tick: int) -> bool:
        """Whether it has computed so far, or has failed."""
        return bool(self._failure) or self._game.tick >= tick

    async def play(self, began_s: float) -> None:
        """Join when it is time, and play until cancelled."""
        await trio.sleep_until(began_s + self._client.joins_s)
        try:
            async with HttpClient(transport=self._way) as http, trio.open_nursery() as nursery:
                nursery.start_soon(self._post, began_s)
                await follow_stream(
                    self.follower,
                    self._doors,
                    http=http,
                    frame_s=FRAME_S,
                    patience_s=ANSWER_S,
                    on_frame=self._look,
                )
        except* StreamLost as lost:
            self._failure = str(lost.exceptions[0])

    def record(self) -> LockstepClient:
        """What it has done and seen."""
        log = self._way.log
        return LockstepClient(
            name=self._client.name,
            public_id=self.follower.public_id,
            posted=tuple(self._posted),
            hashes=self._game.hashes,
            events=tuple(self._game.events),
            told=tuple(log.told),
            resets=log.resets,
            refused=tuple(log.refused),
            unacknowledged=self.unacknowledged,
            failure=self._failure,
            restored=tuple(self._game.restored),
            syncs=len(log.told),
            lost=log.lost,
            leads_ticks=tuple(self._leads_ticks),
            catch_ups_ms=tuple(self._catch_ups_ms),
        )

    async def _post(self, began_s: float) -> None:
        for event in self._client.events:
            await trio.sleep_until(began_s + event.at_s)
            self._game.send_event(TALLIED, event.body)
            self._posted.append(event.body)

    def _look(self, computed: int) -> None:
        behind, now_s = self.follower.behind, trio.current_time()
        if computed:
            self._leads_ticks.append((now_s, behind))
        if behind > TOLERANCE and self._behind_since_s is None:
            self._behind_since_s = now_s
        elif behind <= TOLERANCE and self._behind_since_s is not None:
            self._catch_ups_ms.append((now_s - self._behind_since_s) * 1e3)
            self._behind_since_s = None
