"""What goes wrong in a run of servers, how often and for how long, as data.

Rates are per virtual second and for the whole cluster, times in seconds as (shortest, longest), shares between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from scenarios.simulation.servers.mail import MailWeather

__all__ = ["MIXES", "ServerMix"]

Range = tuple[float, float]

_FAIR: Final = MailWeather()


@dataclass(frozen=True, kw_only=True)
class ServerMix:
    """One kind of bad luck, and what people do meanwhile."""

    name: str
    purpose: str

    # --- what people do
    move: float = 10.0  # somebody has an entity moved
    wander_share: float = 0.0  # of the ticks in which a world sends an entity elsewhere
    take: float = 0.5  # a player takes the ownership of an entity
    delegate: float = 1.0  # a group of servers may pass an entity directly
    inputs_per_s: float = 10.0  # of each player

    # --- the network
    weather: MailWeather = _FAIR
    cut: float = 0.0  # between two processes, both ways
    cut_one_way: float = 0.0
    isolate: float = 0.0  # one process from all others
    cut_s: Range = (0.1, 3.0)

    # --- processes
    pause: float = 0.0  # one server stands still, as after SIGSTOP
    pause_s: Range = (0.05, 3.0)
    crash: float = 0.0  # one server is killed, and started again
    down_s: Range = (0.05, 1.5)

    # --- the log
    away: float = 0.0  # it has no leader for a while
    away_s: Range = (0.1, 2.0)
    unknown_share: float = 0.0  # of the commands are decided without an answer

    def rates(self) -> Mapping[str, float]:
        """What has a rate, by the names of the fields."""
        names = ("move", "take", "delegate", "cut", "cut_one_way", "isolate", "pause", "crash", "away")
        return {name: rate for name in names if (rate := getattr(self, name)) > 0}


_ROUGH: Final = MailWeather((0.0002, 0.01), spike_share=0.02, spike_s=0.5, lost_share=0.1, repeated_share=0.05)

_MIXES: Final = (
    ServerMix(name="calm", purpose="nothing goes wrong, and entities move all the time", move=60.0),
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
        purpose="servers stand still for up to three seconds, and go on as if nothing had happened",
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
        weather=_ROUGH,
        move=5.0,
        wander_share=0.3,
        delegate=4.0,
        take=2.0,
    ),
    ServerMix(
        name="everything",
        purpose="all of this, each of it seldom",
        weather=MailWeather(spike_share=0.01, spike_s=0.3, lost_share=0.03, repeated_share=0.02),
        wander_share=0.01,
        cut=0.2,
        cut_one_way=0.2,
        isolate=0.05,
        pause=0.2,
        crash=0.03,
        away=0.1,
        unknown_share=0.05,
    ),
)

MIXES: Final[Mapping[str, ServerMix]] = MappingProxyType({mix.name: mix for mix in _MIXES})
