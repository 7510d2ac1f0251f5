"""What an entity may use of its server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from batonpass.authority.wire.transfer import InputAck, NotOwner
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import CustodyLog
from batonpass.simserver.entity.feed import CommitFeed
from batonpass.simserver.entity.mail_desk import MailDesk
from batonpass.simserver.entity.own_inputs import OwnInputAcks
from batonpass.simserver.entity.regions import FollowedRegions
from batonpass.simserver.entity.sleep import Rounds
from batonpass.simserver.entity.world_faults import WorldFaults
from batonpass.simserver.world.api import World
from batonpass.simserver.world.messages import takes_messages
from batonpass.simserver.world.neighbourhood import NOBODY_NEAR, NeighbourLookup

__all__ = ["EntityEnvironment"]


def _nothing_moves(_entity: str, _ghosts: Sequence[str]) -> None:
    """Of a server on which contacts move nothing."""


@dataclass(frozen=True)
class EntityEnvironment:
    """What an entity may use of its server."""

    server: str
    world: World
    period_s: float
    custody: CustodyLog
    monotonic_ns: Callable[[], int]
    acknowledge: Callable[[str, InputAck], None]
    correct: Callable[[str, NotOwner], None]
    wants_word_of_owner: Callable[[str], None]
    wants_to_go: Callable[[str, str], None]
    count: Callable[[str], None]
    # Whether this server has its lease at this moment.
    may_act: Callable[[int], bool]
    # Whether what took so long, from when until when, has cost this server the lease that it had.
    is_lost_by: Callable[[int, int], bool]
    # Whether copies are kept elsewhere: only what is in one is durable then.
    keeps_copies: Callable[[], bool]
    ready_to_leave: Callable[[str], None]
    # The entity whose step begins is written down there first.
    crash_guard: CrashGuard
    # Told of every entity that was passivated, and needs an actor again.
    wants_actor: Callable[[str], None]
    # By which those that sleep count their ticks.
    rounds: Rounds = field(default_factory=Rounds)
    # Where it is told what changes the entities.
    feed: CommitFeed = field(default_factory=CommitFeed)
    # What became of the inputs that this server gives itself is told there.
    own_inputs: OwnInputAcks = field(default_factory=OwnInputAcks)
    # Where entities belong whose world says only where they are.
    regions: FollowedRegions = field(default_factory=FollowedRegions)
    # What its world did wrong is said there.
    faults: WorldFaults = field(default_factory=WorldFaults)
    # Word of messages between entities is left there.
    mail: MailDesk = field(default_factory=MailDesk)
    # What a world is told that looks around.
    neighbourhood: NeighbourLookup = NOBODY_NEAR
    # Told of every entity that meets ghosts, by a step that is committed.
    touched: Callable[[str, Sequence[str]], None] = _nothing_moves

    @cached_property
    def takes_messages(self) -> bool:
        """Whether its world sends and takes messages."""
        return takes_messages(self.world)
