"""The controller's part of a node: begins frames, sends their data, answers who misses something."""

from collections.abc import Iterable
from typing import Final

from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.simserver.sync.followers.board import NodeBoard
from batonpass.simserver.sync.followers.datagrams import (
    BeginPart,
    Datagram,
    ShowDatagramKind,
    dropped_of_untrusted,
    interaction_of_untrusted,
    pack_begin,
    pack_datagram,
    pack_names,
    ranges_of_untrusted,
)
from batonpass.simserver.sync.followers.delta import delta_of
from batonpass.simserver.sync.followers.drops import DropReason
from batonpass.simserver.sync.followers.frame_clock import FrameClock
from batonpass.simserver.sync.followers.frames import CompleteFrame, FrameHead, HeadFlag, PayloadKind
from batonpass.simserver.sync.followers.ports import InteractionReceived, QuitTold, SubmitState
from batonpass.simserver.sync.followers.settings import FenceKind, ShowMode
from batonpass.simserver.sync.followers.state_history import StateHistory
from batonpass.simserver.sync.followers.structs import FrameData, FrameDataFlag, state_digest
from batonpass.simserver.sync.followers.window import SentFrame, SentWindow

__all__ = ["ControllerPart"]

NS_IN_S: Final = 1_000_000_000
MAX_BEGUN: Final = 64
MAX_DROPPED_AT_ONCE: Final = 1_000_000
MAX_BURST_BYTES: Final = 1024 * 1024
MIN_ANSWER_BYTES: Final = 256 * 1024
ANSWER_NS: Final = NS_IN_S // 60
"""For which the bound of answers holds, or for a frame where that is shorter: at low rates states are large."""
REPEAT_NS: Final = 100_000_000
TREE_NS: Final = 250_000_000
QUIT_NS: Final = 2 * NS_IN_S
PACE_NS: Final = 2_000_000
MAX_WAITING_INTERACTIONS: Final = 256


class _Peer:
    """What the controller knows of a follower."""

    __slots__ = ("answer_bytes", "answer_period", "early", "heard_ns", "incarnation", "left", "newest", "received")

    def __init__(self) -> None:
        self.heard_ns = -(1 << 62)
        self.newest = 0
        self.incarnation = -1
        self.received = 0
        self.early: FifoTable[int, bytes] = FifoTable(MAX_WAITING_INTERACTIONS)
        self.answer_period = -1
        self.answer_bytes = 0
        self.left = False


class ControllerPart:
    """From the end of the survey until another node has authority.

    Args:
        start: the newest complete state, from which the show continues; None for a show that begins.
    """

    def __init__(
        self, board: NodeBoard, epoch: int, first: int, limit: int, start: CompleteFrame | None, now_ns: int
    ) -> None:
        settings = board.settings
        self.epoch: Final = epoch
        self._board: Final = board
        # The first number that begins: all below it were sent in earlier epochs, or never.
        self._first: int | None = None
        self._next = first
        self._limit = limit
        self._clock: Final = FrameClock.with_frame_at(
            settings.rate, first, now_ns if start is None else now_ns + NS_IN_S // 60
        )
        self._period_ns: Final = NS_IN_S * settings.rate.denominator // settings.rate.numerator
        # Local time continues where it was, also after a failover.
        self._since = first if board.since is None else board.since
        self._begun: Final[FifoTable[int, tuple[FrameData, int, HeadFlag]]] = FifoTable(MAX_BEGUN, self._never_sent)
        self._previous = 0
        self._submitted = 0
        self._flags = HeadFlag.NO_FLAGS
        self._window: Final = SentWindow(settings.window_bytes, settings.window_s)
        # The frame that is being sent, with its first piece that was not; and the state that is next.
        self._sending: tuple[SentFrame, int] | None = None
        self._waiting: SubmitState | None = None
        self._paced_ns = now_ns
        self._allowance = MAX_BURST_BYTES
        self._full_wanted = True
        self._states: Final = StateHistory(settings)
        self._acked: Final[FifoTable[int, set[str]]] = FifoTable(MAX_BEGUN)
        self._fences: Final[FifoTable[int, int]] = FifoTable(MAX_BEGUN)
        self._applied = 0
        self._peers: Final[LruTable[str, _Peer]] = LruTable(1_024)
        self._tree: dict[str, tuple[str, ...]] = {}
        self._tree_ns = now_ns
        self._direct: tuple[str, ...] = ()
        self._quit_ns: int | None = None
        self._quit_again_ns = 0
        self.ended = False
        self._now_ns = now_ns
        self._reshape()
        if start is not None:
            self._resend(start)

    # --- frames

    def raise_limit(self, limit: int) -> None:
        """Frames below `limit` may be sent."""
        self._limit = max(self._limit, limit)

    def flag_next(self, flags: HeadFlag) -> None:
        """The next frame has these flags, too."""
        self._flags |= flags

    def tick(self, now_ns: int) -> None:
        """Time has come this far: begin the frame that is due, send what is left, look who is silent."""
        self._now_ns = now_ns
        self._window.expire(now_ns)
        if self._board.settings.fan_out and now_ns >= self._tree_ns:
            self._reshape()
        if self._quit_ns is not None:
            self._quit_tick()
        elif now_ns >= self._clock.due_ns(self._next):
            self._begin()
        self._fence_tick()
        self._pump()

    def next_due_ns(self) -> int:
        """Return when `tick` is to be called next."""
        if self._quit_ns is not None:
            return self._quit_again_ns
        due = self._clock.due_ns(self._next) if self._next < self._limit else self._now_ns + PACE_NS
        if self._sending is not None:
            due = min(due, self._now_ns + PACE_NS)
        if self._fences:
            due = min(due, next(iter(self._fences.values())))
        return due

    def _begin(self) -> None:
        frame = min(self._clock.frame_at(self._now_ns), self._limit - 1)
        if frame < self._next:
            self._board.counters["held_by_limit"] += 1
            return
        # Numbers that are over when the node comes to them are passed over and never used.
        self._board.counters["passed_over"] += frame - self._next
        self._board.dropped(self._board.name, self._next, frame - 1, DropReason.PASSED_OVER)
        self._next = frame + 1
        flags, self._flags = self._flags, HeadFlag.NO_FLAGS
        of_data = FrameDataFlag.NO_FLAGS
        if flags & HeadFlag.RESET:
            of_data, self._since = FrameDataFlag.RESET, frame
            self._forget_history()
        data = self._board.settings.rate.data_of(frame, since=self._since, flags=of_data)
        self._begun[frame] = (data, self._previous, flags)
        self._first = frame if self._first is None else self._first
        begin = BeginPart(self._previous, self._first, self._applied, flags, data)
        self._previous = frame
        self._board.begin(frame, self.epoch, data, is_controller=True)
        self._board.send(self._direct, pack_begin(self.epoch, frame, begin))

    def _never_sent(self, frame: int, _: object) -> None:
        self._board.dropped(self._board.name, frame, frame, DropReason.NEVER_SENT)

    def submit(self, act: SubmitState, now_ns: int) -> None:
        """The engine has computed a frame; a state of any other frame than a begun one is ignored and counted.

        It waits for the one that is being sent. Of more the newest waits: frames that were cut short in favour of later
        ones would all arrive in part, and none of them whole.
        """
        self._now_ns = now_ns
        board, most = self._board, self._board.settings.max_state_bytes
        sizes = len(act.payload), 0 if act.inputs is None else len(act.inputs)
        if act.epoch != self.epoch or act.frame not in self._begun or max(sizes) > most:
            board.counters["submit_refused"] += 1
            return
        for older in [number for number in self._begun if number < act.frame]:
            self._never_sent(older, None)
            del self._begun[older]
        if self._sending is None:
            self._begin_sending(act)
        else:
            board.counters["frame_over_period"] += 1
            board.counters["sending_skipped"] += self._waiting is not None
            self._waiting = act

    def _begin_sending(self, act: SubmitState) -> None:
        board, settings, frame = self._board, self._board.settings, act.frame
        begun = self._begun.get(frame)
        if begun is None:
            # It was given up, since too many frames began meanwhile.
            board.counters["submit_refused"] += 1
            return
        del self._begun[frame]
        data, previous, flags = begun
        digest = state_digest(act.payload)
        kind, base, payload = self._encoded(act, flags)
        head = FrameHead(
            epoch=self.epoch,
            frame=frame,
            previous=previous,
            kind=kind,
            base_frame=base,
            size=len(payload),
            piece_bytes=board.piece_bytes,
            digest=digest,
            payload_digest=digest if kind is PayloadKind.STATE else state_digest(payload),
            version=act.version,
            data=data,
            flags=flags,
        )
        self._submitted = board.told = frame
        signature = board.signing.sign(head.pack())
        self._states.keep(frame, act.payload)
        board.newest = CompleteFrame(head, signature, payload, act.payload)
        if settings.fence is FenceKind.SOFT:
            self._fences[frame] = self._now_ns + int(settings.fence_wait_s * NS_IN_S)
        self._acked[frame] = set()
        self._send(SentFrame(head, signature, payload, self._now_ns))

    def _encoded(self, act: SubmitState, flags: HeadFlag) -> tuple[PayloadKind, int, bytes]:
        mode = self._board.settings.mode
        full, self._full_wanted = self._full_wanted or bool(flags & HeadFlag.RESET), False
        # A state that the engine computed in between and that was not taken, no other has.
        if not full and mode is ShowMode.INPUTS and act.inputs is not None and 0 < self._submitted == act.base_frame:
            return PayloadKind.INPUTS, self._submitted, act.inputs
        base = self._base() if mode is ShowMode.DELTA and not full else None
        state = None if base is None else self._states.get(base)
        if base is not None and state is not None:
            delta = delta_of(state, act.payload)
            if len(delta) < len(act.payload):
                return PayloadKind.DELTA, base, delta
        return PayloadKind.STATE, 0, act.payload

    def _base(self) -> int | None:
        """The newest full state that all live followers have acknowledged."""
        live = set(self.live())
        for frame in reversed(self._states):
            if live <= self._acked.get(frame, set()):
                return frame
        return None

    def _forget_history(self) -> None:
        self._states.forget()
        self._full_wanted = True

    def _resend(self, start: CompleteFrame) -> None:
        """The newest state that was found is sent anew under this epoch, to all: who has it ignores it."""
        state = start.state or b""
        head = FrameHead(
            epoch=self.epoch,
            frame=start.head.frame,
            previous=0,
            kind=PayloadKind.STATE,
            base_frame=0,
            size=len(state),
            piece_bytes=self._board.piece_bytes,
            digest=start.head.digest,
            payload_digest=start.head.digest,
            version=start.head.version,
            data=start.head.data,
            flags=HeadFlag.RESENT,
        )
        self._previous = head.frame
        signature = self._board.signing.sign(head.pack())
        self._board.newest = CompleteFrame(head, signature, state, state)
        self._board.counters["states_resent"] += 1
        self._send(SentFrame(head, signature, state, self._now_ns))

    # --- sending

    def _send(self, sent: SentFrame) -> None:
        self._window.add(sent)
        self._sending = sent, 0
        self._pump()

    def _pump(self) -> None:
        rate = self._board.settings.pace_bytes_per_s
        gained = (self._now_ns - self._paced_ns) * rate // NS_IN_S if rate else MAX_BURST_BYTES
        if gained:
            self._allowance = min(MAX_BURST_BYTES, self._allowance + gained)
            self._paced_ns = self._now_ns
        while self._sending is not None and self._allowance > 0:
            sent, index = self._sending
            head = sent.head
            step = min(head.pieces, index + max(1, self._allowance // head.piece_bytes))
            self._board.send_all(self._direct, sent.datagrams(index, step))
            self._allowance -= (step - index) * head.piece_bytes
            self._sending = None if step == head.pieces else (sent, step)
            if self._sending is None and self._waiting is not None:
                act, self._waiting = self._waiting, None
                self._begin_sending(act)

    def _answer(self, peer: str, of: _Peer, datagram: Datagram) -> None:
        frame, board = datagram.frame, self._board
        ranges = ranges_of_untrusted(datagram.body)
        if ranges is None:
            board.counters["malformed"] += 1
            return
        sent = self._window.get(frame)
        if sent is None:
            if frame < self._submitted or (frame < self._next and frame not in self._begun):
                board.send_kind(peer, ShowDatagramKind.GONE, self.epoch, frame)
            return
        cursor = self._sending[1] if self._sending is not None and self._sending[0] is sent else None
        period = self._now_ns // min(self._period_ns, ANSWER_NS)
        if of.answer_period != period:
            of.answer_period, of.answer_bytes = period, 0
        budget = max(MIN_ANSWER_BYTES, 2 * min(sent.head.size, MAX_BURST_BYTES))
        for index in sent.indices(ranges):
            if cursor is not None and index >= cursor:
                # It is on its way by itself.
                return
            if of.answer_bytes >= budget:
                board.counters["answers_limited"] += 1
                return
            answer = sent.datagram(index)
            of.answer_bytes += len(answer)
            board.counters["pieces_resent"] += 1
            board.send((peer,), answer)

    # --- followers

    def live(self) -> list[str]:
        """Who was heard lately and has not left, by name."""
        since = self._now_ns - int(self._board.settings.live_s * NS_IN_S)
        others = self._board.others()
        return [name for name in others if (peer := self._peers.get(name)) and peer.heard_ns >= since and not peer.left]

    def receive(self, peer: str, datagram: Datagram, now_ns: int) -> None:
        """A datagram of this epoch from a follower."""
        self._now_ns = now_ns
        of = self._peers.get(peer)
        if of is None:
            of = self._peers[peer] = _Peer()
        of.heard_ns = now_ns
        # One that left may have come back, or this overtook its word: it is waited for no longer than any silent one.
        of.left = datagram.kind is ShowDatagramKind.LEAVE or (of.left and self._quit_ns is not None)
        match datagram.kind:
            case ShowDatagramKind.MISSING:
                self._answer(peer, of, datagram)
            case ShowDatagramKind.COMPLETE:
                of.newest = max(of.newest, datagram.frame)
                acked = self._acked.get(datagram.frame)
                if acked is not None:
                    acked.add(peer)
                self._fence_tick()
            case ShowDatagramKind.WAITING:
                self._board.counters["full_states_asked"] += 1
                if bytes(datagram.body) == b"\x01":
                    self._board.counters["diverged"] += 1
                    self._board.dropped(peer, datagram.frame, datagram.frame, DropReason.DIVERGED)
                self._full_wanted = True
            case ShowDatagramKind.INTERACTION:
                self._interaction(peer, of, datagram)
            case ShowDatagramKind.LEAVE:
                self._fence_tick()
            case ShowDatagramKind.DROPPED:
                read = dropped_of_untrusted(datagram.body)
                if read is None or not 0 <= read[0] - datagram.frame <= MAX_DROPPED_AT_ONCE:
                    self._board.counters["malformed"] += 1
                else:
                    last, reason = read
                    self._board.dropped(peer, datagram.frame, last, _reason_of(reason))
            case _:
                self._board.counters["unexpected"] += 1

    def acknowledged(self) -> dict[str, int]:
        """Return the newest frame that each follower has acknowledged."""
        return {name: peer.newest for name, peer in self._peers.items()}

    def _interaction(self, peer: str, of: _Peer, datagram: Datagram) -> None:
        read = interaction_of_untrusted(datagram.body)
        if read is None:
            self._board.counters["malformed"] += 1
            return
        incarnation, oldest, payload = read
        if incarnation != of.incarnation:
            # A new node of this name, or this controller is new: what lies before was acknowledged by another one.
            of.incarnation, of.received = incarnation, oldest - 1
            of.early.clear()
        if of.received < datagram.frame <= of.received + MAX_WAITING_INTERACTIONS:
            of.early[datagram.frame] = payload
            while of.received + 1 in of.early:
                of.received += 1
                self._board.tell(InteractionReceived(peer, of.early.pop(of.received)))
        body = incarnation.to_bytes(8, "little")
        self._board.send_kind(peer, ShowDatagramKind.INTERACTION_ACK, self.epoch, of.received, body)

    # --- fence, tree, end

    def _fence_tick(self) -> None:
        if not self._fences:
            return
        live, before = set(self.live()), self._applied
        while self._fences:
            frame, deadline_ns = next(iter(self._fences.items()))
            late = live - self._acked.get(frame, set())
            if late and self._now_ns < deadline_ns:
                break
            for name in sorted(late):
                self._board.counters["fence_late"] += 1
                self._board.dropped(name, frame, frame, DropReason.FENCE_LATE)
            del self._fences[frame]
            self._applied = frame
        if self._applied != before:
            self._board.send(
                self._direct, pack_datagram(ShowDatagramKind.APPLY, self.epoch, self._applied, to_all=True)
            )  # fmt: skip

    def _reshape(self) -> None:
        """The tree: live nodes pass on, the others are leaves."""
        self._tree_ns = self._now_ns + TREE_NS
        others, fan_out = self._board.others(), self._board.settings.fan_out
        if not fan_out:
            self._direct = others
            return
        live = set(self.live())
        order = [name for name in others if name in live] + [name for name in others if name not in live]
        if not live:
            self._direct, self._tree = others, {}
            return
        # Only live nodes pass on: node i has the children fan_out * (i + 1) onwards. A node that would hang from a
        # silent one is sent to directly.
        direct, tree = list(order[:fan_out]), dict[str, list[str]]()
        for place, name in enumerate(order[fan_out:], fan_out):
            parent = order[place // fan_out - 1]
            if parent in live:
                tree.setdefault(parent, []).append(name)
            else:
                direct.append(name)
        for parent in {*tree, *self._tree}:
            body = pack_names(tree.get(parent, ()))
            self._board.send_kind(parent, ShowDatagramKind.TREE, self.epoch, self._next, body)
        self._direct, self._tree = tuple(direct), {parent: tuple(names) for parent, names in tree.items()}

    def members_changed(self) -> None:
        """Nodes came or went, or are held."""
        self._reshape()

    def quit(self) -> None:
        """The show ends: tell followers first, the own engine last."""
        if self._quit_ns is None:
            self._quit_ns = self._now_ns + QUIT_NS
            self._quit_again_ns = self._now_ns

    def _quit_tick(self) -> None:
        if self.ended or self._quit_ns is None:
            return
        staying = self.live()
        if not staying or self._now_ns >= self._quit_ns:
            self.ended = True
            self._board.tell(QuitTold())
            self._tell_quit(staying)
        elif self._now_ns >= self._quit_again_ns:
            self._tell_quit(staying)

    def _tell_quit(self, staying: Iterable[str]) -> None:
        self._quit_again_ns = self._now_ns + REPEAT_NS
        for name in {*staying, *self._board.others()}:
            self._board.send_kind(name, ShowDatagramKind.QUIT, self.epoch, self._submitted)


def _reason_of(said: str) -> DropReason:
    """As a follower has said it; each is the name of a counter, so only those that this release knows."""
    return next((reason for reason in DropReason if reason.value == said), DropReason.OTHER)
