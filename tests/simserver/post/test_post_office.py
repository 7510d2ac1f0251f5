"""Messages brought by two servers that are joined in memory: what is refused and why, what waits, who is believed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, cast

import pytest
import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.messages import AuthorityRequest, AuthorityWord, EntityMessageAnswers, EntityMessages
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import decode_message_untrusted, encode_message
from batonpass.scenarios.simulation.kernel.attendance import Attendant
from batonpass.simserver.entity.actor import TickNow
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings, Tombstone
from batonpass.simserver.mail.outbox import FIRST_WAIT_NS, LATER_NS, MAX_WAIT_NS
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.post.post_office import PostOffice
from batonpass.simserver.world.messages import MAX_MESSAGE_BYTES, MAX_OUTBOX, MAX_PAIR, MessageRefusal
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import ports_of
from tests.simserver.stage import Stage

pytestmark = pytest.mark.usefixtures("either_kind")

ADA: Final = "alpha.ada"
BOB: Final = "alpha.bob"
HERE: Final = "alpha.s1"
THERE: Final = "alpha.s2"


class Letters:
    """A world whose entities send what a test says, and write down what comes."""

    takes_messages = True

    def __init__(self) -> None:
        self.to_send: dict[str, list[tuple[str, bytes]]] = {}
        self.fails: set[str] = set()
        self.numbers: list[tuple[int, int]] = []

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"had": [], "refused": []}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        raise NotImplementedError

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        if step.entity in self.fails:
            raise ZeroDivisionError("poison")
        for to, data in self.to_send.pop(step.entity, ()):
            self.numbers.append(step.send(to, data))
        had = [[one.sender, one.data] for one in step.messages]
        refused = [[one.to, list(one.number), one.reason.value] for one in step.refused]
        return {"had": state["had"] + had, "refused": state["refused"] + refused}

    def may_sleep(self, state: Any) -> bool:
        return True

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None


class Home:
    """What the log says of entities."""

    def __init__(self) -> None:
        self.servers: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.is_away = False
        self.asked = 0

    async def ask(self, message: Any, trace: Trace, **_: Any) -> OpenedMessage:
        assert isinstance(message, AuthorityRequest)
        self.asked += 1
        if self.is_away:
            raise HomeUnreachable("away")
        server = self.servers.get(message.entity)
        standing = "known" if server is not None else "deleted" if message.entity in self.deleted else "unknown"
        word = AuthorityWord(entity=message.entity, standing=cast(Any, standing), server=server or "", epoch=1)
        return OpenedMessage(word, "alpha.h1", trace)


class Post:
    """Between the servers: what was sent waits until it is delivered, and is read as it would be on the wire."""

    def __init__(self) -> None:
        self.offices: dict[str, PostOffice] = {}
        self.waiting: list[tuple[str, str, bytes]] = []

    def deliver(self) -> None:
        waiting, self.waiting = self.waiting, []
        for sender, to, body in waiting:
            message = decode_message_untrusted(body)
            if to not in self.offices:
                continue
            if isinstance(message, EntityMessages):
                self.offices[to].came(message, sender)
            elif isinstance(message, EntityMessageAnswers):
                self.offices[to].answered(message, sender)


class Way:
    """The outbox of one server."""

    def __init__(self, server: str, post: Post) -> None:
        self.server = server
        self.post = post

    def send(self, message: Any, trace: Trace, to: str, **_: Any) -> bool:
        self.post.waiting.append((self.server, to, encode_message(message)))
        return True


class NoCopies:
    """Of a server on which what is committed is durable, or of one whose copies are kept when a test says so."""

    def __init__(self) -> None:
        self.copies = False
        self.told: Any = None
        self.copied: list[str] = []

    async def copy_now(self, due: Sequence[Any]) -> None:
        self.copied += [one.id for one in due]

    def tell_of_durable(self, durable: Any) -> None:
        self.told = durable


class Tasks:
    """Runs what is started when it is asked to."""

    def __init__(self) -> None:
        self.started: list[tuple[Any, tuple[Any, ...]]] = []

    def start_soon(self, function: Any, /, *args: Any) -> None:
        self.started.append((function, args))

    def run(self) -> None:
        started, self.started = self.started, []
        for function, args in started:
            trio.run(function, *args)


class Server:
    """One server: its entities, and its post office."""

    def __init__(self, name: str, home: Home, post: Post, world: Any) -> None:
        self.stage = Stage(cast(Any, None), name, world)
        self.world = world
        self.holdings = Holdings(self.stage.environment, Written())
        self.holdings.actor_keeper = cast(Any, Attendant(self.stage.environment))
        object.__setattr__(self.stage.environment, "wants_actor", self.holdings.wants_actor)
        self.copies = NoCopies()
        ports = ports_of(name, home=home, outbox=Way(name, post), clock=self.stage_clock(), counts=Counter())
        self.office = post.offices[name] = PostOffice(ports, self.stage.environment, self.holdings, self.copies)
        self.tasks = Tasks()
        self.office.routes.begin(self.tasks)

    def stage_clock(self) -> Any:
        server = self

        class StageClock(Clock):
            def monotonic_ns(self) -> int:
                return server.stage.now_ns

        return StageClock()

    def life(self, entity: str) -> Life:
        holding = self.holdings.get(entity)
        assert holding is not None
        return holding.life

    def had(self, entity: str) -> list[bytes]:
        return [data for _, data in self.life(entity).look()["had"]]

    def refused(self, entity: str) -> list[tuple[str, str]]:
        return [(to, reason) for to, _, reason in self.life(entity).look()["refused"]]

    def tick(self) -> None:
        self.stage.environment.rounds.count += 1
        if self.holdings.batch is not None:
            self.holdings.batch.tick()
            return
        for holding in self.holdings:
            holding.cast(TickNow())


class World:
    """Two servers: ada lives on one, and bob on the other."""

    def __init__(self, other: Any = None) -> None:
        self.home, self.post = Home(), Post()
        self.one = Server(HERE, self.home, self.post, Letters())
        self.two = Server(THERE, self.home, self.post, other or Letters())
        self.servers = {HERE: self.one, THERE: self.two}
        self.spawn(ADA, HERE)
        self.spawn(BOB, THERE)

    def spawn(self, entity: str, server: str) -> None:
        self.servers[server].holdings.spawn(entity, "letters", {}, Fence(1))
        self.home.servers[entity] = server

    def go_on(self, rounds: int = 4, later_ns: int = 50_000_000, *, ticks: bool = True) -> None:
        for _ in range(rounds):
            for server in self.servers.values():
                server.stage.now_ns += later_ns
                if ticks:
                    server.tick()
            for _ in range(4):
                for server in self.servers.values():
                    server.office._bring(server.stage.now_ns)
                    server.tasks.run()
                self.post.deliver()

    def send(self, *messages: tuple[str, bytes], sender: str = ADA) -> None:
        server = self.servers[self.home.servers[sender]]
        server.world.to_send[sender] = list(messages)
        server.life(sender).wake()

    def move(self, entity: str, to: str) -> None:
        """As a hand-over ends: the state is elsewhere under a higher fence, and the log says so."""
        source = self.servers[self.home.servers[entity]]
        life = source.life(entity)
        frozen, fence = life.freeze(), life.fence.raised()
        assert frozen is not None
        source.holdings.leave(entity, to, fence)
        self.servers[to].holdings.start(entity, fence, EntitySnapshot.decode(frozen.state))
        self.home.servers[entity] = to


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_sent_comes_once_and_in_order_to_another_server_and_to_ones_own(world: World) -> None:
    world.spawn("alpha.cyd", HERE)
    world.send((BOB, b"1"), ("alpha.cyd", b"2"), (BOB, b"3"), (ADA, b"4"))
    world.go_on()
    assert world.two.had(BOB) == [b"1", b"3"]
    assert world.one.had("alpha.cyd") == [b"2"]
    assert world.one.had(ADA) == [b"4"]
    life = world.one.life(ADA)
    assert life.mail is not None
    assert life.inspected(with_state=False)["messages"]["outbox"] == 0
    assert world.one.stage.environment.mail.budget.used_bytes == 0


def test_it_wakes_a_sleeping_receiver_and_lets_it_sleep_again(world: World) -> None:
    world.go_on(1)
    assert world.two.life(BOB).sleep is not None
    assert world.two.life(BOB).passivate()
    world.send((BOB, b"1"))
    world.go_on()
    assert world.two.had(BOB) == [b"1"]
    assert world.two.life(BOB).sleep is not None


def test_it_follows_a_receiver_and_goes_on_from_where_its_sender_is(world: World) -> None:
    world.send((BOB, b"1"))
    world.go_on()
    world.send((BOB, b"2"))
    world.one.tick()
    world.move(BOB, HERE)
    world.move(ADA, THERE)
    world.go_on(12)
    assert world.one.had(BOB) == [b"1", b"2"]
    world.move(BOB, THERE)
    world.send((BOB, b"3"))
    world.go_on(12)
    assert world.two.had(BOB) == [b"1", b"2", b"3"]


def test_a_server_that_an_entity_has_left_says_where_it_went_before_the_log_knows(world: World) -> None:
    world.send((BOB, b"1"))
    world.go_on()
    life = world.two.life(BOB)
    frozen, fence = life.freeze(), life.fence.passed()
    assert frozen is not None
    world.two.holdings.leave(BOB, HERE, fence)
    world.one.holdings.start(BOB, fence, EntitySnapshot.decode(frozen.state))
    world.spawn("alpha.cyd", THERE)
    world.send((BOB, b"2"), sender="alpha.cyd")
    world.go_on(12)
    assert world.one.had(BOB) == [b"1", b"2"]
    assert world.home.servers[BOB] == THERE


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("alpha.nobody", MessageRefusal.NO_SUCH_ENTITY),
        ("no name at all", MessageRefusal.NO_SUCH_ENTITY),
        ("alpha.gone", MessageRefusal.DELETED),
    ],
)
def test_a_sender_hears_why_there_is_nobody_to_take_it(world: World, to: str, reason: MessageRefusal) -> None:
    world.home.deleted.add("alpha.gone")
    world.send((to, b"1"), (BOB, b"2"), (to, b"3"))
    world.go_on(8)
    assert world.one.refused(ADA) == [(to, reason)] * 2
    assert world.two.had(BOB) == [b"2"]
    numbers = [tuple(number) for _, number, _ in world.one.life(ADA).look()["refused"]]
    assert numbers == [world.one.world.numbers[0], world.one.world.numbers[2]]
    assert world.one.stage.counts[f"message_refused_{reason}"] == 2


def test_a_world_that_takes_no_messages_is_sent_none() -> None:
    quiet = Letters()
    quiet.takes_messages = False
    world = World(quiet)
    world.send((BOB, b"1"))
    world.go_on(8)
    assert world.two.had(BOB) == []
    assert world.one.refused(ADA) == [(BOB, MessageRefusal.NOT_TAKEN)]


def test_a_world_that_sends_and_does_not_say_so_has_failed() -> None:
    quiet = Letters()
    quiet.takes_messages = False
    world = World(quiet)
    world.send((ADA, b"1"), sender=BOB)
    world.go_on()
    assert "takes_messages" in world.two.life(BOB).quarantine_reason
    assert world.one.had(ADA) == []


def test_what_is_too_large_or_too_much_is_refused_with_the_next_tick_and_the_rest_comes(world: World) -> None:
    world.home.is_away = True
    large = bytes(MAX_MESSAGE_BYTES + 1)
    world.send((BOB, large), *((BOB, b"%d" % number) for number in range(MAX_PAIR + 2)))
    world.go_on()
    assert world.one.refused(ADA) == [(BOB, "too_large"), (BOB, "full"), (BOB, "full")]
    world.send(*((f"alpha.x{number % 100}", b"") for number in range(MAX_OUTBOX)))
    world.go_on()
    assert [reason for _, reason in world.one.refused(ADA)].count("full") == 2 + MAX_PAIR
    world.home.is_away = False
    world.go_on(60, MAX_WAIT_NS // 8)
    assert world.two.had(BOB) == [b"%d" % number for number in range(MAX_PAIR)]


def test_a_quarantined_receiver_is_held_back_for_and_has_all_of_it_once_it_is_released(world: World) -> None:
    world.two.world.fails.add(BOB)
    world.send(*((BOB, b"%d" % number) for number in range(MAX_PAIR)))
    world.go_on()
    assert world.two.life(BOB).quarantine_reason
    world.go_on(10, LATER_NS)
    world.two.world.fails.clear()
    world.send(*((BOB, b"%d" % number) for number in range(MAX_PAIR, MAX_PAIR + 9)))
    world.go_on(4, LATER_NS)
    world.two.life(BOB).release()
    world.go_on(10, MAX_WAIT_NS)
    assert len(world.two.had(BOB)) >= MAX_PAIR
    assert world.two.had(BOB) == [b"%d" % number for number in range(len(world.two.had(BOB)))]


def test_what_a_receiver_fails_on_can_be_discarded_and_is_not_sent_again(world: World) -> None:
    world.two.world.fails.add(BOB)
    world.send((BOB, b"poison"))
    world.go_on()
    world.two.world.fails.clear()
    assert world.two.life(BOB).release(discard_inputs=True)
    world.send((BOB, b"2"))
    world.go_on(6, LATER_NS)
    assert world.two.had(BOB) == [b"2"]
    assert world.one.life(ADA).inspected(with_state=False)["messages"]["outbox"] == 0


def test_nothing_leaves_before_a_copy_is_kept_not_even_to_an_entity_of_the_same_server(world: World) -> None:
    world.spawn("alpha.cyd", HERE)
    world.one.copies.copies = True
    world.send((BOB, b"1"), ("alpha.cyd", b"2"))
    world.go_on(4, FIRST_WAIT_NS)
    assert (world.two.had(BOB), world.one.had("alpha.cyd")) == ([], [])
    assert world.post.waiting == []
    life = world.one.life(ADA)
    world.one.copies.told(ADA, Fence(9), life.tick)
    world.go_on()
    assert world.two.had(BOB) == [], "of another custody term"
    world.one.copies.told(ADA, life.fence, life.tick)
    world.go_on()
    assert (world.two.had(BOB), world.one.had("alpha.cyd")) == ([b"1"], [b"2"])


def test_it_stays_in_the_outbox_until_it_is_durable_where_it_was_applied(world: World) -> None:
    world.two.copies.copies = True
    world.send((BOB, b"1"))
    world.go_on(8)
    ada, bob = world.one.life(ADA), world.two.life(BOB)
    assert world.two.had(BOB) == [b"1"]
    assert ada.inspected(with_state=False)["messages"]["outbox"] == 1
    world.two.copies.told(BOB, bob.fence, bob.tick)
    world.go_on(2)
    assert ada.inspected(with_state=False)["messages"]["outbox"] == 0


def test_a_server_is_not_believed_about_entities_that_home_gives_to_another(world: World) -> None:
    world.send((BOB, b"1"))
    world.one.tick()
    world.one.office._bring(world.one.stage.now_ns)
    world.home.servers[ADA] = "alpha.s9"
    world.go_on(4, ticks=False)
    assert world.two.had(BOB) == []
    assert world.two.stage.counts["messages_unproved"] > 0
    world.home.servers[ADA] = HERE
    world.go_on(8, FIRST_WAIT_NS)
    assert world.two.had(BOB) == [b"1"]


def test_only_the_server_that_was_asked_may_answer(world: World) -> None:
    world.send((BOB, b"1"))
    world.one.tick()
    for _ in range(2):
        world.one.office._bring(world.one.stage.now_ns)
        world.one.tasks.run()
    (sent,) = [body for _, to, body in world.post.waiting if to == THERE]
    world.post.waiting.clear()
    message = decode_message_untrusted(sent)
    assert isinstance(message, EntityMessages)
    number = message.pairs[0].items[0].number
    for verdict in ("taken", "not_taken", "elsewhere"):
        answer = {"sender": ADA, "to": BOB, "verdict": verdict, "accepted": number, "durable": number, "at": (9, 0, 9)}
        said = EntityMessageAnswers.model_validate({"answers": [answer | {"moved_to": "beta.s9"}]}, strict=False)
        world.one.office.answered(said, "beta.s9")
    world.go_on(8, FIRST_WAIT_NS)
    assert world.two.had(BOB) == [b"1"]
    assert world.one.refused(ADA) == []


def test_without_a_lease_nothing_is_sent_and_nothing_is_taken(world: World) -> None:
    world.send((BOB, b"1"))
    world.one.tick()
    object.__setattr__(world.one.stage.environment, "may_act", lambda now_ns: False)
    world.go_on(4, FIRST_WAIT_NS, ticks=False)
    assert world.post.waiting == []
    object.__setattr__(world.one.stage.environment, "may_act", lambda now_ns: True)
    object.__setattr__(world.two.stage.environment, "may_act", lambda now_ns: False)
    world.go_on(4, FIRST_WAIT_NS, ticks=False)
    bob = world.two.life(BOB)
    assert bob.mail is None
    object.__setattr__(world.two.stage.environment, "may_act", lambda now_ns: True)
    world.go_on(8, FIRST_WAIT_NS)
    assert world.two.had(BOB) == [b"1"]


def test_a_frozen_entity_takes_none_and_has_it_once_it_is_resumed_or_where_it_went(world: World) -> None:
    life = world.two.life(BOB)
    frozen = life.freeze()
    world.send((BOB, b"1"))
    world.go_on(4)
    assert frozen is not None
    assert life.encoded() == frozen.state
    life.resume(life.fence.raised())
    world.go_on(12)
    assert world.two.had(BOB) == [b"1"]


def test_while_home_is_away_it_waits(world: World) -> None:
    world.home.is_away = True
    world.send((BOB, b"1"))
    world.go_on(8)
    assert world.one.refused(ADA) == []
    world.home.is_away = False
    world.go_on(12)
    assert world.two.had(BOB) == [b"1"]


def test_the_cursors_of_senders_that_have_closed_are_forgotten(world: World) -> None:
    for number in range(200):
        name = f"alpha.x{number}"
        world.spawn(name, HERE)
        world.send((BOB, b"%d" % number), sender=name)
    world.go_on(12, LATER_NS)
    assert len(world.two.had(BOB)) == 200
    world.send((BOB, b"again"), sender="alpha.x0")
    world.go_on(12, LATER_NS)
    assert world.two.had(BOB)[200:] == [b"again"]
    mail = world.two.life(BOB).mail
    assert mail is not None
    assert len(mail.received.cursors) < 100
    assert mail.received.forgot is not None


def test_an_entity_that_has_left_says_so(world: World) -> None:
    world.two.holdings.remember("alpha.far", Tombstone("beta.s1", Fence(4)))
    world.home.servers["alpha.far"] = THERE
    world.send(("alpha.far", b"1"))
    world.go_on(2)
    assert world.one.office.routes.to("alpha.far") == "beta.s1"
