"""How large what servers send each other may be."""

from typing import Final

from batonpass.actors.link import MAX_MESSAGE_BYTES

__all__ = ["INLINE_STATE_BYTES", "MAX_BODY_BYTES", "MAX_STATE_BYTES"]

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
# A state up to this size is sealed with its message. A larger one travels beside it, and the message has a manifest. An
# envelope takes 16/9 of its contents and 15 ms for a megabyte, and the link has encrypted the state already.
INLINE_STATE_BYTES: Final = 16 * 1024
# With its parcel it is one message of the link, and what is sealed takes at most 16/9 of its own bound.
MAX_STATE_BYTES: Final = MAX_MESSAGE_BYTES - 2 * MAX_BODY_BYTES
