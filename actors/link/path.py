"""Where the peer is: traffic moves to another address only when the peer has answered there (RFC 9000, section 9).

An authenticated datagram says which peer wrote it, and not where that is: an attacker on the way may copy it and send
the copy from elsewhere. So another address is *asked* first, with a number that only the peer can read, and so is the
address known until then. The traffic moves when the new one has answered, the old one has had a probe timeout to
answer, and has not. When the peer is heard from the old one, the new one is dismissed (section 9.3.3, the forwarding
attacker).

A peer met for the first time, or restarted, has no old address. If the handshake does not prove where it is, at most
three times what came from there is sent there until it has answered (section 8.1).
"""

from collections.abc import Callable, Iterator
from typing import Final

from batonpass.actors.link.settings import NEVER, Address

AMPLIFICATION: Final = 3
"""What may be sent to an address that has not answered yet, as a multiple of what came from it (RFC 9000 section 8)."""

GIVE_UP_AFTER_S: Final = 1.0
"""An address that has not answered for so long, or for 3 probe timeouts, is forgotten."""

PAUSE_S: Final = 1.0
"""After an address was dismissed, nothing else is asked for so long: copies sent from many places cost little."""


class _Probe:
    """An address that is being asked whether the peer is there."""

    __slots__ = (
        "address",
        "end_s",
        "grace_s",
        "interval_s",
        "is_answered",
        "known_token",
        "next_s",
        "received_bytes",
        "sent_bytes",
        "token",
    )

    def __init__(self, address: Address, token: int, known_token: int, timeout_s: float, now: float) -> None:
        self.address = address
        self.token = token
        self.known_token = known_token
        self.is_answered = False
        self.received_bytes = 0
        self.sent_bytes = 0
        self.next_s = now
        self.interval_s = timeout_s
        self.grace_s = now + timeout_s
        self.end_s = now + max(GIVE_UP_AFTER_S, 3 * timeout_s)

    def may_send(self, size_bytes: int) -> bool:
        return self.sent_bytes + size_bytes <= AMPLIFICATION * self.received_bytes


class Path:
    """The address of one peer. `new_token` draws 64 unpredictable bits."""

    __slots__ = ("_new_token", "_pause_until_s", "_probe", "address", "is_proved")

    def __init__(self, new_token: Callable[[], int]) -> None:
        self._new_token = new_token
        self._probe: _Probe | None = None
        self._pause_until_s = -NEVER
        self.address: Address | None = None
        """Where traffic goes."""
        self.is_proved = True
        """Whether the peer has shown that it receives at `address`; if not, `may_send` and `note_sent` bound what goes
        there."""

    @property
    def is_asking(self) -> bool:
        """An address is being asked: every newest datagram matters to `on_arrival`, wherever it comes from."""
        return self._probe is not None or not self.is_proved

    def prove(self, address: Address) -> bool:
        """A handshake has shown that the peer receives at `address`; True when that is another one than before."""
        is_other = self.address not in {None, address}
        self.address = address
        self.is_proved = True
        self._probe = None
        return is_other

    def suppose(self, source: Address, size_bytes: int, timeout_s: float, now: float) -> bool:
        """The peer, new or restarted, wrote from `source`, which proves nothing; True when that is another address
        than before."""
        is_other = self.address not in {None, source}
        self.address = source
        self.is_proved = False
        self._ask(source, size_bytes, timeout_s, now)
        return is_other

    def on_arrival(self, source: Address, size_bytes: int, timeout_s: float, now: float) -> None:
        """The newest authenticated datagram so far came from `source`."""
        probe = self._probe
        if probe is not None and source == probe.address:
            probe.received_bytes += size_bytes
        elif not self.is_proved:
            self.suppose(source, size_bytes, timeout_s, now)
        elif source == self.address:
            if probe is not None:  # the peer writes from where it was all the time
                self._dismiss(now)
        elif now >= self._pause_until_s:
            self._ask(source, size_bytes, timeout_s, now)

    def _ask(self, address: Address, size_bytes: int, timeout_s: float, now: float) -> None:
        self._probe = _Probe(address, self._new_token(), self._new_token(), timeout_s, now)
        self._probe.received_bytes = size_bytes

    def _dismiss(self, now: float) -> None:
        self._probe = None
        self._pause_until_s = now + PAUSE_S

    def on_response(self, token: int, now: float) -> bool:
        """The peer has answered a challenge, so it receives where that went; True when the traffic moves now.

        Wherever the answer comes from: an attacker who copies faster than the path may have sent it.
        """
        probe = self._probe
        if probe is None:
            return False
        if token == probe.token:
            if not self.is_proved:
                self.prove(probe.address)
                return False
            probe.is_answered = True
            return self._move_if_due(probe, now)
        if token == probe.known_token:
            self._dismiss(now)
        return False

    def _move_if_due(self, probe: _Probe, now: float) -> bool:
        if not probe.is_answered or now < probe.grace_s:
            return False
        return self.prove(probe.address)

    def next_timer(self) -> float:
        """When `run_timers` and `due_challenges` have something to do."""
        probe = self._probe
        if probe is None:
            return NEVER
        return min(probe.grace_s, probe.end_s) if probe.is_answered else min(probe.next_s, probe.end_s)

    def run_timers(self, now: float) -> bool:
        """True when the traffic moves now."""
        probe = self._probe
        if probe is None:
            return False
        if self._move_if_due(probe, now):
            return True
        if now >= probe.end_s:
            self._dismiss(now)
        return False

    def due_challenges(self, size_bytes: int, now: float) -> Iterator[tuple[int, Address]]:
        """Challenges to send (again) now, each in a datagram of `size_bytes`: the number, and where to."""
        probe = self._probe
        if probe is None or probe.is_answered or now < probe.next_s:
            return
        probe.next_s = now + probe.interval_s
        probe.interval_s *= 2
        if probe.may_send(size_bytes):
            probe.sent_bytes += size_bytes
            yield probe.token, probe.address
        if self.is_proved and self.address is not None:
            yield probe.known_token, self.address

    def may_send(self, size_bytes: int) -> bool:
        """Whether a datagram may go to `address`."""
        return self.is_proved or (self._probe is not None and self._probe.may_send(size_bytes))

    def note_sent(self, size_bytes: int) -> None:
        """A datagram has gone to `address`, which is not proved."""
        if self._probe is not None:
            self._probe.sent_bytes += size_bytes

    def spend(self, size_bytes: int) -> bool:
        """Whether a datagram may go to `address`; if so, it counts as sent."""
        if self.is_proved:
            return True
        if not self.may_send(size_bytes):
            return False
        self.note_sent(size_bytes)
        return True
