"""One simulation server: the real parts, with virtual time, mail and disk below them."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from authority.admission import Vacancies
from authority.epoch import Fence
from authority.errors import MessageError
from authority.hops import Trace
from authority.letters import Letter
from authority.messages import Input, Message, OwnerRequest, OwnerWord
from authority.names import instance_of
from authority.ownership import Ownership
from authority.records import DirectoryRow
from authority.sealing import Opened, Sealer
from crypto.keys import PublicIdentity
from scenarios.simulation.durable_stages import DurableStages
from scenarios.simulation.servers.calls import CallRefused, Calls, Unanswered
from scenarios.simulation.servers.keys import Keys, home_of, identity_of
from scenarios.simulation.servers.mail import Mail
from scenarios.simulation.servers.tasks import Process, VirtualClock, pause
from simserver.admission import Admissions, Reception
from simserver.arrivals import Arrivals
from simserver.custody import Stint
from simserver.departures import Departures
from simserver.entity import Entity, TickNow
from simserver.holdings import Holding, Holdings, Tombstone
from simserver.home import HomeRefused, HomeUnreachable
from simserver.inputs import PendingInput
from simserver.inquiries import Inquiries
from simserver.life import EntityEnvironment, Life
from simserver.node import Node
from simserver.stages import Stage

__all__ = ["Parts", "SimulationServer", "Witness"]

_TICK_NS: Final = 50_000_000
_LOOK_AGAIN_S: Final = 0.02
_DISK_S: Final = 0.002
_MAX_ENTITIES: Final = 1000
_MAX_STATE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Parts:
    """Of what servers are made; a weakened variant exchanges one of them."""

    departures: type[Departures] = Departures
    arrivals: type[Arrivals] = Arrivals
    holdings: type[Holdings] = Holdings


class Witness(Protocol):
    """Who watches what servers do."""

    def begun(self, server: str, stint: Stint) -> None:
        """A server takes up an entity."""

    def ticked(self, server: str, life: Life) -> None:
        """A server has simulated an entity for one more tick."""

    def faulty(self, server: str, sentence: str) -> None:
        """A server did what must not be."""


class Counting:
    """A world whose state is how far each source has come; it notices an input that is missing or comes again."""

    def __init__(self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None]) -> None:
        self._complain: Final = complain
        self._wanders: Final = wanders

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, int]:
        """Nobody has come anywhere."""
        return {}

    def step(self, state: dict[str, int], inputs: Sequence[PendingInput], dt_s: float) -> dict[str, int]:
        """Each input is its source's next one, or something is wrong."""
        if not inputs:
            return state
        state = dict(state)
        for item in inputs:
            if item.seq != state.get(item.source, 0) + 1:
                self._complain(f"input {item.seq} of {item.source} was applied after {state.get(item.source, 0)}")
            state[item.source] = item.seq
        return state

    def destination(self, state: dict[str, int], here: str, ticks_here: int) -> str | None:
        """Where the dice send it, if anywhere."""
        return self._wanders(here, ticks_here)


class _Actor:
    """An entity's actor that is always there and never waits."""

    alive = True

    def __init__(self, entity: Entity, life: Life) -> None:
        self._entity, self._life = entity, life

    def cast(self, message: Any) -> None:
        self._entity.handle_cast(message, self._life)

    def exit(self, reason: object) -> None:
        self.alive = False


class _Attendant:
    """Gives every new life its actor at once."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity

    def cast(self, life: Life) -> None:
        life.taken_up_by(cast(Any, _Actor(self._entity, life)))


@dataclass
class _Disk:
    """What survives the process: for each entity who had it last, under which fence."""

    rows: OrderedDict[str, tuple[str, Fence]] = field(default_factory=OrderedDict)

    def lives(self, entity: str, kind: str, fence: Fence) -> None:
        self.rows[entity] = ("", fence)

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        self.rows[entity] = (moved_to, fence)

    def forget(self, entity: str) -> None:
        self.rows.pop(entity, None)


class _Custody:
    """As `simserver.custody.CustodyLog`: has the judge see every beginning."""

    def __init__(self, server: str, witness: Witness) -> None:
        self._server: Final = server
        self._witness: Final = witness

    def start(self, stint: Stint) -> Stint:
        self._witness.begun(self._server, stint)
        return stint

    def changed(self, stint: Stint) -> None:
        """The judge looks at stints when others begin."""


class _Stages(DurableStages):
    """A disk of its own, which takes its time."""

    async def put(self, stage: Stage) -> None:
        await pause(_DISK_S)
        await super().put(stage)


class _NoLease:
    """What a server that never has to stop is asked; leases are not simulated here."""

    def may_act(self, now_ns: int) -> bool:
        return True


class _WayHome:
    """As `simserver.home.Home`: the key directory, and questions to the home instance."""

    def __init__(self, name: str, keys: Keys, calls: Calls) -> None:
        self._name: Final = name
        self._keys: Final = keys
        self._calls: Final = calls

    async def row(self, name: str) -> DirectoryRow | None:
        return await self._keys.row(name)

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        return await self._keys.keys_of(name, kid)

    def members(self) -> Iterator[DirectoryRow]:
        yield self._keys.home(instance_of(self._name))

    async def ask(self, message: Message, trace: Trace, *, on_path: bool) -> Opened | None:
        try:
            answer = await self._calls.call(home_of(self._name), message)
        except Unanswered as error:
            raise HomeUnreachable(str(error)) from error
        except CallRefused as error:
            raise HomeRefused(str(error)) from error
        return None if answer is None else Opened(answer, home_of(self._name), trace)

    async def ask_each(self, letters: Sequence[Letter]) -> list[Opened | Exception | None]:
        return [await self._asked(letter) for letter in letters]

    async def _asked(self, letter: Letter) -> Opened | Exception | None:
        try:
            return await self.ask(letter.message, letter.trace, on_path=letter.on_path)
        except (HomeUnreachable, HomeRefused) as error:
            return error


class SimulationServer:
    """One server, from one crash to the next and beyond."""

    def __init__(
        self, name: str, keys: Keys, process: Process, mail: Mail, clock: VirtualClock, witness: Witness,
        wanders: Callable[[str, int], str | None], parts: Parts,
    ) -> None:  # fmt: skip
        self.name: Final = name
        self.process: Final = process
        self._mail: Final = mail
        self._clock: Final = clock
        self._witness: Final = witness
        self._parts: Final = parts
        self._calls: Final = Calls(process, mail)
        self._home: Final = _WayHome(name, keys, self._calls)
        self._sealer: Final = Sealer(name, identity_of(name))
        self._disk: Final = _Disk()
        self._sent_on = 0
        self._world: Final = Counting(lambda sentence: witness.faulty(name, sentence), wanders)
        mail.join(name, lambda sender, message: process.do(lambda: self._arrived(sender, message)))
        self._stages: Final = _Stages()
        self.start()

    def start(self) -> None:
        """Begin with what is on disk."""
        counts = self.counts = Counter[str]()
        environment = EntityEnvironment(
            server=self.name,
            world=self._world,
            period_s=_TICK_NS / 1e9,
            custody=cast(Any, _Custody(self.name, self._witness)),
            monotonic_ns=self._clock.monotonic_ns,
            acknowledge=self.tell_player,
            correct=self.tell_player,
            wants_word_of_owner=self._ask_owner,
            wants_to_go=self._send_on,
            count=lambda what: counts.update((what,)),
        )
        entity = Entity()
        entity._env = environment
        parts, nothing = self._parts, cast(Any, None)
        home, courier = cast(Any, self._home), cast(Any, self)
        holdings = parts.holdings(environment, self._disk)
        holdings.caretaker = cast(Any, _Attendant(entity))
        admissions = Admissions(courier, self._clock, counts)
        reception = Reception(self._world, courier, holdings, self._clock, Vacancies(_MAX_ENTITIES), _MAX_STATE_BYTES)
        departures = parts.departures(
            self._sealer, home, courier, holdings, admissions, self._clock, counts, self._next_id
        )
        departures._nursery = cast(Any, self.process)
        stages = cast(Any, self._stages)
        arrivals = parts.arrivals(
            self._sealer, home, courier, holdings, departures, reception, stages, self._clock, counts
        )
        inquiries = Inquiries(self.name, home, stages, holdings, self._clock, counts, arrivals.stage_word)
        self.node = Node(
            config=nothing,
            clock=self._clock,
            sealer=self._sealer,
            home=home,
            link=nothing,
            courier=courier,
            environment=environment,
            holdings=holdings,
            departures=departures,
            arrivals=arrivals,
            admissions=admissions,
            reception=reception,
            stages=stages,
            inquiries=inquiries,
            owners=nothing,
            custody=nothing,
            ledger=nothing,
            counts=counts,
            keys=nothing,
            lease=cast(Any, _NoLease()),
        )
        for name, (moved_to, fence) in self._disk.rows.items():
            if moved_to:
                holdings.remember(name, Tombstone(moved_to, fence))
            else:
                holdings.remember_lived(name, fence)
        for stage in self._stages.waiting():
            arrivals.restage(stage)
        self.process.begin()
        self.process.start_soon(inquiries.serve)
        self.process.start_soon(self._repeat_questions, admissions)
        self._tick_later()

    def crash(self) -> list[str]:
        """Kill it; the entities whose copies are gone."""
        gone = [holding.id for holding in self.node.holdings]
        self.process.end()
        return gone

    # --- what its parts are given ----------------------------------------------------------------------------------

    def send(self, message: Message, trace: Trace, to: str, **how: Any) -> None:
        """As `Courier.send`; traces are for people, and stay behind."""
        self._mail.send(self.name, to, message)

    def tell_player(self, player: str, message: Any) -> None:
        """As `Courier.tell_player`."""
        self._mail.send(self.name, player, message)

    def _send_on(self, entity: str, destination: str) -> None:
        self.node.departures.wants_to_go(entity, destination)

    def _next_id(self) -> str:
        self._sent_on += 1
        return f"{self.name.replace('.', '-')}-{self._sent_on:06d}"

    def _ask_owner(self, entity: str) -> None:
        self.process.start_soon(self._learn_owner, entity)

    async def _learn_owner(self, entity: str) -> None:
        try:
            answer = await self._home.ask(OwnerRequest(entity=entity), Trace("owner-request"), on_path=False)
        except (HomeUnreachable, HomeRefused):
            return
        if answer is not None and isinstance(answer.message, OwnerWord):
            self.node.arrivals.owned(answer.message)

    # --- what happens to it ----------------------------------------------------------------------------------------

    def spawn(self, entity: str, owner: str) -> None:
        """The entity begins here."""
        self.node.holdings.spawn(entity, "counter", {}, Fence(1), Ownership(owner, 1))

    def _arrived(self, sender: str, message: Any) -> None:
        if self._calls.took(message):
            return
        if isinstance(message, Input):
            self.node._input(message, sender)
        else:
            self.process.start_soon(self._take, Opened(message, sender, Trace(getattr(message, "transfer_id", "none"))))

    async def _take(self, opened: Opened) -> None:
        try:
            await self.node._dispatch(opened)
        except (MessageError, HomeUnreachable, HomeRefused):
            self.counts["dropped"] += 1
        if self.counts["internal_error"]:
            self._witness.faulty(self.name, "ran into an error of its own")

    async def _repeat_questions(self, admissions: Admissions) -> None:
        """As `Admissions.serve`, which waits for an event of trio's."""
        while True:
            await pause(_LOOK_AGAIN_S)
            admissions._repeat(self._clock.monotonic_ns())

    def _tick_later(self) -> None:
        # At whole multiples of the period, as the real one, so that servers tick together.
        now_ns = self._clock.monotonic_ns()
        self.process.after(((now_ns // _TICK_NS + 1) * _TICK_NS - now_ns) / 1e9, self._tick)

    def _tick(self) -> None:
        for holding in self.node.holdings:
            life = holding.life
            before = life.tick
            holding.cast(TickNow())
            if life.tick != before:
                self._witness.ticked(self.name, life)
        self._tick_later()

    # --- looking ---------------------------------------------------------------------------------------------------

    def holding(self, entity: str) -> Holding | None:
        """The entity, if it is here."""
        return self.node.holdings.get(entity) if self.process.is_running else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is leaving."""
        return not len(self.node.departures)
