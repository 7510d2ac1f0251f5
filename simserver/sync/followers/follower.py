"""A follower's part of a node: collects the data of frames and gives them to the engine, each frame once and in order.

It waits for those before it until they are complete, passed over, gone or `patience_frames` behind. Data go to the
engine only if the controller of this epoch has signed their head and they have its digest.
"""

from collections import deque
from typing import Final

from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.sync.followers.assembly import FrameAssembly, OpenFrame
from batonpass.simserver.sync.followers.board import NodeBoard
from batonpass.simserver.sync.followers.datagrams import (
    PIECE_AT,
    Datagram,
    ShowDatagramKind,
    begin_of_untrusted,
    names_of_untrusted,
    pack_dropped,
    pack_ranges,
    piece_of_untrusted,
    quick_piece_of_untrusted,
    signed_head_of_untrusted,
)
from batonpass.simserver.sync.followers.delta import apply_delta_untrusted
from batonpass.simserver.sync.followers.drops import DropReason
from batonpass.simserver.sync.followers.frames import CompleteFrame, FrameHead, HeadFlag, PayloadKind
from batonpass.simserver.sync.followers.ports import EngineDropped, FrameReady, FramesGone, QuitTold, SubmitHash
from batonpass.simserver.sync.followers.settings import FenceKind, ShowMode
from batonpass.simserver.sync.followers.state_history import StateHistory
from batonpass.simserver.sync.followers.structs import FrameData, state_digest
from batonpass.simserver.sync.followers.survey import answer_fetch, answer_survey

__all__ = ["FollowerPart"]

NS_IN_S: Final = 1_000_000_000
NS_IN_MS: Final = 1_000_000
ALIVE_NS: Final = 250_000_000
WAITING_AGAIN_NS: Final = 50_000_000
MAX_NACK_NS: Final = 100_000_000
COMING_NS: Final = 20_000_000
MAX_ASKED: Final = 64
MAX_SKIPS: Final = 64
MAX_HASHES: Final = 64
MAX_FENCED: Final = 16
MIN_PIECE_BYTES: Final = 64
MAX_PIECE_BYTES: Final = 65_000
JOINING: Final = b"\0"
DIVERGED: Final = b"\1"


class FollowerPart:
    """For as long as another node is the controller of one epoch."""

    def __init__(self, board: NodeBoard, controller: str, epoch: int, now_ns: int) -> None:
        settings = board.settings
        self.controller: Final = controller
        self.epoch: Final = epoch
        self.children: tuple[str, ...] = ()
        self.streams_changed = False
        self._board: Final = board
        self._period_ns: Final = NS_IN_S * settings.rate.denominator // settings.rate.numerator
        self._assembly: Final = FrameAssembly(settings.max_open_frames, settings.max_open_bytes)
        self._complete: Final[dict[int, CompleteFrame]] = {}
        self._states: Final = StateHistory(settings)
        self._skips: Final[FifoTable[int, int]] = FifoTable(MAX_SKIPS)
        self._hashes: Final[FifoTable[int, bytes]] = FifoTable(MAX_HASHES)
        self._fenced: Final[deque[FrameReady]] = deque()
        self._fence_open = -1
        # How long a piece may be late before it is asked for, and the frames of which some were.
        self._nack_ns = settings.nack_ms * NS_IN_MS
        self._asked: Final[FifoTable[int, None]] = FifoTable(MAX_ASKED)
        self._expected: int | None = None
        self._heard = -1
        self._newest_head = -1
        self._needs_full = True
        self._waiting_ns = self._now_ns = now_ns
        self._alive_ns = now_ns + ALIVE_NS
        self.ended = False

    # --- receiving

    def receive(self, datagram: Datagram, now_ns: int) -> None:  # noqa: C901, PLR0912 - one case for each kind
        """A datagram of this epoch from the controller."""
        self._now_ns = now_ns
        frame = datagram.frame
        match datagram.kind:
            case ShowDatagramKind.BEGIN:
                begin = begin_of_untrusted(datagram.body)
                if begin is None or begin.previous >= max(1, frame) or begin.first > frame:
                    self._board.counters["malformed"] += 1
                    return
                self._hear(frame, begin.previous, begin.first, now_ns)
                self._begin(frame, begin.data, begin.flags, now_ns)
                if begin.applied:
                    self.apply(begin.applied)
            case ShowDatagramKind.HEAD:
                self._head(datagram, now_ns)
            case ShowDatagramKind.PIECE:
                self._piece(datagram, now_ns)
            case ShowDatagramKind.GONE:
                gone = self._assembly.get(frame)
                if gone is not None:
                    gone.gone = True
            case ShowDatagramKind.SURVEY:
                answer_survey(self._board, self.controller, self.epoch)
            case ShowDatagramKind.FETCH:
                answer_fetch(self._board, self.controller, datagram)
            case ShowDatagramKind.APPLY:
                if self._board.settings.fence is FenceKind.SOFT:
                    self.apply(frame)
            case ShowDatagramKind.TREE:
                names = names_of_untrusted(datagram.body)
                self.children = () if names is None else tuple(names)
            case ShowDatagramKind.QUIT:
                self.leave()
                if not self.ended:
                    self.ended = True
                    self._board.tell(QuitTold())
            case _:
                self._board.counters["unexpected"] += 1
        self._deliver()

    def take_quickly(self, datagram: bytes, now_ns: int) -> bool:
        """Take a datagram of the controller if it is a piece that lacks; else False, and `receive` is to have it.

        Most datagrams are: the frame has begun, and its head is there. It does the same as `receive`, sooner.
        """
        read = quick_piece_of_untrusted(datagram)
        if read is None or read[0] != self.epoch:
            return False
        _, frame, index = read
        of = self._assembly.get(frame)
        if of is None or not self._assembly.take_wanted(of, index, datagram, PIECE_AT):
            return False
        of.heard_ns, of.nack_ns = now_ns, 0
        self._now_ns = now_ns
        if of.payload is not None and of.head is not None:
            self._completed(of, of.head, of.payload)
            self._deliver()
        return True

    def leave(self) -> None:
        """Say that this node takes part no more."""
        self._board.send_kind(self.controller, ShowDatagramKind.LEAVE, self.epoch, max(0, self._board.told))

    def _hear(self, frame: int, previous: int, first: int, now_ns: int) -> None:
        """There is this frame, and `previous` is the one before it."""
        if frame <= self._heard and (self._expected is None or frame < self._expected):
            return
        if previous + 1 < frame and previous >= 0:
            self._skips[previous + 1] = frame
        if self._expected is None:
            self._expected = self._first_expected(frame, previous, first)
            self._close_before(self._expected)
        patience = self._board.settings.patience_frames
        lost = range(max(self._heard + 1, self._expected, frame - patience), min(previous, frame - 1) + 1)
        self._heard = max(self._heard, frame)
        for number in lost:
            self._assembly.open(number, now_ns)

    def _first_expected(self, frame: int, previous: int, first: int) -> int:
        board = self._board
        if board.newest is None:
            # It joins: what was before is none of its frames.
            return frame
        if board.newest.head.frame < previous < first:
            # The state from which this epoch continues; it is sent anew.
            return previous
        return min(frame, max(first, board.told + 1, frame - board.settings.max_open_frames))

    def _is_past(self, frame: int) -> bool:
        return frame <= self._board.told or (self._expected is not None and frame < self._expected)

    def _begin(self, frame: int, data: FrameData, flags: HeadFlag, now_ns: int) -> None:
        if self._is_past(frame):
            return
        of = self._assembly.open(frame, now_ns)
        if of is None or of.announced is not None:
            return
        of.announced = data
        if flags & HeadFlag.STREAMS_CHANGED:
            self.streams_changed = True
        self._board.begin(frame, self.epoch, data)

    def _head(self, datagram: Datagram, now_ns: int) -> None:  # noqa: PLR0912 - one refusal after the other
        board, settings = self._board, self._board.settings
        read = signed_head_of_untrusted(datagram.body)
        if read is None:
            board.counters["malformed"] += 1
            return
        head, signature, piece = read
        if head.frame != datagram.frame or head.epoch != self.epoch or head.previous >= max(1, head.frame):
            board.counters["malformed"] += 1
            return
        known = self._assembly.get(head.frame)
        if known is not None and known.head is not None:
            if known.head != head:
                board.counters["head_refused"] += 1
            else:
                self._take(known, datagram, 0, piece, now_ns)
            return
        if head.flags & HeadFlag.RESENT and board.newest is not None and board.newest.head.frame >= head.frame:
            board.counters["resent_known"] += 1
            self._compare_resent(head)
            return
        if self._is_past(head.frame):
            board.counters["late"] += 1
            return
        if (
            head.size > settings.max_state_bytes
            or not MIN_PIECE_BYTES <= head.piece_bytes <= MAX_PIECE_BYTES
            or not board.signed(head, signature)
        ):
            board.counters["head_refused"] += 1
            return
        if head.flags & HeadFlag.RESENT:
            if self._expected is None:
                self._expected = head.frame
                self._close_before(head.frame)
            elif head.frame < self._expected:
                return
            self._heard = max(self._heard, head.frame)
        else:
            self._hear(head.frame, head.previous, 0 if self._expected is None else self._expected, now_ns)
        of = self._assembly.open(head.frame, now_ns)
        if of is None or not self._assembly.take_head(of, head, signature):
            board.counters["assembly_full"] += 1
            return
        self._newest_head = max(self._newest_head, head.frame)
        self._begin(head.frame, head.data, head.flags, now_ns)
        self._take(of, datagram, 0, piece, now_ns)

    def _compare_resent(self, head: FrameHead) -> None:
        newest = self._board.newest
        if newest is not None and newest.head.frame == head.frame and newest.head.digest != head.digest:
            self._board.counters["two_contents"] += 1

    def _piece(self, datagram: Datagram, now_ns: int) -> None:
        read = piece_of_untrusted(datagram.body)
        if read is None:
            self._board.counters["malformed"] += 1
            return
        if self._is_past(datagram.frame) or datagram.frame in self._complete:
            self._board.counters["late"] += 1
            self._came_again(datagram)
            return
        of = self._assembly.open(datagram.frame, now_ns)
        if of is None:
            self._board.counters["assembly_full"] += 1
            return
        self._take(of, datagram, *read, now_ns)

    def _take(self, of: OpenFrame, datagram: Datagram, index: int, piece: memoryview, now_ns: int) -> None:
        if not self._assembly.take_piece(of, index, piece):
            self._board.counters["pieces_useless"] += 1
            self._came_again(datagram)
            return
        of.heard_ns, of.nack_ns = now_ns, 0
        if of.payload is not None and of.head is not None:
            self._completed(of, of.head, of.payload)

    def _came_again(self, datagram: Datagram) -> None:
        """What was asked for was only late: wait longer from now on (as RACK does, RFC 8985, section 6.2).

        Else a machine that is late once is asked for everything twice, and stays late by that.
        """
        if datagram.frame in self._asked and not datagram.to_all:
            del self._asked[datagram.frame]
            # No longer than a period: a frame is given up when it is a few of them late.
            self._nack_ns = max(self._nack_ns, min(self._period_ns, 2 * self._nack_ns))
            self._board.counters["nacks_needless"] += 1

    def _completed(self, of: OpenFrame, head: FrameHead, payload: bytes) -> None:
        board = self._board
        if state_digest(payload) != head.payload_digest:
            board.counters["digest_refused"] += 1
            self._assembly.reset(of)
            return
        state: bytes | None = payload
        if head.kind is PayloadKind.DELTA:
            base = self._states.get(head.base_frame)
            state = None if base is None else apply_delta_untrusted(base, payload, board.settings.max_state_bytes)
        elif head.kind is PayloadKind.INPUTS:
            state = None
        if (state is not None and head.kind is not PayloadKind.INPUTS and not self._is_state_of(state, head)) or (
            of.announced is not None and of.announced != head.data
        ):
            board.counters["digest_refused"] += 1
            of.gone = True
            return
        complete = CompleteFrame(head, of.signature, payload, state)
        if of.frame not in self._asked:
            self._nack_ns = max(board.settings.nack_ms * NS_IN_MS, self._nack_ns - self._nack_ns // 32)
        self._assembly.close(of.frame)
        self._complete[of.frame] = complete
        if state is not None:
            self._states.keep(head.frame, state)
            if board.newest is None or board.newest.head.frame < head.frame:
                board.newest = complete
        if state is not None or head.kind is PayloadKind.INPUTS:
            board.send_kind(self.controller, ShowDatagramKind.COMPLETE, self.epoch, head.frame)

    def _is_state_of(self, state: bytes, head: FrameHead) -> bool:
        if head.kind is PayloadKind.STATE:
            return head.digest == head.payload_digest
        return state_digest(state) == head.digest

    # --- giving frames to the engine

    def _deliver(self) -> None:
        settings = self._board.settings
        while self._expected is not None and self._expected <= self._heard:
            frame = self._expected
            if frame in self._skips:
                self._expected = self._skips.pop(frame)
                self._close_before(self._expected)
                continue
            complete = self._complete.pop(frame, None)
            if complete is not None:
                self._expected = frame + 1
                self._give(complete)
                continue
            of = self._assembly.get(frame)
            behind = self._heard - frame
            if behind > settings.max_open_frames + settings.patience_frames:
                jump = self._heard - settings.patience_frames
                self._drop(frame, jump - 1, DropReason.LOST)
                self._expected = jump
                self._close_before(jump)
                continue
            if of is not None and not of.gone and (behind <= settings.patience_frames or self._is_coming(of)):
                return
            if of is None and behind <= settings.patience_frames and len(self._assembly) >= settings.max_open_frames:
                return
            self._drop(frame, frame, DropReason.NEVER_SENT if of is not None and of.gone else DropReason.LOST)
            self._assembly.close(frame)
            self._expected = frame + 1

    def _is_coming(self, of: OpenFrame) -> bool:
        """A frame that takes longer than the engine is patient is not given up while its pieces come."""
        return of.head is not None and self._now_ns - of.heard_ns < max(COMING_NS, 2 * self._period_ns)

    def _close_before(self, frame: int) -> None:
        """The engine gets none of the frames before: what is open of them would keep its room for ever."""
        for number in [number for number in self._complete if number < frame]:
            del self._complete[number]
        for of in self._assembly.all_open():
            if of.frame < frame:
                self._assembly.close(of.frame)

    def _give(self, complete: CompleteFrame) -> None:
        head, board = complete.head, self._board
        version = board.settings.payload_version
        if version is not None and head.version != version:
            board.counters["version_refused"] += 1
            self._drop(head.frame, head.frame, DropReason.VERSION)
            return
        is_inputs = head.kind is PayloadKind.INPUTS
        if is_inputs:
            if self._needs_full or board.told != head.base_frame:
                self._ask_full(JOINING)
                self._drop(head.frame, head.frame, DropReason.NO_BASE)
                return
            self._hashes[head.frame] = head.digest
        elif complete.state is None:
            self._ask_full(JOINING)
            self._drop(head.frame, head.frame, DropReason.NO_BASE)
            return
        else:
            self._needs_full = False
        board.told = head.frame
        payload = complete.state if complete.state is not None else complete.payload
        self._release(FrameReady(head.frame, self.epoch, payload, head.version, is_inputs, head.base_frame))

    def _release(self, ready: FrameReady) -> None:
        if self._board.settings.fence is FenceKind.NONE or ready.frame <= self._fence_open:
            self._board.tell(ready)
            return
        self._fenced.append(ready)
        if len(self._fenced) > MAX_FENCED:
            # Half of them at once: the engine that opens the fence late is in time for those that are left.
            gone = [self._fenced.popleft().frame for _ in range(len(self._fenced) - MAX_FENCED // 2)]
            self._drop(gone[0], gone[-1], DropReason.FENCE)
            self._board.tell(FramesGone(gone[-1]))

    def apply(self, frame: int) -> None:
        """The fence opens for all frames up to this one, whether they are complete or come to be."""
        self._fence_open = max(self._fence_open, frame)
        while self._fenced and self._fenced[0].frame <= frame:
            self._board.tell(self._fenced.popleft())

    def _drop(self, first: int, last: int, reason: DropReason) -> None:
        for begin, end in self._board.dropped(self._board.name, first, last, reason):
            self._board.send((self.controller,), pack_dropped(self.epoch, begin, end, reason.value))

    # --- hashes, waiting, asking

    def hashed(self, act: SubmitHash, now_ns: int) -> None:
        """The engine has computed a frame from inputs: if the hash differs, the next full state heals it."""
        digest = self._hashes.pop(act.frame, None)
        if digest is not None and act.epoch == self.epoch and digest != act.digest:
            self._board.counters["diverged"] += 1
            self._ask_full(DIVERGED, act.frame)
            self.tick(now_ns)

    def engine_dropped(self, act: EngineDropped) -> None:
        """The engine does not show these: inputs of later frames do not follow for it any more."""
        self._drop(act.first, act.last, act.reason)
        # A full state would not help an engine that cannot read any: the others would have to take it each time.
        if self._board.settings.mode is ShowMode.INPUTS and act.reason is not DropReason.VERSION:
            self._ask_full(JOINING)

    def _ask_full(self, why: bytes, frame: int = 0) -> None:
        if not self._needs_full or why == DIVERGED:
            self._needs_full = True
            self._board.send_kind(self.controller, ShowDatagramKind.WAITING, self.epoch, frame, why)

    def tick(self, now_ns: int) -> None:
        """Time has come this far: ask for what is missing."""
        self._now_ns = now_ns
        board = self._board
        for of in self._assembly.all_open():
            if of.gone or of.payload is not None or now_ns < self._nack_due(of):
                continue
            of.nacks += 1
            of.nack_ns = now_ns + min(MAX_NACK_NS, self._nack_ns << min(of.nacks, 6))
            if of.head is not None or of.early:
                self._asked[of.frame] = None
            board.counters["nacks"] += 1
            board.send_kind(
                self.controller, ShowDatagramKind.MISSING, self.epoch, of.frame, pack_ranges(of.missing())
            )  # fmt: skip
        if self._needs_full and now_ns >= self._waiting_ns:
            self._waiting_ns = now_ns + WAITING_AGAIN_NS
            board.send_kind(self.controller, ShowDatagramKind.WAITING, self.epoch, max(0, board.told), JOINING)
        if now_ns >= self._alive_ns:
            self._alive_ns = now_ns + ALIVE_NS
            board.send_kind(self.controller, ShowDatagramKind.COMPLETE, self.epoch, max(0, board.told))

    def _nack_due(self, of: OpenFrame) -> int:
        if of.nack_ns:
            return of.nack_ns
        due = of.heard_ns + self._nack_ns
        # Of a frame that has only begun, the data may not have been computed yet.
        is_sent = of.head is not None or of.early or of.frame < self._newest_head
        return due if is_sent else due + self._period_ns

    def next_due_ns(self) -> int:
        """Return when `tick` is to be called next."""
        due = min((self._nack_due(of) for of in self._assembly.all_open() if not of.gone), default=self._alive_ns)
        return min(due, self._alive_ns, self._waiting_ns if self._needs_full else due)
