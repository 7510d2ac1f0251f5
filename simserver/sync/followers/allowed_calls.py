"""Which calls of an engine are allowed at this moment, and which of their arguments make sense.

A call that is not allowed is counted and raises INVALID_PARAMETERS with a sentence that names the call and the remedy.
Nothing has changed by then. RenderStream leaves open what such calls do; docs/explanation/followers.md lists them.
"""

from collections import Counter
from typing import Any, Final, NoReturn

from batonpass.simserver.sync.followers.awaited_frame import AwaitedFrame
from batonpass.simserver.sync.followers.ports import EnginePort
from batonpass.simserver.sync.followers.structs import RenderStreamError, RsError

__all__ = ["MAX_TIMEOUT_MS", "AllowedCalls"]

MAX_TIMEOUT_MS: Final = 86_400_000


class AllowedCalls:
    """Of one engine. All methods raise `structs.RenderStreamError` if the call is not allowed.

    Args:
        engine_sync: whether the nodes of the show exchange states.
        counters: `calls_refused` is counted there.

    Attributes:
        open: the frame that was awaited last; None before the first one.
        has_left: whether the engine has left the show.
    """

    def __init__(self, port: EnginePort, counters: Counter[str], *, engine_sync: bool) -> None:
        self.open: AwaitedFrame | None = None
        self.has_left = False
        self._port: Final = port
        self._counters: Final = counters
        self._engine_sync: Final = engine_sync
        self._thread: int | None = None

    def take_thread(self) -> None:
        """All calls that belong to a frame are to be made by this thread."""
        self._thread = self._port.thread()

    def check_here(self, call: str) -> None:
        """The engine has not left. Raises NOT_INITIALISED."""
        if self.has_left:
            raise RenderStreamError(RsError.NOT_INITIALISED, f"{call}: this engine has left the show by shutdown")

    def check_sync(self, call: str) -> None:
        """The nodes exchange states."""
        if not self._engine_sync:
            self.refuse(call, "engine sync is disabled in this show; ask engine_sync_enabled before")

    def check_thread(self, call: str) -> None:
        """It is called by the thread that awaits."""
        self.check_here(call)
        if self._thread is not None and self._port.thread() != self._thread:
            self.refuse(call, "it was called by another thread than await_frame_data; call both by the same one")

    def awaited(self, call: str) -> AwaitedFrame:
        """Return the frame that is open."""
        self.check_thread(call)
        if self.open is None or self.open.closed:
            self.refuse(call, "no frame is open; call it after await_frame_data has returned one")
        return self.open

    def in_role(self, call: str, *, controller: bool) -> AwaitedFrame:
        """Return the frame that is open, in which this node is the controller, or a follower."""
        self.check_sync(call)
        opened = self.awaited(call)
        if opened.begins.is_controller != controller:
            role, other = ("the controller", "a follower")[:: 1 if opened.begins.is_controller else -1]
            self.refuse(
                call, f"this node is {role} in frame {opened.frame}, the call is for {other}; ask is_controller"
            )
        return opened

    def exchanging(self, call: str, *, controller: bool) -> AwaitedFrame:
        """Return the frame that is open, whose data were neither sent nor received yet."""
        opened = self.in_role(call, controller=controller)
        if opened.exchanged:
            self.refuse(call, f"it was called for frame {opened.frame} before; call it once a frame")
        return opened

    def exchanged_by_follower(self, call: str) -> AwaitedFrame:
        """Return the frame that is open, whose data this follower has received."""
        opened = self.in_role(call, controller=False)
        if not opened.may_render:
            self.refuse(call, f"the data of frame {opened.frame} were not received; receive_follower_data first")
        return opened

    def deadline_ns(self, call: str, timeout_ms: Any) -> float:
        """Return when a call that waits so long is to end."""
        if not isinstance(timeout_ms, int | float) or not timeout_ms <= MAX_TIMEOUT_MS:
            self.refuse(call, f"{timeout_ms!r:.40} ms cannot be waited for; pass at most {MAX_TIMEOUT_MS:,}")
        return self._port.now_ns() + timeout_ms * 1_000_000

    def bytes_of(self, call: str, value: Any, limit: int) -> bytes:
        """Return a copy of what is bytes-like and has at most `limit` bytes."""
        try:
            view = memoryview(value)
        except (TypeError, ValueError):
            # A ValueError is a memoryview that was released.
            self.refuse(call, f"{type(value).__name__} is not bytes-like; pass bytes, a bytearray or a memoryview")
        if view.nbytes > limit:
            self.refuse(call, f"{view.nbytes} bytes are more than the limit of {limit}; send less in a frame")
        return bytes(view)

    def refuse(self, call: str, sentence: str) -> NoReturn:
        """The call is misuse."""
        self._counters["calls_refused"] += 1
        raise RenderStreamError(RsError.INVALID_PARAMETERS, f"{call}: {sentence}")
