"""What goes wrong in a run of servers, how often and for how long, as data.

Rates are per virtual second and for the whole cluster, times in seconds as (shortest, longest), shares between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import MAX_BATCH
from batonpass.scenarios.simulation.servers.mail import MailWeather

__all__ = ["MIXES", "ServerMix"]

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

_ROUGH: Final = MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.1, repeated_share=0.05)

_MIXES: Final = (
    ServerMix(name="calm", purpose="nothing goes wrong, and entities move all the time", move=60.0, owner_heard_s=1.0),
    ServerMix(
        name="lossy",
        purpose="a tenth of all messages is lost, some come twice, and some half a second late",
        weather=_ROUGH,
        move=20.0,
        unknown_share=0.05,
    ),
    ServerMix(
        name="cuts",
        purpose="servers, players and homes cannot reach each other, one way or both, for up to three seconds",
        cut=0.8,
        cut_one_way=0.8,
        isolate=0.3,
    ),
    ServerMix(
        name="pauses",
        purpose="servers are paused for up to three seconds, and go on as if nothing had happened",
        pause=1.0,
        weather=MailWeather(spike_share=0.01, spike_s=1.0),
    ),
    ServerMix(
        name="log",
        purpose="the log has no leader for up to two seconds, and decides without saying so",
        away=0.5,
        unknown_share=0.2,
        move=20.0,
    ),
    ServerMix(
        name="crashes",
        purpose="servers are killed and started again while entities come and go",
        crash=0.3,
        weather=MailWeather(lost_share=0.02, repeated_share=0.02),
    ),
    ServerMix(
        name="ping-pong",
        purpose="entities are sent on as soon as they arrive, directly wherever they may be, on a bad network",
        carries=True,
        weather=_ROUGH,
        move=5.0,
        wander_share=0.3,
        delegate=4.0,
        take=2.0,
    ),
    ServerMix(
        name="deaths",
        purpose="servers die for good, or come back with another incarnation, one at a time",
        crash=0.12,
        kill=0.12,
        down_s=(0.05, 4.0),
        move=6.0,
        weather=MailWeather(lost_share=0.01, spike_share=0.01, spike_s=0.5),
    ),
    ServerMix(
        name="followers",
        purpose="an entity's backup replica is killed, and soon after it the authority",
        crash_with_follower=0.3,
        down_s=(0.05, 4.0),
        move=4.0,
    ),
    ServerMix(
        name="alone",
        purpose="one server is left of an instance, and killed when the others come back with older copies",
        leave_alone=0.25,
        down_s=(3.0, 5.0),
        move=3.0,
    ),
    ServerMix(
        name="together",
        purpose="an entity's authority and all its backup replicas are paused or killed together, and return",
        stop_together=0.2,
        move=8.0,
    ),
    ServerMix(
        name="leases",
        purpose="servers are paused beyond their leases and cut off from home, granters change, clocks drift",
        pause=0.3,
        pause_s=(0.5, 5.0),
        cut_from_home=0.2,
        strand=0.2,
        isolate=0.1,
        cut_s=(0.5, 5.0),
        depose=0.3,
        crash_home=0.1,
        away=0.05,
        drift_permille=10.0,
        move=6.0,
        weather=MailWeather(spike_share=0.02, spike_s=1.0),
    ),
    ServerMix(
        name="drains",
        purpose="servers are drained and opened again, and hot ones relieved, while servers come and go",
        drain=0.5,
        is_balanced=True,
        move=4.0,
        move_together=3.0,
        crash=0.05,
        depose=0.05,
        weather=MailWeather(lost_share=0.02),
    ),
    ServerMix(
        name="everything",
        purpose="all of this, each of it seldom",
        weather=MailWeather(spike_share=0.01, spike_s=0.3, lost_share=0.03, repeated_share=0.02),
        wander_share=0.01,
        cut=0.2,
        cut_one_way=0.2,
        isolate=0.05,
        cut_from_home=0.05,
        pause=0.2,
        crash=0.03,
        crash_with_follower=0.02,
        kill=0.02,
        drift_permille=10.0,
        crash_home=0.03,
        away=0.1,
        depose=0.05,
        drain=0.1,
        is_balanced=True,
        unknown_share=0.05,
    ),
    ServerMix(
        name="batches",
        purpose="worlds step all entities at once; the servers are killed, cut off, paused and drained meanwhile",
        in_batches=True,
        carries=True,
        move=14.0,
        move_together=1.0,
        take=1.0,
        wander_share=0.01,
        delegate=2.0,
        drain=0.1,
        is_balanced=True,
        weather=MailWeather(spike_share=0.01, spike_s=0.3, lost_share=0.03, repeated_share=0.02),
        cut=0.2,
        cut_one_way=0.2,
        cut_from_home=0.1,
        pause=0.3,
        pause_s=(0.05, 4.0),
        crash=0.1,
        crash_with_follower=0.03,
        kill=0.02,
        drift_permille=10.0,
        crash_home=0.03,
        away=0.1,
        unknown_share=0.03,
    ),
    ServerMix(
        name="batches-asleep",
        purpose="the same with entities that sleep until an input comes, and are passivated, and players that leave",
        in_batches=True,
        sleeps=True,
        passivate_s=0.2,
        policies=True,
        absent=0.2,
        inputs_per_s=3.0,
        move=8.0,
        move_together=1.0,
        take=1.0,
        drain=0.2,
        cut=0.1,
        pause=0.1,
        pause_s=(0.05, 4.0),
        crash=0.1,
        crash_with_follower=0.05,
        kill=0.03,
        unknown_share=0.03,
    ),
    ServerMix(
        name="three",
        purpose="three instances: entities wander on through a third one, while all of it goes wrong now and then",
        carries=True,
        servers=("alpha.s1", "alpha.s2", "beta.s1", "beta.s2", "gamma.s1", "gamma.s2"),
        weather=MailWeather(spike_share=0.01, spike_s=0.3, lost_share=0.03, repeated_share=0.02),
        move=15.0,
        wander_share=0.02,
        cut=0.2,
        isolate=0.05,
        pause=0.1,
        crash=0.1,
        crash_home=0.03,
        away=0.1,
        unknown_share=0.05,
    ),
    ServerMix(
        name="families",
        purpose="entities get parents and lose them, and move with what is below them, while servers are drained",
        has_one_master=True,
        weather=MailWeather(lost_share=0.03, repeated_share=0.02, spike_share=0.01, spike_s=0.5),
        attach=3.0,
        move=8.0,
        move_together=1.0,
        delegate=0.3,
        wander_share=0.005,
        drain=0.3,
        is_balanced=True,
        crash=0.05,
        pause=0.1,
        unknown_share=0.03,
    ),
    ServerMix(
        name="absent",
        purpose="players fall silent or leave, servers die, and each entity has its own policy for that",
        players=("alpha.ada", "beta.bob", "alpha.cyd"),
        policies=True,
        absent=0.4,
        take=1.0,
        move=4.0,
        delegate=0.5,
        crash=0.05,
        kill=0.03,
        down_s=(0.05, 4.0),
        weather=MailWeather(lost_share=0.01, repeated_share=0.01),
    ),
    ServerMix(
        name="large",
        purpose="large states go ahead in pieces, some may be frozen for a moment only, a twentieth is lost",
        carries=True,
        large=2,
        at_once_bytes=100_000,
        budgets_ms=(0, 1, 5, 50),
        move=20.0,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.3, lost_share=0.05, repeated_share=0.02),
        pause=0.1,
        crash=0.1,
    ),
    ServerMix(
        name="convoys",
        purpose="many entities leave drained servers in batches, and whole parcels are lost, late or come twice",
        carries=True,
        entities=30,
        at_once=6,
        in_company=True,
        is_balanced=True,
        drain=0.8,
        move=8.0,
        move_together=2.0,
        delegate=0.5,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.05, repeated_share=0.03),
        crash=0.08,
        depose=0.05,
        unknown_share=0.03,
    ),
    ServerMix(
        name="asleep",
        purpose="entities sleep until an input comes, and are moved, taken and drained meanwhile, while servers die",
        sleeps=True,
        passivate_s=0.2,
        carries=True,
        inputs_per_s=3.0,
        move=8.0,
        move_together=1.0,
        take=1.0,
        drain=0.2,
        is_balanced=True,
        cut=0.1,
        pause=0.1,
        pause_s=(0.05, 4.0),
        crash=0.1,
        crash_with_follower=0.05,
        kill=0.03,
        down_s=(0.05, 4.0),
        weather=MailWeather(lost_share=0.02, repeated_share=0.02, spike_share=0.01, spike_s=0.5),
        unknown_share=0.03,
    ),
    ServerMix(
        name="births",
        purpose="entities are created and deleted while they move and servers are drained, killed and cut off",
        players=("alpha.ada", "beta.bob"),
        create=6.0,
        moody_share=0.2,
        inputs_per_s=25.0,
        move=12.0,
        move_together=1.0,
        wander_share=0.002,
        delegate=3.0,
        drain=0.2,
        is_balanced=True,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.05, repeated_share=0.05),
        cut=0.2,
        cut_one_way=0.2,
        pause=0.2,
        crash=0.15,
        crash_home=0.05,
        unknown_share=0.05,
    ),
    ServerMix(
        name="notices",
        purpose="entities leave after a notice, alone, together, each by itself and with what is below",
        has_one_master=True,
        notices_ms=(0, 50, 300, 1000),
        move=10.0,
        move_together=1.0,
        move_apart=2.0,
        attach=0.7,
        take=1.5,
        inputs_per_s=20.0,
        wander_share=0.002,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.3, lost_share=0.05, repeated_share=0.02),
        pause=0.1,
        crash=0.1,
        cut=0.1,
        unknown_share=0.03,
    ),
    ServerMix(
        name="slow-ways",
        purpose="large states take their time on the way, and one of their two ends is killed meanwhile",
        large=4,
        at_once_bytes=300_000,
        budgets_ms=(0, 0, 50, 400),
        move=14.0,
        delegate=2.0,
        weather=MailWeather((0.0002, 0.01), lost_share=0.02, repeated_share=0.01, bytes_per_s=2_000_000),
        crash=0.05,
        crash_under_way=0.5,
        pause=0.1,
    ),
    ServerMix(
        name="columns",
        purpose="batches are larger than a message may be, and some of their parcels are lost, late or come twice",
        entities=30,
        at_once=24,
        in_company=True,
        in_parcel=4,
        is_balanced=True,
        drain=0.8,
        move=6.0,
        move_together=2.0,
        move_apart=0.5,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.1, repeated_share=0.05),
        crash=0.08,
        depose=0.05,
        unknown_share=0.03,
    ),
    ServerMix(
        name="revocations",
        purpose="keys are revoked while entities are passed directly, others hear of it late, and servers are killed",
        players=("alpha.ada", "beta.bob"),
        revoke=3.0,
        move=12.0,
        move_together=0.5,
        wander_share=0.1,
        delegate=8.0,
        take=1.0,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.05, repeated_share=0.03),
        cut=0.3,
        cut_one_way=0.3,
        pause=0.2,
        crash=0.15,
        unknown_share=0.03,
    ),
    ServerMix(
        name="owners",
        purpose="owners change all the time while entities are passed directly, and nothing goes wrong",
        players=("alpha.ada", "beta.bob", "alpha.cyd"),
        take=8.0,
        move=10.0,
        wander_share=0.05,
        delegate=8.0,
        owner_heard_s=1.0,
    ),
    ServerMix(
        name="power",
        purpose="all servers lose power at once, while entities move on as soon as they have come, and return",
        power_cut=0.25,
        together_s=(0.5, 5.0),
        move=20.0,
        wander_share=0.01,
        delegate=2.0,
        weather=MailWeather(lost_share=0.02, spike_share=0.01, spike_s=0.3),
    ),
    ServerMix(
        name="histories",
        purpose="logs hear of other histories, and give fences far above those, while servers are killed and drained",
        part=1.0,
        move=15.0,
        move_together=1.0,
        move_apart=0.5,
        wander_share=0.05,
        delegate=3.0,
        drain=0.1,
        create=0.5,
        crash=0.2,
        pause=0.2,
        cut=0.2,
        weather=_ROUGH,
        unknown_share=0.03,
    ),
    ServerMix(
        name="messages",
        purpose="entities send each other messages while they move, and servers are killed, cut off, paused, drained",
        corresponds=True,
        move=15.0,
        wander_share=0.02,
        delegate=3.0,
        take=1.0,
        drain=0.1,
        cut=0.3,
        cut_one_way=0.2,
        cut_from_home=0.1,
        isolate=0.1,
        pause=0.2,
        crash=0.15,
        crash_with_follower=0.05,
        kill=0.02,
        away=0.1,
        weather=_ROUGH,
        unknown_share=0.03,
    ),
    ServerMix(
        name="sleeping-messages",
        purpose="entities sleep, passivated, until others send them something, while servers die and are drained",
        corresponds=True,
        sleeps=True,
        passivate_s=0.2,
        inputs_per_s=3.0,
        move=8.0,
        move_together=1.0,
        drain=0.2,
        is_balanced=True,
        crash=0.2,
        crash_with_follower=0.05,
        pause=0.1,
        cut=0.2,
        down_s=(0.05, 4.0),
        weather=MailWeather(lost_share=0.05, repeated_share=0.05, spike_share=0.01, spike_s=0.5),
        unknown_share=0.03,
    ),
    ServerMix(
        name="streams",
        purpose="clients of event streams post and listen while these move, and servers are killed, cut off and paused",
        servers=("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1"),
        entities=4,
        streams=2,
        move=4.0,
        wander_share=0.01,
        delegate=2.0,
        drain=0.1,
        cut=0.5,
        cut_from_home=0.1,
        isolate=0.1,
        pause=0.3,
        crash=0.8,
        weather=_ROUGH,
        unknown_share=0.02,
    ),
    ServerMix(
        name="scenes",
        purpose="members of scenes write, and to what is not theirs, while scenes move and servers are killed, cut off",
        servers=("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1"),
        entities=4,
        scenes=2,
        move=4.0,
        wander_share=0.01,
        delegate=2.0,
        drain=0.1,
        cut=0.5,
        cut_from_home=0.1,
        isolate=0.1,
        pause=0.3,
        crash=0.6,
        weather=_ROUGH,
        unknown_share=0.02,
    ),
    ServerMix(
        name="regions",
        purpose="entities follow tables of regions that are changed by people and by load, while servers come and go",
        roams=True,
        sleeps=True,
        passivate_s=0.5,
        entities=12,
        inputs_per_s=20.0,
        rezone=1.0,
        is_balanced=True,
        move=3.0,
        move_together=0.3,
        delegate=1.0,
        drain=0.2,
        cut=0.2,
        cut_from_home=0.1,
        pause=0.2,
        crash=0.1,
        kill=0.02,
        depose=0.05,
        crash_home=0.05,
        weather=MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.05, repeated_share=0.03),
        unknown_share=0.03,
    ),
    ServerMix(
        name="neighbours",
        purpose="entities meet ghosts of those of other servers, and go to these, while servers are killed and cut off",
        servers=("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1"),
        meets=True,
        rules=("allow", "allow", "deny", "allow", "ask"),
        move=6.0,
        wander_share=0.01,
        delegate=2.0,
        drain=0.1,
        cut=0.4,
        cut_one_way=0.2,
        cut_from_home=0.1,
        isolate=0.1,
        pause=0.3,
        crash=0.5,
        down_s=(0.05, 5.0),
        weather=_ROUGH,
        unknown_share=0.02,
    ),
    ServerMix(
        name="shows",
        purpose="nodes follow the controllers of shows while these move, and servers are killed, cut off, drained",
        servers=("alpha.s1", "alpha.s2", "alpha.s3", "alpha.s4"),
        players=("alpha.ada", "alpha.bob"),
        entities=4,
        shows=3,
        inputs_per_s=1.0,
        move=1.5,
        move_together=0.2,
        delegate=0.5,
        drain=0.1,
        cut=0.4,
        cut_one_way=0.2,
        cut_from_home=0.1,
        isolate=0.1,
        pause=0.3,
        crash=0.3,
        fail_engine=0.05,
        weather=MailWeather((0.0002, 0.01), spike_share=0.01, spike_s=0.5, lost_share=0.03, repeated_share=0.03),
        unknown_share=0.02,
    ),
)

MIXES: Final[Mapping[str, ServerMix]] = MappingProxyType({mix.name: mix for mix in _MIXES})
