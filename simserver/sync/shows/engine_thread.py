"""The engine of a node in a thread of its own, so that however long it computes, the server keeps its lease.

An engine ends by itself, by an error, or because it is told QUIT. Whichever it is ends this node's part in the show and
nothing else. A thread cannot be ended from outside: one that does not listen is left behind, and ends with the process.
"""

import logging
import threading  # noqa: TID251 — an engine computes for as long as it likes, and the server's loop must not wait
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.authority.node.plugins import import_named
from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.ports import QuitTold
from batonpass.simserver.sync.followers.settings import MAX_STATE_BYTES
from batonpass.simserver.sync.followers.structs import RenderStreamError, RsError

__all__ = ["Engine", "EngineProgram", "EngineThread", "load_engine"]

_log = logging.getLogger("batonpass.simserver.sync.shows.engine_thread")

MAX_ERROR_LETTERS: Final = 300

Engine = Callable[..., object]
"""Called as `engine(node, server, **options)`, with this node's `EngineNode` and the name of this server."""


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """What a server runs in its shows.

    Attributes:
        options: keyword arguments of the engine.
        max_state_bytes: of a state that it sends.
    """

    engine: Engine
    options: Mapping[str, Any] = field(default_factory=dict)
    max_state_bytes: int = MAX_STATE_BYTES


def load_engine(spec: str) -> Engine:
    """Import an engine by `package.module:function`. Raises ConfigError: there is none."""
    engine: Engine = import_named(f"engine {spec!r}", spec, "function")
    return engine


class EngineThread:
    """One engine of one show; `start` once.

    Args:
        ended: called in the engine's thread when it has ended, with whether that was an error.

    Attributes:
        error: what ended it, as one line; empty if that was no error.
        counters: of its `EngineNode`.
    """

    def __init__(
        self,
        entity: str,
        server: str,
        program: EngineProgram,
        mailbox: EngineMailbox,
        ended: Callable[[bool], None],
    ) -> None:
        self._entity: Final = entity
        self._server: Final = server
        self._program: Final = program
        self._mailbox: Final = mailbox
        self._ended: Final = ended
        self._node: Final = EngineNode(mailbox, max_state_bytes=program.max_state_bytes)
        self.error = ""
        self._thread: Final = threading.Thread(target=self._run, name=f"engine of {entity}", daemon=True)

    @property
    def counters(self) -> dict[str, int]:
        """As `EngineNode.counters`, at this moment."""
        return dict(self._node.counters)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._mailbox.engine_starts()
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end; it does so with its next await."""
        self._mailbox.put(QuitTold())

    def _run(self) -> None:
        has_failed = False
        try:
            self._program.engine(self._node, self._server, **self._program.options)
        except RenderStreamError as error:
            # An engine that lets QUIT pass has ended as it was told.
            if has_failed := error.code is not RsError.QUIT:
                self.error = _line_of(error)
                _log.exception("the engine of %s failed on a call", self._entity)
        except BaseException as error:
            # Whatever it is, it must not be printed by the threading module and forgotten.
            has_failed, self.error = True, _line_of(error)
            _log.exception("the engine of %s failed: this server takes no part in the show any more", self._entity)
        finally:
            self._ended(has_failed)


def _line_of(error: BaseException) -> str:
    """The kind of an error and what it says, on one line and of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_ERROR_LETTERS]
