"""Whatever is put into the past and taken out of it: the history is that of a naive replay, to the byte (T3 to T6)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.persistence import dump, load_untrusted
from batonpass.simserver.sync.timeline.replay import FiatEvent, PlainReplay
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import beginning_of
from tests.budget import examples
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Pay, make_village

END = 240
inputs = st.one_of(
    st.builds(Come, st.integers(0, 5)), st.just(Leave()), st.builds(Pay, st.integers(-9, 9)), st.just(Pay(0))
)


class ChangedHistory(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.steward = TimeSteward(make_village)
        self.fiats: dict[int, FiatEvent] = {}
        self.removed: dict[int, FiatEvent] = {}
        self.inserted = 0
        self.frozen: list[tuple[object, bytes]] = []

    @rule(base=st.integers(0, END), event=inputs)
    def insert(self, base: int, event: TimelineEvent) -> None:
        if not self.steward.valid_since.allows(base):
            return
        self.inserted += 1
        fiat = FiatEvent(base, id_of(self.inserted % 5, self.inserted), event)
        self.steward.insert_fiat_event(*fiat)
        self.fiats[fiat.id] = fiat

    @precondition(lambda self: self.fiats)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        fiat = self.fiats[data.draw(st.sampled_from(sorted(self.fiats)))]
        if self.steward.valid_since.allows(fiat.base):
            self.steward.remove_fiat_event(fiat.base, fiat.id, fiat.event.priority)
            self.removed[fiat.id] = self.fiats.pop(fiat.id)

    @precondition(lambda self: self.removed)
    @rule(data=st.data())
    def insert_again(self, data: st.DataObject) -> None:
        fiat = self.removed.pop(data.draw(st.sampled_from(sorted(self.removed))))
        if self.steward.valid_since.allows(fiat.base):
            self.steward.insert_fiat_event(*fiat)
            self.fiats[fiat.id] = fiat

    @rule(base=st.integers(0, END + 60))
    def run(self, base: int) -> None:
        self.steward.run_until(base)

    @rule(steps=st.integers(1, 30))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.steward.step()

    @rule(base=st.integers(0, END))
    def look(self, base: int) -> None:
        snapshot = self.steward.snapshot_before(base)
        if snapshot is not None:
            found = dump(snapshot, TYPES)
            assert found == self.replayed(base)
            self.frozen = [*self.frozen[-2:], (snapshot, found)]

    @rule(base=st.integers(0, END))
    def reload(self, base: int) -> None:
        snapshot = self.steward.snapshot_before(base)
        if snapshot is None:
            return
        saved = dump(snapshot, TYPES)
        self.steward = load_untrusted(saved, TYPES)
        for fiat in self.fiats.values():
            if fiat.base >= base:
                self.steward.insert_fiat_event(*fiat)
        again = self.steward.snapshot_before(base)
        assert again is not None
        assert dump(again, TYPES) == saved

    @rule(base=st.integers(0, END // 2))
    def forget(self, base: int) -> None:
        self.steward.forget_before(base)

    @invariant()
    def snapshots_are_what_they_were(self) -> None:
        for snapshot, found in getattr(self, "frozen", []):
            assert dump(snapshot, TYPES) == found

    def teardown(self) -> None:
        snapshot = self.steward.snapshot_before(END)
        assert snapshot is not None
        assert dump(snapshot, TYPES) == self.replayed(END)

    def replayed(self, base: int) -> bytes:
        replay = PlainReplay(make_village, [fiat for fiat in self.fiats.values() if fiat.time < beginning_of(base)])
        replay.run_until(base)
        return dump(replay, TYPES)


TestChangedHistory = ChangedHistory.TestCase
TestChangedHistory.settings = settings(max_examples=examples(12), stateful_step_count=14, deadline=None)
