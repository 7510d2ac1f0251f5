"""Peers who read one log, late by chance; what they say reaches it late by chance. All of it is drawn from one seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.persistence import PersistentTypes, dump
from batonpass.simserver.sync.timeline.sharing import PeerMessage, SharedInputRefused, TimelinePeer
from batonpass.simserver.sync.timeline.steward import TimeSteward
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Pay, make_village

NAMES = ("anna", "bert", "cleo", "dora")
CHUNK = 20
END = 240


def is_villager(sender: str, event: TimelineEvent) -> bool:
    return isinstance(event, Come | Leave | Pay) and sender != "mallory"


def new_peer(
    name: str, *, types: PersistentTypes = TYPES, make: Callable[[Accessor], object] = make_village
) -> TimelinePeer:
    peer = TimelinePeer(TimeSteward(make), types, lambda sender, _: sender != "mallory", chunk=CHUNK)
    peer.me = name
    return peer


@dataclass
class Room:
    """Peers and one log. What one says reaches it late by chance, in order; each reads it late by chance, in order."""

    seed: int
    peers: dict[str, TimelinePeer] = field(default_factory=dict)
    log: list[tuple[str, PeerMessage | None]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, list[tuple[int, PeerMessage]]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        for name in NAMES:
            self.enter(name, new_peer(name), 0)

    def enter(self, name: str, peer: TimelinePeer, place: int) -> None:
        self.peers[name], self.read[name], self.under_way[name], self.refused[name] = peer, place, [], []

    def say(self, sender: str, now: int, *messages: PeerMessage) -> None:
        self.under_way[sender] += [(now + self.dice.randrange(1, 15), message) for message in messages]

    def deliver(self, now: int, *, all_of_it: bool = False) -> None:
        for name, waiting in self.under_way.items():
            while waiting and (waiting[0][0] <= now or all_of_it):
                self.log.append((name, waiting.pop(0)[1]))
        for name in self.peers:
            until = len(self.log) if all_of_it else self.dice.randrange(self.read[name], len(self.log) + 1)
            while self.read[name] < until:
                self.hear(name, now, *self.log[self.read[name]])
                self.read[name] += 1

    def hear(self, name: str, now: int, sender: str, message: PeerMessage | None) -> None:
        try:
            answers = self.peers[name].leave(sender) if message is None else self.peers[name].receive(sender, message)
        except SharedInputRefused as error:
            self.refused[name].append(str(error))
        else:
            self.say(name, now, *answers)

    def come(self, name: str) -> None:
        """A newcomer begins with what a peer has in common with all, at the place of the log at which that peer is."""
        host = self.dice.choice(NAMES)
        peer = TimelinePeer.joined_untrusted(
            self.peers[host].shared_state(), TYPES, lambda sender, _: sender != "mallory", chunk=CHUNK
        )
        peer.me = name
        self.enter(name, peer, self.read[host])

    def play(self, name: str, now: int) -> None:
        peer = self.peers[name]
        # Speculatively, with what is known by now.
        peer.steward.run_until(min(now, END))
        if name in peer.members and self.dice.randrange(12) == 0:
            event = self.dice.choice([Come(self.dice.randrange(6)), Leave(), Pay(3)])
            number, given = peer.act(now, event)
            self.say(name, now, given)
            if self.dice.randrange(4) == 0:
                self.say(name, now, peer.take_back(number))

    def run(self, *, newcomer_at: int | None = None, gone_at: int | None = None) -> None:
        for now in range(END + 20):
            self.deliver(now)
            if now == newcomer_at:
                self.come("emil")
            if now == gone_at:
                # A peer that is gone may have sent a message that the log has later.
                self.log.append(("dora", None))
            for name in self.peers:
                if now < END:
                    self.play(name, now)
                if now % 10 == 9 or now == 0:
                    self.say(name, now, self.peers[name].promise(now + 1))
        for _ in range(4):
            # Until nobody has an answer.
            self.deliver(END + 20, all_of_it=True)

    def said(self, kind: type[PeerMessage]) -> list[PeerMessage]:
        return [message for _, message in self.log if isinstance(message, kind)]

    def states(self) -> set[bytes]:
        found = set()
        for peer in self.peers.values():
            snapshot = peer.steward.snapshot_before(END)
            assert snapshot is not None
            found.add(dump(snapshot, TYPES))
        return found

    def ends_equal(self) -> bool:
        shared = {peer.shared_state() for peer in self.peers.values()}
        refused = [self.refused[name] for name in NAMES]
        assert all(one == refused[0] for one in refused), "one rule for all"
        assert all(peer.settled >= END for peer in self.peers.values())
        return len(shared) == len(self.states()) == 1
