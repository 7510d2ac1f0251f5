"""How much this server has to do, and what each of its entities costs: measured here, judged by its home instance.

The load is a part of the tick period. It is that from the moment a tick is due until everything that was runnable then
has run, the ticks of all entities among it. So it also counts what else keeps the server busy, and it is above 1 when
ticks are skipped. An entity's cost is its share of that, by the time that the world's code took on it.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from typing import Any, Final, Protocol, runtime_checkable

import trio

from batonpass.actors.base.errors import is_stopping
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import (
    MAX_CENSUS,
    MAX_GROUP_CHARS,
    MAX_STILL,
    MAX_WHY_CHARS,
    Census,
    CensusRequest,
    CensusRow,
    Load,
    LoadReport,
    StillRow,
)
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.world.api import World, yes_or_no
from batonpass.simserver.world.portability import is_text

__all__ = ["REPORT_EVERY_S", "Affine", "LoadMeter", "Loads", "Rooted", "census_rows", "moved_bytes"]

_log = logging.getLogger("batonpass.simserver.server.load_report")

REPORT_EVERY_S: Final = 1.0
# An entity that was just stopped is reported this soon, with all that were stopped meanwhile.
STILL_S: Final = 0.05
# While some are stopped the log says so as often as this.
SAY_NS: Final = 60_000_000_000
# While this many are on their way no census is needed. Looking through ten thousand entities ten times a second would
# take more than handing some of them over.
CROWDED: Final = 1024
_PPM: Final = 1_000_000
_Placed = tuple[str, Holding]
"""An entity, and the affinity group that it is in."""


@runtime_checkable
class Affine(Protocol):
    """A world whose entities interact: those of the same affinity group are moved together."""

    def affinity(self, state: Any) -> str:
        """The group of an entity in this state, at most 64 characters; empty if it is in none."""


@runtime_checkable
class Rooted(Protocol):
    """A world of whose entities some are *immovable*: balance leaves them where they are.

    With them stay those of their affinity group that are on the same server: a group is moved whole or not at all. A
    move that is asked for is made, by `destination` or the player say. A drained server gives them up too. It is about
    to be taken down, and what stayed would be taken over elsewhere from a copy, with less than it had. The world is not
    asked about a quarantined entity: that stays in any case.
    """

    def immovable(self, state: Any) -> bool:
        """Whether an entity in this state has to stay."""


def moved_bytes(link: Mapping[str, int]) -> int:
    """How many bytes came and went over the link, by its counters."""
    return link.get("bytes_in", 0) + link.get("bytes_out", 0)


class LoadMeter:
    """Averages over the ticks since the last measurement; of inputs and bytes it takes totals and gives rates.

    `period_ns` is the tick period.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._used_ns: list[int] = []
        self._due_ns = 0
        self._before = (0, 0, 0)
        self._last = Load(tick_ppm=0, entities=0, leaving=0, inputs_per_s=0, bytes_per_s=0)

    @property
    def last(self) -> Load:
        """What was measured last."""
        return self._last

    def began(self, due_ns: int) -> None:
        """A tick has begun that was due then."""
        self._due_ns = due_ns

    def ticked(self, used_ns: int) -> None:
        """One tick, from when it was due until its work was done."""
        self._used_ns.append(used_ns)
        self._due_ns = 0

    def measure(
        self,
        now_ns: int,
        *,
        entities: int,
        leaving: int,
        inputs: int,
        moved_bytes: int,
        **others: Any,
    ) -> Load:
        """The load since the last measurement; without a tick meanwhile as before.

        Or what the present tick has taken by now, if it has taken longer than its period and no other has ended.

        `others` are what is counted elsewhere, by the names of `Load`.
        """
        before_ns, inputs_before, bytes_before = self._before
        self._before = now_ns, inputs, moved_bytes
        passed_s = max(now_ns - before_ns, 1) / 1e9
        used_ppm = self._last.tick_ppm
        if self._used_ns:
            used_ppm = _PPM * sum(self._used_ns) // (len(self._used_ns) * self._period_ns)
        elif self._due_ns and now_ns - self._due_ns > self._period_ns:
            used_ppm = max(used_ppm, _PPM * (now_ns - self._due_ns) // self._period_ns)
        self._used_ns.clear()
        self._last = Load(
            tick_ppm=used_ppm,
            entities=entities,
            leaving=leaving,
            inputs_per_s=max(0, round((inputs - inputs_before) / passed_s)) if before_ns else 0,
            bytes_per_s=max(0, round((moved_bytes - bytes_before) / passed_s)) if before_ns else 0,
            **others,
        )
        return self._last


def census_rows(
    holdings: Iterable[Holding],
    world: World,
    load: Load,
    period_s: float,
    limit: int,
    stays: Callable[[str], bool],
    *,
    is_drained: bool = False,
) -> list[CensusRow]:
    """At most `limit` of the entities that may be moved (`stays`), groups beside each other.

    A reader takes what there is of a group for all of it. So a group is named whole or not at all, unless the server is
    drained: then all have to go, and the later ones go after the first. Immovable entities get the room that is left:
    were they named first, a hot server full of them could never be relieved. An untaken entity is named before all
    others, whatever else may be moved.
    """
    # An entity that is quarantined wherever it goes costs nothing, and is not to be sent about.
    candidates = [holding for holding in holdings if is_drained or not holding.life.quarantine.wherever]
    untaken: list[_Placed] = []
    if not is_drained and any(one.life.is_untaken for one in candidates):
        untaken = [("", one) for one in _each_kind_in_turn(candidates) if stays(one.id)]
        # Entities that no server takes must not keep a hot server from being relieved.
        untaken = untaken[: min(limit, MAX_CENSUS // 2)]
        limit -= len(untaken)
        candidates = [one for one in candidates if not one.life.is_untaken] if limit else []
    grouped = [(_group(world, one), one) for one in candidates] if isinstance(world, Affine) else []
    grouped.sort(key=lambda pair: (pair[0], pair[1].id))
    placed = grouped or [("", one) for one in candidates]
    may_go = ((group, one) for group, one in placed if stays(one.id))
    # Ten times a second while ten thousand are drained: a look at each of them was a tenth of what the server had.
    staying = list(islice(may_go, limit)) if is_drained else list(may_go)
    spent_ns = sum(_cost_ns(holding.life) for _, holding in (placed if is_drained else staying)) or 1
    rooted = {one.id for _, one in staying if _is_immovable(world, one)} if isinstance(world, Rooted) else set[str]()
    named = (
        staying if is_drained else _whole_groups(placed, _movable_first(staying, rooted) if rooted else staying, limit)
    )
    return [
        CensusRow(
            entity=holding.id,
            here_ms=_here_ms(holding.life, period_s),
            cost_ppm=load.tick_ppm * _cost_ns(holding.life) // spent_ns,
            group=group,
            immovable=holding.id in rooted,
            untaken=holding.life.is_untaken,
        )
        for group, holding in untaken + named[:limit]
    ]


def _each_kind_in_turn(candidates: list[Holding]) -> list[Holding]:
    """Those that are not taken here: one of each kind and form, then the next of each.

    Kinds that no server takes, however many entities they have, leave room for those taken elsewhere.
    """
    alike: dict[tuple[str, int], list[Holding]] = defaultdict(list)
    for one in candidates:
        if one.life.is_untaken:
            alike[one.life.kind, one.life.schema].append(one)
    return [one for turn in zip_longest(*alike.values()) for one in turn if one is not None]


def _movable_first(staying: list[_Placed], rooted: Collection[str]) -> list[_Placed]:
    """In the same order, but those at the end that are `rooted`, or in a group with one that is."""
    rooted_groups = {group for group, holding in staying if group and holding.id in rooted}
    return sorted(staying, key=lambda pair: pair[1].id in rooted or pair[0] in rooted_groups)


def _whole_groups(placed: list[_Placed], staying: list[_Placed], limit: int) -> list[_Placed]:
    """Of those that stay at most `limit`, without groups that would not be whole."""
    present, found = Counter(group for group, _ in placed), list[_Placed]()
    for group, members in groupby(staying, key=itemgetter(0)):
        together = list(members)
        is_whole = len(together) == present[group] and len(found) + len(together) <= limit
        if is_whole or not group:
            found += together[: limit - len(found)]
    return found


def _here_ms(life: Life, period_s: float) -> int:
    """For how long it has been here, whether its ticks came in time, were slept through, or were skipped."""
    stint = life.stint
    return max(int(life.ticks_here * period_s * 1000), (stint.last_tick_ns - stint.first_tick_ns) // 1_000_000)


def _cost_ns(life: Life) -> int:
    """What its world takes for a tick of it: nothing while it is asleep, quarantined or suspended."""
    return 0 if life.sleep is not None or life.quarantine_reason or life.ownership.suspended else life.step_ns


def _group(world: Affine, holding: Holding) -> str:
    if holding.life.is_untaken:
        # It would not know the state.
        return ""
    passive = holding.life.passive
    if passive is not None and passive.group is not None:
        return passive.group
    began_ns = holding.life.enter()
    try:
        group = _a_group(world.affinity(holding.life.seen))
    except BaseException as error:
        if is_stopping(error):
            raise
        # The world's fault, and no reason to keep the entity where it is.
        holding.life.fault("affinity", error)
        group = ""
    finally:
        holding.life.leave(began_ns)
    if passive is not None:
        # Its state is the same until it is brought back.
        passive.group = group
    return group


def _a_group(said: Any) -> str:
    """What a world said of a group, as it fits a census. Raises `TypeError` or `ValueError` if it is none."""
    if not isinstance(said, str):
        # As texts "None" and "7" would be groups, with all entities in them of which it says nothing.
        raise TypeError(f"affinity has to name a group, or give an empty text, not {said!r:.40}")
    if not is_text(said):
        raise ValueError("affinity gave a text that cannot be written")
    return said[:MAX_GROUP_CHARS]


def _is_immovable(world: Rooted, holding: Holding) -> bool:
    if holding.life.is_untaken:
        return False
    passive = holding.life.passive
    if passive is not None and passive.immovable is not None:
        return passive.immovable
    began_ns = holding.life.enter()
    try:
        immovable = yes_or_no("immovable", world.immovable(holding.life.seen))
    except BaseException as error:
        if is_stopping(error):
            raise
        # As of its group.
        holding.life.fault("immovable", error)
        immovable = False
    finally:
        holding.life.leave(began_ns)
    if passive is not None:
        passive.immovable = immovable
    return immovable


def _still_row(holding: Holding) -> StillRow:
    life = holding.life
    return StillRow(
        entity=holding.id,
        why=life.quarantine_reason[:MAX_WHY_CHARS],
        still_ms=life.quarantine.lasts_ns // 1_000_000,
        untaken=life.is_untaken,
        failed_here=life.quarantine.failed_here,
    )


class Loads:
    """Reports the load to every homeserver of the instance while it is served, and answers their questions."""

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        departures: Departures,
        meter: LoadMeter,
        leaning: Callable[[], int],
        is_full: Callable[[], bool],
        schema_version: int,
    ) -> None:
        """`leaning`, `is_full` and `schema_version` are as of `Load`."""
        self._schema_version: Final = schema_version
        self._soon: Final = ports.clock.bell()
        self._named = ""
        self._said_ns: int | None = None
        self._leaning: Final = leaning
        self._is_full: Final = is_full
        self._lease: Final = lease
        self.meter: Final = meter
        self._holdings = holdings
        self._departures = departures
        self._outbox: Final = ports.outbox
        self._home: Final = ports.home
        self._link: Final = ports.link
        self._counts: Final = ports.counts
        self._clock = ports.clock
        holdings.feed.listen("load report", {EntityChange.QUARANTINED}, self._was_stopped)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Report once a second, and soon after an entity was stopped, until cancelled."""
        task_status.started()
        while True:
            if await self._soon.wait(REPORT_EVERY_S):
                await self._clock.sleep_s(STILL_S)
            report = LoadReport(load=self.measure(), still=self._some_still())
            for row in self._home.members():
                address = (row.link_host, row.link_port)
                self._outbox.send(report, Trace("load"), row.name, on_path=False, address=address)

    def _was_stopped(self, _entity: str) -> None:
        """An entity was stopped: home hears of it soon."""
        self._soon.ring()

    def _some_still(self) -> list[StillRow]:
        """Some of those that are stopped, as of `LoadReport`; people find them in the log too."""
        rows = [_still_row(holding) for holding in self._holdings if holding.life.quarantine_reason]
        self._say(rows)
        # Those after the one that was named last, and then from the beginning.
        rows.sort(key=lambda row: (not row.failed_here, row.entity <= self._named, row.entity))
        named = rows[:MAX_STILL]
        self._named = named[-1].entity if named else ""
        return named

    def _say(self, rows: list[StillRow]) -> None:
        now_ns = self._clock.monotonic_ns()
        if not rows:
            self._said_ns = None
        elif self._said_ns is None or now_ns - self._said_ns >= SAY_NS:
            self._said_ns = now_ns
            untaken = sum(row.untaken for row in rows)
            text = "%d entities are not simulated here: %d quarantined, %d not taken by the world here; such as %s: %s"
            _log.warning(text, len(rows), len(rows) - untaken, untaken, rows[0].entity, rows[0].why)

    def measure(self) -> Load:
        """The load since the last measurement."""
        return self.meter.measure(
            self._clock.monotonic_ns(),
            entities=len(self._holdings),
            leaving=self._departures.under_way,
            inputs=self._counts["inputs"],
            moved_bytes=moved_bytes(self._link.stats),
            asleep=self._holdings.asleep,
            untaken=self._holdings.untaken,
            quarantined=self._holdings.quarantined,
            schema_version=self._schema_version,
            too_large=self._departures.retry_backoff.too_large(self._holdings.ids()),
            leaning=self._leaning(),
            knows=self._lease.knows,
            is_full=self._is_full(),
        )

    def census(self, request: CensusRequest, sender: str, world: World, period_s: float) -> None:
        """Tell a homeserver which entities are here and may be moved; none while very many of them are on their way."""
        load = self.meter.last.model_copy(
            update={"entities": len(self._holdings), "leaving": self._departures.under_way}
        )
        limit = 0 if load.leaving >= CROWDED else min(request.limit, MAX_CENSUS)
        rows = census_rows(
            self._holdings if limit else (),
            world,
            load,
            period_s,
            limit,
            self._departures.may_be_moved,
            is_drained=self._lease.is_drained,
        )
        answer = Census(number=request.number, load=load, rows=rows)
        self._outbox.send(answer, Trace("census"), sender, on_path=False)
