"""What goes wrong in a run of machines, how often and for how long, as data.

Rates are per virtual second and for the whole cluster, times in seconds as (shortest, longest), shares between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["MIXES", "MachineFaultMix"]

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class MachineFaultMix:
    """One kind of bad luck, and what is asked of the cluster meanwhile."""

    name: str
    purpose: str

    # --- what there is
    servers: int = 5  # simulation servers of each of the two instances
    entities: int = 60  # of each instance
    faults_s: float = 2.0

    # --- what people do
    moves: float = 900.0  # an entity is to be elsewhere
    ordered_share: float = 0.4  # of them through the log; else a world wants it
    direct_share: float = 0.7  # of them directly, if the entity is delegated
    staged_share: float = 0.2
    nowhere_share: float = 0.01  # of them to a server that does not exist
    budget_share: float = 0.05  # of the ordered ones with a freeze budget
    budgets_ms: tuple[int, ...] = (50, 300)
    delegations: float = 200.0  # an entity is delegated to the servers of its instance
    inputs_per_s: float = 2.0  # of each entity's player

    # --- the network
    delay_s: Range = (0.0005, 0.003)
    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0  # so late that others overtake it
    late_s: Range = (0.05, 1.2)
    cut: float = 0.0  # between two processes, both ways
    cut_one_way: float = 0.0
    isolate: float = 0.0  # one process from all others
    cut_s: Range = (0.1, 2.0)

    # --- processes and the log
    pause: float = 0.0  # one server is paused, as after SIGSTOP
    pause_s: Range = (0.05, 2.0)
    leases: bool = False  # a server that is silent for a term is dead, and others take over
    term_s: float = 1.0
    crash: float = 0.0  # one server is killed, and started again
    down_s: Range = (0.05, 2.0)
    away: float = 0.0  # a home instance answers no server
    away_s: Range = (0.1, 1.5)
    unknown_share: float = 0.0  # of what a home is asked it does, and does not say so
    refused_share: float = 0.0  # of what comes from elsewhere a home does not let its servers take

    def rates(self) -> Mapping[str, float]:
        """The faults that have a rate, by the names of the fields."""
        return {name: rate for name in _RATED if (rate := getattr(self, name)) > 0}


_RATED: Final = ("cut", "cut_one_way", "isolate", "pause", "crash", "away")

_ALL: Final = (
    MachineFaultMix(name="calm", purpose="nothing goes wrong, and entities move all the time", moves=1500.0),
    MachineFaultMix(
        name="lossy",
        purpose="a tenth of all messages is lost, some come twice, and some a second late",
        lost=0.1,
        repeated=0.05,
        late=0.03,
    ),
    MachineFaultMix(
        name="reordered",
        purpose="messages take up to 50 ms, so that each may overtake any other, and many come twice",
        delay_s=(0.0005, 0.05),
        repeated=0.2,
        late=0.05,
    ),
    MachineFaultMix(
        name="cuts",
        purpose="servers and homes cannot reach each other, one way or both, for up to two seconds",
        cut=3.0,
        cut_one_way=3.0,
        isolate=1.0,
    ),
    MachineFaultMix(
        name="pauses",
        purpose="servers are paused for up to two seconds, and go on as if nothing had happened",
        pause=4.0,
        late=0.01,
    ),
    MachineFaultMix(
        name="log",
        purpose="home instances do not answer for a while, decide without saying so, and refuse",
        away=2.0,
        unknown_share=0.1,
        refused_share=0.1,
    ),
    MachineFaultMix(
        name="crashes",
        purpose="servers are killed and started again, and others take over what they had",
        leases=True,
        faults_s=3.0,
        crash=1.5,
    ),
    MachineFaultMix(
        name="leases",
        purpose="servers are paused, or cannot reach home, for longer than their leases last",
        leases=True,
        faults_s=3.0,
        pause=2.0,
        pause_s=(0.5, 3.0),
        isolate=1.0,
        cut=3.0,
        cut_s=(0.5, 3.0),
        late=0.01,
    ),
    MachineFaultMix(
        name="deaths",
        purpose="all of this, each of it seldom, with leases",
        leases=True,
        faults_s=3.0,
        lost=0.03,
        repeated=0.03,
        late=0.01,
        cut=1.0,
        cut_one_way=1.0,
        pause=1.0,
        crash=0.7,
        away=0.5,
        unknown_share=0.02,
        refused_share=0.03,
    ),
    MachineFaultMix(
        name="everything",
        purpose="all of this, each of it seldom",
        lost=0.03,
        repeated=0.03,
        late=0.01,
        cut=1.0,
        cut_one_way=1.0,
        isolate=0.3,
        pause=1.5,
        away=0.7,
        unknown_share=0.03,
        refused_share=0.03,
    ),
)

MIXES: Final[Mapping[str, MachineFaultMix]] = MappingProxyType({mix.name: mix for mix in _ALL})
