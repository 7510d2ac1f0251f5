"""A watcher of a topic knows what there is to see, however seldom it takes what it is told."""

from typing import Any

import cbor2
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.authority.fence import Fence
from batonpass.client.mirror import DoorMirror
from batonpass.simserver.players.sights import Sights
from batonpass.simserver.players.topics import TopicKey, Topics, TopicWatcher
from tests.budget import examples

NAMES = [f"alpha.e-{number}" for number in range(6)]
OWNERS = ["", "alpha.ada", "alpha.bob"]
KEYS = [
    TopicKey("entity", NAMES[0], 1, ""),
    TopicKey("entity", NAMES[1], 3, "alpha.bob"),
    TopicKey("owner", "alpha.ada", 2, ""),
    TopicKey("pattern", "alpha.e-[0-2]", 1, ""),
    TopicKey("cell", (0, 0), 1, ""),
    TopicKey("cell", (1, 0), 1, "alpha.ada"),
]


class Walls:
    """A world of positions, and of secrets that only one player sees."""

    cell_size = 10.0

    def position(self, state: Any) -> Any:
        return state["at"]

    def view(self, state: Any, player: str) -> Any:
        if state["secret"] and player != "alpha.ada":
            return None
        return {"at": state["at"], "n": state["n"]} if not player else state


class Client:
    """A watcher that takes what it is told when it likes."""

    def __init__(self) -> None:
        self.is_ready = True
        self.mirror = DoorMirror()
        self.watcher = TopicWatcher(self.tell)

    def tell(self, frame: bytes) -> bool:
        if self.is_ready:
            self.mirror.take_untrusted(cbor2.loads(frame))
        return self.is_ready


class TopicsModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = Walls()
        self.sights = Sights(self.world, lambda what: None)
        self.topics = Topics(self.sights)
        self.here: dict[str, tuple[str, Fence, int, Any]] = {}
        self.clients: list[tuple[TopicKey, Any, Client]] = []
        self.round = 0
        self.epoch = 0
        # What each topic could show when it was told last.
        self.told: dict[TopicKey, dict[str, tuple[str, int, Any]]] = {}

    states = st.fixed_dictionaries(
        {
            "at": st.tuples(st.integers(-5, 25), st.integers(-3, 12)).map(list),
            "n": st.integers(0, 3),
            "secret": st.booleans(),
        }
    )

    @rule(name=st.sampled_from(NAMES), owner=st.sampled_from(OWNERS), state=states, new_fence=st.booleans())
    def comes_or_changes_hands(self, name: str, owner: str, state: Any, new_fence: bool) -> None:
        self.epoch += new_fence
        tick = self.here[name][2] if name in self.here else 0
        self.here[name] = owner, Fence(self.epoch, 0), tick, state
        self.topics.show(name, "wall", owner, Fence(self.epoch, 0), tick, state)

    @rule(name=st.sampled_from(NAMES), state=states)
    def ticks(self, name: str, state: Any) -> None:
        if name in self.here:
            owner, fence, tick, _ = self.here[name]
            self.here[name] = owner, fence, tick + 1, state
        self.topics.stepped(name, self.here[name][2] if name in self.here else 1, state)

    @rule(name=st.sampled_from(NAMES))
    def leaves(self, name: str) -> None:
        self.here.pop(name, None)
        self.topics.remove(name)

    @rule(key=st.sampled_from(KEYS))
    def watches(self, key: TopicKey) -> None:
        client = Client()
        topic = self.topics.watch(key, client.watcher)
        is_new = topic.is_new
        self.clients.append((key, topic, client))
        self.topics.begin(topic, client.watcher, self.round)
        if is_new:
            self.told[key] = self.visible(key)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def looks_away_or_back(self, data: st.DataObject) -> None:
        _, _, client = data.draw(st.sampled_from(self.clients))
        client.is_ready = not client.is_ready

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.clients) - 1))
        _, topic, client = self.clients.pop(place)
        self.topics.unwatch(topic, client.watcher)

    @rule(rounds=st.integers(1, 4))
    def rounds_pass(self, rounds: int) -> None:
        self.round += rounds
        due = [key for key, topic, _ in self.clients if self.round >= topic.due]
        self.topics.tell(self.round)
        for key in due:
            self.told[key] = self.visible(key)

    def visible(self, key: TopicKey) -> dict[str, tuple[str, int, Any]]:
        """What the topic has to show by its definition, and by nothing of the code that is tried."""
        found = {}
        for name, (owner, _, tick, state) in self.here.items():
            sight = self.sights.get(name)
            assert sight is not None
            shown = {
                "entity": name == key.of,
                "owner": bool(owner) and owner == key.of,
                "pattern": key.kind == "pattern" and name[-1] in "012",
                "cell": sight.cell == key.of,
            }[key.kind]
            seen = self.world.view(state, key.viewer)
            if shown and seen is not None:
                found[name] = owner, tick, seen
        return found

    @invariant()
    def those_who_take_what_they_are_told_know_it(self) -> None:
        for key, topic, client in self.clients:
            if not client.is_ready or client.watcher.frame != topic.frame:
                continue
            known = {entity.name: (entity.owner, entity.state) for entity in client.mirror}
            assert known == {name: (owner, seen) for name, (owner, _, seen) in self.told[key].items()}

    def teardown(self) -> None:
        """Once all look, and all is told, everybody knows everything."""
        for _, _, client in self.clients:
            client.is_ready = True
        self.round += 10
        self.topics.tell(self.round)
        for key, _, client in self.clients:
            known = {entity.name: (entity.owner, entity.state) for entity in client.mirror}
            assert known == {name: (owner, seen) for name, (owner, _, seen) in self.visible(key).items()}
        for _, topic, client in self.clients:
            self.topics.unwatch(topic, client.watcher)
        assert len(self.topics) == 0
        assert all(not sight.topics for sight in self.sights)


TestTopics = TopicsModel.TestCase
TestTopics.settings = settings(max_examples=examples(200), stateful_step_count=40)
