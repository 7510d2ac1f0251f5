"""From datagrams and trains of them to the links that they are for, by the session id in the fixed header.

Nothing else is read here. What the kernel has glued together is cut by the size that it reports, and given to its link
in as few pieces as possible.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from batonpass.actors.link import Address, Link
from batonpass.actors.link.frames import HEADER, HEADER_BYTES, DatagramKind, data_run_length, read_header_untrusted
from batonpass.actors.link.prediction import UNUSUAL
from batonpass.actors.net.datagrams import Arrival, segments_of
from batonpass.crypto.errors import Malformed

__all__ = ["Demultiplexer", "Heard"]

_HELLO: Final = int(DatagramKind.HELLO)
_DATA: Final = int(DatagramKind.DATA)

_LARGE_BYTES: Final = 4096
"""From here on it pays to look whether several datagrams belong together."""

Heard = dict[Link, None]
"""The links that got something, in the order in which they did."""


class Demultiplexer:
    """`links` is who owns which session id; `on_hello(counter, body, source, now)` takes what has none yet, and raises
    Malformed. `counters` counts what is dropped. What else is raised is an error of ours, and ends nothing but the link
    that it is in. `on_fault` is told, with None for what has none yet.
    """

    def __init__(
        self,
        links: dict[int, Link | None],
        counters: Counter[str],
        on_hello: Callable[[int, bytes, Address, float], None],
        on_fault: Callable[[Link | None, Exception], None],
    ) -> None:
        self._links = links
        self._counters = counters
        self._on_hello = on_hello
        self._on_fault = on_fault

    def on_arrivals(self, arrived: Sequence[Arrival], now: float, heard: Heard) -> None:
        """What has arrived, datagrams and trains. Budget: 1 us each beside what the link does."""
        at = 0
        while at < len(arrived):
            datagram, segment_bytes, source = arrived[at]
            if segment_bytes:
                self.on_train(bytes(datagram), segment_bytes, source, now, heard)
            elif len(datagram) >= _LARGE_BYTES and (taken := self._take_pieces(arrived[at:], now, heard)):
                at += taken
                continue
            else:
                _, link = self.on_datagram(datagram, source, now)
                if link is not None:
                    heard[link] = None
            at += 1

    def _take_pieces(self, arrived: Sequence[Arrival], now: float, heard: Heard) -> int:
        """Let a link take as many as it can of large datagrams of one session with counters in sequence; how many."""
        datagram, _, source = arrived[0]
        kind, zero, zeros, session_id, counter = HEADER.unpack_from(datagram)
        link = self._links.get(session_id)
        if kind != _DATA or zero or zeros or link is None:
            return 0
        run = [datagram]
        for following, segment_bytes, its_source in arrived[1:]:
            if (
                segment_bytes
                or its_source != source
                or len(following) != len(datagram)
                or HEADER.unpack_from(following) != (_DATA, 0, 0, session_id, counter + len(run))
            ):
                break
            run.append(following)
        try:
            taken = link.receive_pieces(session_id, counter, run, now, source) if len(run) > 1 else 0
        except Exception as error:
            self._on_fault(link, error)
            return len(run)
        if taken:
            heard[link] = None
        return taken

    def on_datagram(self, datagram: memoryview, source: Address, now: float) -> tuple[int, Link | None]:
        """What `Link.receive_data` says of it, or UNUSUAL, and the link that has got it, if there is one.

        Budget: 0.6 us beside what the link does with it.
        """
        if len(datagram) < HEADER_BYTES:
            self._counters["dropped_malformed"] += 1
            return UNUSUAL, None
        kind, zero, zeros, session_id, counter = HEADER.unpack_from(datagram)
        if kind == _DATA and not zero and not zeros:
            link = self._links.get(session_id)
            if link is not None:
                try:
                    return link.receive_data(session_id, counter, datagram, now, source), link
                except Exception as error:
                    self._on_fault(link, error)
                    return UNUSUAL, None
            self._counters["dropped_no_session"] += 1
            return UNUSUAL, None
        return UNUSUAL, self._on_handshake(datagram, now, source)

    def _on_handshake(self, datagram: memoryview, now: float, source: Address) -> Link | None:
        try:
            kind, session_id, counter = read_header_untrusted(datagram)
            if kind == _HELLO:
                self._on_hello(counter, bytes(datagram[HEADER_BYTES:]), source, now)
                return None
        except Malformed:
            self._counters["dropped_malformed"] += 1
            return None
        except Exception as error:
            self._on_fault(None, error)
            return None
        link = self._links.get(session_id)
        if link is None:
            self._counters["dropped_no_session"] += 1
            return None
        try:
            link.receive(datagram, now, source)
        except Exception as error:
            self._on_fault(link, error)
            return None
        return link

    def on_train(self, arrived: bytes, segment_bytes: int, source: Address, now: float, heard: Heard) -> None:
        """Datagrams of one sender, glued together by the kernel. Budget: 0.5 us each beside what the link does."""
        links = self._links
        arrived = self._take_runs(arrived, segment_bytes, source, now, heard)
        run: list[tuple[int, int, bytes | memoryview]] = []
        run_link: Link | None = None
        for datagram in segments_of(arrived, segment_bytes):
            if len(datagram) < HEADER_BYTES:
                self._counters["dropped_malformed"] += 1
                continue
            kind, zero, zeros, session_id, counter = HEADER.unpack_from(datagram)
            if kind != _DATA or zero or zeros:
                _, link = self.on_datagram(memoryview(datagram), source, now)
                if link is not None:
                    heard[link] = None
                continue
            link = links.get(session_id)
            if link is not run_link:
                self._on_run(run_link, run, source, now, heard)
                run, run_link = [], link
            run.append((session_id, counter, datagram))
        self._on_run(run_link, run, source, now, heard)

    def _take_runs(self, arrived: bytes, segment_bytes: int, source: Address, now: float, heard: Heard) -> bytes:
        """Let the link take as much as it can at once, from one gap in the counters to the next; returns the rest."""
        while arrived:
            train = arrived[: data_run_length(arrived, segment_bytes) * segment_bytes]
            link = self._links.get(read_header_untrusted(train).session_id) if train else None
            if link is None:
                break
            try:
                if not link.receive_train(train, segment_bytes, now, source):
                    break
                heard[link] = None
            except Exception as error:
                self._on_fault(link, error)
            arrived = arrived[len(train) :]
        return arrived

    def _on_run(
        self,
        link: Link | None,
        run: list[tuple[int, int, bytes | memoryview]],
        source: Address,
        now: float,
        heard: Heard,
    ) -> None:
        if link is not None:
            try:
                link.receive_run(run, now, source)
                heard[link] = None
            except Exception as error:
                self._on_fault(link, error)
        elif run:
            self._counters["dropped_no_session"] += len(run)
