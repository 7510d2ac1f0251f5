"""The calls of an engine that takes part in a show, by the names and with the meaning of RenderStream's engine sync.

The engine runs in a thread of its own. Once a frame it awaits the frame, exchanges the state and sends its images:

    controller   await_frame_data, continued_state, compute, send_follower_data, render
    follower     await_frame_data, receive_follower_data, apply exactly that, render

Rules:

1. A follower renders a frame only with the data of that frame. Without them it sends nothing for the frame; its last
   images are repeated, and the frame is counted. It never computes a state of its own.
2. Bytes that a call returns never change. Bytes that a call takes are copied.
3. A call that is not allowed raises INVALID_PARAMETERS and changes nothing. All calls that belong to a frame are made
   by the thread that awaits.
4. Of a RESET nothing of the frames before is left: no delta, no last state, no image, no interaction data.
5. An engine that is late is given a frame whose data are there, or as a controller the newest that has begun. Those
   before are reported as dropped.
6. An engine that becomes the controller continues from the newest complete state of the show, not from its own.

Sources: `followers.md` and `d3renderstream.h` of RenderStream, branch engine_sync_dev; what they leave open is decided
in docs/explanation/followers.md.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NoReturn

from batonpass.simserver.sync.followers.allowed_calls import AllowedCalls
from batonpass.simserver.sync.followers.awaited_frame import AwaitedFrame, ShowFrame
from batonpass.simserver.sync.followers.begun_frames import BegunFrames
from batonpass.simserver.sync.followers.drops import DropReason
from batonpass.simserver.sync.followers.frame_clock import FrameDeltas, FrameRate
from batonpass.simserver.sync.followers.images import ImageSink, RenderedImage, SentImage
from batonpass.simserver.sync.followers.ports import (
    CamerasReceived,
    EngineAct,
    EngineDropped,
    EngineEvent,
    EngineLeft,
    EnginePort,
    FenceOpened,
    FrameBegins,
    FrameReady,
    FramesGone,
    InteractionReceived,
    QuitTold,
    ShowStream,
    StreamsChanged,
    SubmitHash,
    SubmitInteraction,
    SubmitState,
)
from batonpass.simserver.sync.followers.received_data import ReceivedData
from batonpass.simserver.sync.followers.settings import MAX_STATE_BYTES
from batonpass.simserver.sync.followers.shown_streams import ShownStreams
from batonpass.simserver.sync.followers.streams import pack_streams
from batonpass.simserver.sync.followers.structs import (
    CameraData,
    CameraResponseData,
    FrameData,
    FrameDataFlag,
    RenderStreamError,
    RsError,
    state_digest,
    write_into,
)

__all__ = [
    "AWAIT_TIMEOUT_MS",
    "MAX_INTERACTION_BYTES",
    "EngineNode",
]

AWAIT_TIMEOUT_MS: Final = 5_000
"""As RenderStream's sample awaits."""

MAX_VERSION: Final = 2**32 - 1
MAX_INTERACTION_BYTES: Final = 1_024
MAX_INTERACTIONS: Final = 1_024
"""That an engine has not received; of more the oldest go and are counted."""


class EngineNode:
    """A node of a show, as its engine sees it. Every call raises `structs.RenderStreamError` if it does not succeed.

    Args:
        port: the node.
        payload_version: of the states that this engine writes and reads.
        engine_sync: whether the nodes of the show exchange states at all.
        sink: what takes the images, which an engine may set itself; None throws them away.
        max_state_bytes: of a state, and of the inputs of a frame; at most `MAX_STATE_BYTES`, else ValueError.

    Attributes:
        counters: what went otherwise than it should, by name; see docs/explanation/followers.md.
        last_complete: the last full state that this engine received; None if there is none.
    """

    def __init__(
        self,
        port: EnginePort,
        *,
        payload_version: int = 0,
        engine_sync: bool = True,
        sink: ImageSink | None = None,
        max_state_bytes: int = MAX_STATE_BYTES,
    ) -> None:
        if not 0 < max_state_bytes <= MAX_STATE_BYTES:
            raise ValueError(f"max_state_bytes is {max_state_bytes}: give 1 to {MAX_STATE_BYTES:,}")
        self.counters: Final[Counter[str]] = Counter()
        self.last_complete: bytes | None = None
        self._port: Final = port
        self._version = 0
        self._engine_sync: Final = engine_sync
        self._max_state_bytes: Final = max_state_bytes
        self._deltas = FrameDeltas()
        self._calls: Final = AllowedCalls(port, self.counters, engine_sync=engine_sync)
        self._shown: Final = ShownStreams(sink)
        self._begun: Final = BegunFrames(self._dropped)
        self._data: Final = ReceivedData()
        self._streams_changed = False
        self._interactions: Final[deque[InteractionReceived]] = deque()
        self._gone = -1
        self._quit = False
        self.payload_version = payload_version

    @property
    def payload_version(self) -> int:
        """Of the states that this engine writes and reads; the engine sets it before it awaits, and it is 0 else.

        Setting it raises INVALID_PARAMETERS for what is no number of 32 bits.
        """
        return self._version

    @payload_version.setter
    def payload_version(self, version: int) -> None:
        if type(version) is not int or not 0 <= version <= MAX_VERSION:
            self._calls.refuse("payload_version", f"{version!r:.40} is no version; give 0 to {MAX_VERSION:,}")
        self._version = version

    @property
    def sink(self) -> ImageSink | None:
        """What takes the images, in the engine's thread; what it raises, `send_frame` and the calls that repeat do."""
        return self._shown.sink

    @sink.setter
    def sink(self, sink: ImageSink | None) -> None:
        self._shown.sink = sink

    @property
    def missing_cameras(self) -> Counter[int]:
        """For how many frames one after another a stream has had no camera, by handle."""
        return self._shown.missing

    # The frame

    def await_frame_data(self, timeout_ms: int = AWAIT_TIMEOUT_MS) -> FrameData:
        """Wait for the next frame and return its times and flags. At a follower they are those of the controller.

        `local_time_delta` is the time since the frame that this engine awaited before.

        Raises TIMEOUT if no frame begins: render nothing, await again. STREAMS_CHANGED: ask `get_streams`, await again.
        QUIT: the show ends; so does every later await. INVALID_PARAMETERS for another thread than that of the first
        await, and for a timeout that is no number or longer than a day.
        """
        self._calls.check_thread("await_frame_data")
        deadline_ns = self._calls.deadline_ns("await_frame_data", timeout_ms)
        self._calls.take_thread()
        self._close_frame()
        self._take_events()
        while not (self._quit or self._streams_changed or self._begun) and self._take_events(deadline_ns):
            pass
        if self._quit:
            raise RenderStreamError(RsError.QUIT, "the show ends; leave the loop and call shutdown")
        if self._streams_changed:
            self._streams_changed = False
            raise RenderStreamError(
                RsError.STREAMS_CHANGED, f"there are {len(self._shown.streams)} streams; ask get_streams"
            )
        if not self._begun:
            after = f" after frame {self._calls.open.frame}" if self._calls.open else ""
            raise RenderStreamError(RsError.TIMEOUT, f"no frame has begun for {timeout_ms} ms{after}")
        return self._begin(self._begun.take(self._data.frames()), timeout_ms)

    def is_controller(self) -> bool:
        """Return whether this node is the controller for the awaited frame; ask in every frame."""
        return self._calls.awaited("is_controller").begins.is_controller

    def engine_sync_enabled(self) -> bool:
        """Return whether the nodes exchange states. If not, no call of `*_follower_data` is allowed."""
        return self._engine_sync

    @property
    def frame(self) -> int:
        """The number of the awaited frame."""
        return self._calls.awaited("frame").frame

    # Data of a frame

    def send_follower_data(self, state: Any, inputs: Any = None) -> None:
        """Send the state of the awaited frame to all followers; as early in the frame as the engine can.

        `inputs` are for the mode `inputs`: what followers compute the same state from; `state` heals those whose hash
        differs. Both are bytes-like and are copied.

        Raises INVALID_PARAMETERS if sync is disabled, from another thread, before the first await, at a follower, and
        for the second time in a frame. Raises it for a state that is not bytes-like or is too large, and if this engine
        lacks the newest state and has not asked `continued_state`.
        """
        call = "send_follower_data"
        opened = self._calls.exchanging(call, controller=True)
        if (newest := self._data.lacked()) is not None:
            self._calls.refuse(
                call, f"this engine lacks the state of frame {newest.frame}; continue from continued_state"
            )
        payload = self._calls.bytes_of(call, state, self._max_state_bytes)
        cause = None if inputs is None else self._calls.bytes_of(call, inputs, self._max_state_bytes)
        begins, base = opened.begins, -1 if cause is None else self._data.has
        self._port.submit(SubmitState(begins.frame, begins.epoch, payload, self._version, cause, base))
        opened.exchanged = True
        self._data.sent(begins.frame)

    def continued_state(self) -> bytes | None:
        """Return the state from which the controller computes the frame, if this engine has an older one; else None.

        It is the newest complete state of the show, after a node has become the controller. Apply it before computing.
        Raises INCOMPATIBLE_VERSION and INVALID_PARAMETERS as `receive_follower_data`.
        """
        opened = self._calls.in_role("continued_state", controller=True)
        if (newest := self._data.lacked()) is None:
            return None
        self._check_version(opened, newest)
        self._data.sent(newest.frame)
        self.last_complete = newest.payload
        return newest.payload

    def receive_follower_data(self, timeout_ms: int | None = None) -> bytes:
        """Wait for the data of the awaited frame and return them; by default as long as the await would have.

        In the mode `inputs` they may be inputs: see `received_inputs`.

        Raises TIMEOUT, naming the frame; INCOMPATIBLE_VERSION for data of an engine that writes another version; QUIT
        if the show ends meanwhile. Nothing may be rendered for the frame then. INVALID_PARAMETERS as
        `send_follower_data`.
        """
        call = "receive_follower_data"
        opened = self._calls.exchanging(call, controller=False)
        wait_ms = opened.timeout_ms if timeout_ms is None else timeout_ms
        frame = opened.frame
        deadline_ns = self._calls.deadline_ns(call, wait_ms)
        self._take_events()
        while opened.ready is None:
            if self._quit:
                raise RenderStreamError(RsError.QUIT, f"the show ends before the data of frame {frame} came")
            if (later := self._data.frames()) and later[-1] > frame:
                self._not_received(opened, f"there are no data for frame {frame}: those of {later[-1]} are here; await")
            if self._gone >= frame:
                self._not_received(opened, f"the data of frame {frame} have gone before its fence was opened; await")
            if self._begun.controls:
                sentence = f"there are no data for frame {frame}: its controller is gone, and this node is the next"
                self._not_received(opened, f"{sentence}; await")
            if not self._take_events(deadline_ns):
                sentence = f"the controller has not sent data for frame {frame} within {wait_ms} ms"
                self._not_received(opened, f"{sentence}; render nothing, await")
        ready, opened.ready = opened.ready, None
        self._check_version(opened, ready)
        self._check_base(opened, ready)
        opened.exchanged = opened.may_render = True
        opened.inputs = ready.is_inputs
        self._data.received(ready)
        if not ready.is_inputs:
            self.last_complete = ready.payload
        return ready.payload

    def received_inputs(self) -> bool:
        """Return whether what this frame received are inputs, from which the engine computes the state.

        Raises INVALID_PARAMETERS if sync is disabled, and as `is_controller`.
        """
        self._calls.check_sync("received_inputs")
        return self._calls.awaited("received_inputs").inputs

    def refuse_frame(self) -> None:
        """Say that the engine cannot read what it received: nothing is rendered for the frame, and it is counted."""
        opened = self._calls.exchanged_by_follower("refuse_frame")
        self._data.refused()
        self._give_up(opened, "frames_not_decoded")
        self._not_applied(opened.frame, DropReason.REFUSED)

    def report_hash(self, state: Any) -> None:
        """Report the state that this follower has after the frame, as a hash; in the mode `inputs`, once every frame.

        A follower whose hash differs from the controller's is sent a full state by itself.
        """
        call = "report_hash"
        opened = self._calls.exchanged_by_follower(call)
        if opened.reported:
            self._calls.refuse(call, f"frame {opened.frame} has been reported; call it once a frame")
        digest = state_digest(self._calls.bytes_of(call, state, self._max_state_bytes))
        self._port.submit(SubmitHash(opened.frame, opened.begins.epoch, digest))
        opened.reported = True

    def open_fence(self, frame: int) -> None:
        """Fence `external`: this node gets the data of all frames up to this one; at a controller nothing happens.

        Any thread may call it, such as one that waits for a genlock, and before the data are there. Then they come to
        the engine as soon as they are complete. In a show with another fence the node counts `fence_refused`.

        Raises INVALID_PARAMETERS if sync is disabled or this is no frame; BUFFER_OVERFLOW if the node is behind.
        """
        call = "open_fence"
        self._calls.check_here(call)
        self._calls.check_sync(call)
        if type(frame) is not int or frame < 0:
            self._calls.refuse(call, f"{frame!r:.40} is no number of a frame; pass that of the awaited one")
        self._port.submit(FenceOpened(frame))

    # Interaction data, from followers to the controller

    def send_interaction_data(self, payload: Any) -> None:
        """Send data to the controller; those of one follower arrive in order. Bytes-like, at most 1,024 bytes.

        Raises INVALID_PARAMETERS at the controller, and as `send_follower_data`; BUFFER_OVERFLOW if the node is behind.
        """
        call = "send_interaction_data"
        self._calls.in_role(call, controller=False)
        self._port.submit(SubmitInteraction(self._calls.bytes_of(call, payload, MAX_INTERACTION_BYTES)))

    def receive_interaction_data(self) -> tuple[InteractionReceived, ...]:
        """Return what followers have sent since the last call; at the controller. Never waits."""
        self._calls.in_role("receive_interaction_data", controller=True)
        self._take_events()
        received = tuple(self._interactions)
        self._interactions.clear()
        return received

    # Streams and images

    def get_streams(self) -> tuple[ShowStream, ...]:
        """Return the streams that this node renders."""
        return self._shown.streams

    def get_streams_into(self, buffer: bytearray | memoryview | None) -> int:
        """Write the streams into `buffer` as RenderStream's structs do, and return their size in bytes.

        Raises BUFFER_OVERFLOW with the needed size if it is None or too small. The streams may change between two
        calls: try at most three times.
        """
        return write_into(buffer, pack_streams(self._shown.streams))

    def get_frame_camera(self, handle: int) -> CameraData:
        """Return the camera of a stream for the awaited frame, and for no other.

        Raises NOTFOUND if the stream is not asked for in this frame, or has gone: skip it, that is no error.
        """
        opened = self._calls.awaited("get_frame_camera")
        frame = opened.frame
        camera = self._shown.camera(opened, handle)
        if camera is None:
            self.counters["cameras_not_found"] += 1
            raise RenderStreamError(RsError.NOTFOUND, f"stream {handle} is not asked for in frame {frame}; skip it")
        return camera

    def send_frame(self, handle: int, image: RenderedImage, response: CameraResponseData) -> None:
        """Hand over the image of a stream for the awaited frame, with the camera that it was rendered with.

        An image of a stream that went during the frame is counted and thrown away. Raises INVALIDHANDLE for a stream
        that never was. Raises INVALID_PARAMETERS for a second image, an image of another size than it says, or the
        tracked time of another frame. A follower that has not received the data of the frame raises it, too.
        """
        call = "send_frame"
        opened = self._calls.awaited(call)
        frame = opened.frame
        for value, kind in ((image, RenderedImage), (response, CameraResponseData)):
            if not isinstance(value, kind):
                self._calls.refuse(call, f"{type(value).__name__} is no {kind.__name__}; pass one")
        if self._engine_sync and not opened.begins.is_controller and not opened.may_render:
            self._calls.refuse(call, f"this follower has no data of frame {frame}; render nothing for it")
        tracked = opened.begins.data.t_tracked
        if response.t_tracked != tracked:
            sentence = f"the response has tTracked {response.t_tracked}, frame {frame} has {tracked}"
            self._calls.refuse(call, f"{sentence}; send an image in its own frame")
        if handle in self._shown.sent:
            self._calls.refuse(call, f"stream {handle} has its image of frame {frame}; send one a frame")
        try:
            image = image.copied()
        except (ValueError, TypeError) as err:
            self._calls.refuse(call, f"{err}; pass the pixels of the whole image")
        stream = self._shown.stream(handle)
        if stream is None:
            if handle not in opened.handles:
                raise RenderStreamError(RsError.INVALIDHANDLE, f"there is no stream {handle}; ask get_streams")
            self.counters["images_of_gone_streams"] += 1
            return
        self._shown.show(SentImage(frame, stream, image, response))

    def shutdown(self) -> None:
        """Leave the show; every later call that belongs to a frame raises NOT_INITIALISED. May be repeated."""
        if not self._calls.has_left:
            self._calls.has_left = True
            self._tell(EngineLeft())

    # The loop, for engines that need no other

    def frames(self, timeout_ms: int = AWAIT_TIMEOUT_MS) -> Iterator[ShowFrame]:
        """Yield the frames that this engine is to render, until QUIT; then leave the show.

        A follower's frames come with their data; those whose data did not come are passed over. STREAMS_CHANGED and
        TIMEOUT only await again: ask `frame_cameras` in each frame.

        Raises INCOMPATIBLE_VERSION if this engine is to continue from a state that it cannot read: no node would send a
        frame any more. The show goes to another node by that.
        """
        while True:
            is_controller, received = False, None
            try:
                data = self.await_frame_data(timeout_ms)
                is_controller = self.is_controller()
                if self._engine_sync:
                    received = self.continued_state() if is_controller else self.receive_follower_data()
            except RenderStreamError as err:
                if err.code == RsError.QUIT:
                    self.shutdown()
                    return
                is_refused = err.code == RsError.INCOMPATIBLE_VERSION and not is_controller
                if is_refused or err.code in {RsError.STREAMS_CHANGED, RsError.TIMEOUT}:
                    continue
                raise
            yield ShowFrame(data, is_controller, received, self._engine_sync and self.received_inputs())

    def frame_cameras(self) -> Iterator[tuple[ShowStream, CameraData]]:
        """Yield the streams that the awaited frame asks for, with their cameras."""
        for stream in self._shown.streams:
            try:
                camera = self.get_frame_camera(stream.handle)
            except RenderStreamError as err:
                if err.code != RsError.NOTFOUND:
                    raise
            else:
                yield stream, camera

    # Events

    def _take_events(self, deadline_ns: float | None = None) -> bool:
        """Apply all events that are there, or else the next one before the deadline; return whether there was one."""
        wait_s = 0.0 if deadline_ns is None else max(0, deadline_ns - self._port.now_ns()) / 1_000_000_000
        event = self._port.next_event(wait_s)
        if event is None:
            return False
        while event is not None:
            self._apply(event)
            event = self._port.next_event(0.0)
        return True

    def _apply(self, event: EngineEvent) -> None:
        match event:
            case FrameBegins():
                self._frame_begins(event)
            case FrameReady():
                self._frame_ready(event)
            case FramesGone(frame):
                # An engine that awaited each of them in turn would never reach one whose data still wait.
                self._gone = frame
                self._begun.pass_over(frame)
            case InteractionReceived():
                self._interactions.append(event)
                if len(self._interactions) > MAX_INTERACTIONS:
                    self._interactions.popleft()
                    self.counters["interactions_dropped"] += 1
            case StreamsChanged():
                self._shown.changed(event.streams)
                self._streams_changed = True
            case CamerasReceived():
                self._shown.keep_cameras(event)
            case QuitTold():
                self._quit = True

    def _tell(self, act: EngineAct) -> None:
        """Submit what the node can do without."""
        try:
            self._port.submit(act)
        except RenderStreamError:
            self.counters["reports_lost"] += 1

    def _frame_begins(self, event: FrameBegins) -> None:
        if (self._calls.open is not None and event.frame <= self._calls.open.frame) or not self._begun.add(event):
            self.counters["frames_out_of_order"] += 1

    def _dropped(self, frame: int) -> None:
        self._not_applied(frame)
        self.counters["frames_dropped"] += 1

    def _not_applied(self, frame: int, reason: DropReason = DropReason.ENGINE) -> None:
        """The node is to know of each frame that has begun and that this engine does not show."""
        self._tell(EngineDropped(frame, frame, reason))

    def _frame_ready(self, event: FrameReady) -> None:
        """Keep the data of the awaited frame until they are received; of later frames the newest ones."""
        self._data.arrived(event)
        opened = self._calls.open
        if opened is None or event.frame > opened.frame:
            self._data.keep(event)
        elif event.frame == opened.frame and not (opened.exchanged or opened.closed):
            opened.ready = event
        elif event.frame > self._data.has:
            # The engine waits for them no more.
            self._not_applied(event.frame, DropReason.LATE)

    # The awaited frame

    def _begin(self, begins: FrameBegins, timeout_ms: int) -> FrameData:
        reset = bool(begins.data.flags & FrameDataFlag.RESET)
        if reset:
            self.last_complete = None
            self._interactions.clear()
            self._data.forget_before(begins.frame)
        rate = FrameRate(begins.data.frame_rate_numerator, begins.data.frame_rate_denominator)
        self._shown.begin(begins.frame, reset=reset)
        self._calls.open = AwaitedFrame(begins, frozenset(stream.handle for stream in self._shown.streams), timeout_ms)
        self._calls.open.ready = self._data.take(begins.frame)
        return replace(begins.data, local_time_delta=self._deltas.step(begins.frame, rate, reset=reset))

    def _close_frame(self) -> None:
        """The engine has done what it wanted with the frame before."""
        opened = self._calls.open
        if opened is None or opened.closed:
            return
        opened.closed = True
        if not self._engine_sync or opened.exchanged:
            return
        if opened.begins.is_controller:
            self.counters["frames_not_sent"] += 1
        else:
            self.counters["frames_not_asked_for"] += 1
            if opened.ready is not None:
                self._not_applied(opened.frame)

    def _give_up(self, opened: AwaitedFrame, counter: str) -> None:
        """Nothing is rendered for the frame: the last images are shown again."""
        opened.exchanged, opened.may_render = True, False
        self.counters[counter] += 1
        self._shown.repeat(opened.frame)

    def _not_received(self, opened: AwaitedFrame, sentence: str) -> NoReturn:
        self._give_up(opened, "frames_not_received")
        raise RenderStreamError(RsError.TIMEOUT, sentence)

    # What is allowed

    def _check_version(self, opened: AwaitedFrame, ready: FrameReady) -> None:
        if ready.version != self._version:
            self._give_up(opened, "frames_of_another_version")
            self._not_applied(opened.frame, DropReason.VERSION)
            raise RenderStreamError(
                RsError.INCOMPATIBLE_VERSION,
                f"the data of frame {ready.frame} have payload version {ready.version}, this engine reads "
                f"{self._version}; start the same release of the engine on all nodes",
            )

    def _check_base(self, opened: AwaitedFrame, ready: FrameReady) -> None:
        """Inputs that follow another state than the engine's would lead to one that no other node has."""
        if not self._data.follows(ready):
            self._give_up(opened, "frames_without_base")
            self._not_applied(ready.frame, DropReason.NO_BASE)
            raise RenderStreamError(
                RsError.TIMEOUT,
                f"the inputs of frame {ready.frame} follow frame {ready.base_frame}, whose state this engine does not "
                "have; render nothing, await: a full state comes by itself",
            )
