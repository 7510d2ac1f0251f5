"""Histories that are changed at random, against a naive replay, and histories that peers share.

python -m tests.simserver.sync.timeline.long_run --seeds 2000 --shared 500

Two runs under two hash seeds (PYTHONHASHSEED) have to print the same line.
"""

import argparse
import random
import sys
from hashlib import sha256

from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.persistence import dump, load_untrusted
from batonpass.simserver.sync.timeline.replay import FiatEvent, PlainReplay
from batonpass.simserver.sync.timeline.snapshot import TimelineSnapshot
from batonpass.simserver.sync.timeline.steward import TimeSteward
from tests.simserver.sync.timeline.sharing_room import END as SHARED_END
from tests.simserver.sync.timeline.sharing_room import Room
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Pay, make_village

END = 240


class ChangedAtRandom:
    """A history of which the past is changed, shown, saved, loaded and forgotten, in an order that a seed says."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.steward = TimeSteward(make_village)
        self.fiats: dict[int, FiatEvent] = {}
        self.removed: list[FiatEvent] = []
        self.shown: list[tuple[TimelineSnapshot, bytes]] = []
        self.inserted = 0

    def run(self, changes: int) -> bytes:
        """Make changes; returns the state at the end, which is asserted to be right, as all snapshots are."""
        for _ in range(changes):
            self.dice.choice((self.insert, self.insert, self.insert, self.remove, self.advance, self.look))()
        found = self.state(END)
        replay = PlainReplay(make_village, self.fiats.values())
        replay.run_until(END)
        assert dump(replay, TYPES) == found
        for snapshot, was in self.shown:
            assert dump(snapshot, TYPES) == was
        return found

    def insert(self) -> None:
        self.inserted += 1
        event = self.dice.choice((Come(self.dice.randrange(6)), Leave(), Pay(self.dice.randrange(5)), Pay(0)))
        fiat = FiatEvent(self.dice.randrange(END), id_of(self.inserted), event)
        if self.removed and self.dice.randrange(3) == 0:
            # Perhaps before it was undone.
            fiat = self.removed.pop()
        if self.steward.valid_since.allows(fiat.base):
            self.steward.insert_fiat_event(*fiat)
            self.fiats[fiat.id] = fiat

    def remove(self) -> None:
        if not self.fiats:
            return
        fiat = self.dice.choice(list(self.fiats.values()))
        if self.steward.valid_since.allows(fiat.base):
            self.steward.remove_fiat_event(fiat.base, fiat.id, fiat.event.priority)
            self.removed.append(self.fiats.pop(fiat.id))

    def advance(self) -> None:
        self.steward.run_until(self.dice.randrange(END + 60))

    def look(self) -> None:
        base = self.dice.randrange(END)
        snapshot = self.steward.snapshot_before(base)
        if snapshot is None:
            return
        saved = dump(snapshot, TYPES)
        self.shown.append((snapshot, saved))
        if self.dice.randrange(4) == 0:
            self.steward.forget_before(base - 30)
        if self.dice.randrange(4) == 0:
            self.steward = load_untrusted(saved, TYPES)
            for fiat in self.fiats.values():
                if fiat.base >= base:
                    self.steward.insert_fiat_event(*fiat)

    def state(self, base: int) -> bytes:
        snapshot = self.steward.snapshot_before(base)
        assert snapshot is not None
        return dump(snapshot, TYPES)


def shared_at_random(seed: int) -> bytes:
    """Have peers share a history, of whom one may come and one may go; returns the state with which all end."""
    room, dice = Room(seed), random.Random(seed)
    newcomer_at, gone_at = (dice.randrange(1, SHARED_END - 20) if dice.randrange(3) else None for _ in range(2))
    room.run(newcomer_at=newcomer_at, gone_at=gone_at)
    assert room.ends_equal(), seed
    assert not any(peer.divergence for peer in room.peers.values()), seed
    (state,) = room.states()
    return state


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simserver.sync.timeline.long_run")
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--shared", type=int, default=500, help="how many seeds of peers")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    digest = sha256()
    for seed in range(flags.seed, flags.seed + flags.seeds):
        digest.update(ChangedAtRandom(seed).run(24))
    for seed in range(flags.seed, flags.seed + flags.shared):
        digest.update(shared_at_random(seed))
    sys.stdout.write(f"{flags.seeds} histories and {flags.shared} shared ones: {digest.hexdigest()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
