"""What may go wrong in a run of servers, how often and for how long, as data: the form of a mix.

Rates are per virtual second and for the whole cluster, times in seconds as (shortest, longest), shares between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import MAX_BATCH
from batonpass.scenarios.simulation.servers.mail import MailWeather

__all__ = ["ServerMix"]

Range = tuple[float, float]

_FAIR: Final = MailWeather()


@dataclass(frozen=True, kw_only=True)
class ServerMix:
    """One kind of bad luck, and what people do meanwhile."""

    name: str
    purpose: str

    # --- what there is
    servers: tuple[str, ...] = ("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1", "beta.s2")
    players: tuple[str, ...] = ("alpha.ada", "beta.bob")
    entities: int = 8
    rules: tuple[str, ...] = ("allow",)  # of the entities, in turn
    has_one_master: bool = False  # the first player spawns all of them
    policies: bool = False  # what becomes of entities whose servers die, or whose owners go away, differs
    large: int = 0  # how many of the entities have states that go ahead in pieces
    streams: int = 0  # how many of the entities are event streams
    stream_clients: int = 3  # of each stream
    scenes: int = 0  # how many of the entities are scenes
    scene_members: int = 3  # of each scene
    shows: int = 0  # how many of the entities are shows, in which all servers of the instance take part
    roams: bool = False  # entities go where a table of regions says, as far as their inputs have brought them
    corresponds: bool = False  # entities send each other messages
    meets: bool = False  # entities walk about, look around, and see ghosts of those of other servers
    sleeps: bool = False  # entities sleep until an input comes
    passivate_s: float = 0.0  # an entity that has slept for this long is passivated; 0 for none
    in_batches: bool = False  # worlds step all entities of their server at once
    carries: bool = False  # worlds have something of each entity beside its state, some of which fails to come along
    at_once: int = 128  # how many leave one server for another at a time, those of a moment in one batch
    at_once_bytes: int = 4 << 20  # no more leaves while this much is under way to the other
    in_company: bool = False  # what is sent or asked at one moment shares its parcel, and its step of the log

    # --- what players and operators do
    move: float = 10.0  # an entity is moved
    move_together: float = 0.5  # two or three entities are moved, or none of them
    wander_share: float = 0.0  # of the ticks in which a world sends an entity elsewhere
    take: float = 0.5  # a player takes the ownership of an entity
    delegate: float = 1.0  # a group of servers may pass an entity directly
    revoke: float = 0.0  # the keys of a simulation server are revoked
    drain: float = 0.0  # a server is emptied, or may be given entities again
    rezone: float = 0.0  # the table of regions of an instance is begun, changed or ended
    is_balanced: bool = False  # the homeservers move entities from hot servers to cool ones
    inputs_per_s: float = 10.0  # of each player
    create: float = 0.0  # a player creates an entity, or deletes one
    create_together: int = 1  # how many are created at once, if any is
    moody_share: float = 0.0  # of the times that a world is to begin something it would rather not
    attach: float = 0.0  # an entity is given a parent, or none any more
    absent: float = 0.0  # a player falls silent, or says so and leaves; at most one at a time
    absent_s: Range = (0.5, 8.0)
    budgets_ms: tuple[int, ...] = ()  # freeze budgets of what is moved
    notices_ms: tuple[int, ...] = ()  # notices before what is moved leaves
    owner_heard_s: float = 0.0  # nothing is lost: within this time an authority knows the owner
    move_apart: float = 0.0  # some are moved, each by itself
    in_parcel: int = MAX_BATCH  # how many messages share one, if any do; and how many steps share one of the log

    # --- the network
    weather: MailWeather = _FAIR
    cut: float = 0.0  # between two processes, both ways
    cut_one_way: float = 0.0
    isolate: float = 0.0  # one process from all others
    cut_from_home: float = 0.0  # one simulation server from its home instance alone
    strand: float = 0.0  # one simulation server from its home instance, and the others hear it late
    late_s: Range = (0.5, 2.5)
    cut_s: Range = (0.1, 3.0)

    # --- processes
    pause: float = 0.0  # one server is paused, as after SIGSTOP
    pause_s: Range = (0.05, 3.0)
    crash: float = 0.0  # one server is killed, and started again
    crash_with_follower: float = 0.0  # an entity's backup replica is killed, and after a while its authority too
    leave_alone: float = (
        0.0  # all servers of an instance but one are cut off, or killed; it is killed when they are back
    )
    alone_s: Range = (2.8, 4.5)
    stop_together: float = 0.0  # an entity's authority and all that may follow it are paused, or killed
    power_cut: float = 0.0  # all servers of an instance, or all there are, are killed at once
    together_s: Range = (3.0, 5.0)
    down_s: Range = (0.05, 1.5)
    fail_engine: float = 0.0  # the engine of a node of a show fails
    crash_under_way: float = 0.0  # one end of a large state that is on its way is killed, and started again
    kill: float = 0.0  # one server is dead for good; at most one of an instance
    drift_permille: float = 1.0  # how much faster or slower than true each clock may be; leases allow for 10

    # --- homes and the log
    part: float = 0.0  # a log hears that there was another history of it
    crash_home: float = 0.0  # one homeserver is killed, and started again
    away: float = 0.0  # the log has no leader for a while
    away_s: Range = (0.1, 2.0)
    depose: float = 0.0  # one homeserver loses sight of the others for a while, and does not know
    unknown_share: float = 0.0  # of the commands are decided without an answer

    def show_names(self, instance: str) -> list[str]:
        """The shows of an instance, without it and their kind: those of the first server's."""
        is_first = instance_of(self.servers[0]) == instance
        return [str(number) for number in range(self.shows)] if is_first else []

    def rates(self) -> Mapping[str, float]:
        """What has a rate, by the names of the fields."""
        return {name: rate for name in _RATED if (rate := getattr(self, name)) > 0}


_RATED: Final = (
    *("move", "move_together", "take", "delegate", "drain", "rezone"),
    *("cut", "cut_one_way", "isolate", "cut_from_home", "strand"),
    *("pause", "crash", "crash_with_follower", "leave_alone", "stop_together", "power_cut", "kill"),
    *("crash_home", "away", "depose"),
    *("attach", "absent", "create", "move_apart", "crash_under_way", "revoke", "part"),
    "fail_engine",
)
