"""To send without a wait: what an application that tells many peers of one thing at one time has beside ASGI's `send`.

A task of its own for each peer, woken for each message, costs several times what the system call costs that sends it.
With this one task tells all of them. What a peer does not take at once is kept, and sent by the peer's own task, which
waits for it within the bounds of `send`. So a peer that is slow delays no other.

It is an extension of ASGI: `scope["extensions"][SEND_NOW]` is a `PromptSender`.
"""

from typing import Final, Protocol

__all__ = ["SEND_NOW", "PromptSender"]

SEND_NOW: Final = "batonpass.send_now"


class PromptSender(Protocol):
    """One connection, whose application has begun to answer, or has accepted the WebSocket."""

    def send_now(self, data: str | bytes) -> bool:
        """Send a message, or a piece of the body; whether all of it is sent.

        If not, what is left goes ahead of all that is sent later. `flush` comes before the next call, or there is no
        bound to what is kept. Raises `BrokenResourceError`: the peer is gone.
        """

    async def flush(self) -> None:
        """Send what is left. Raises as `send` does."""
