"""Which releases understand each other: the version of what the servers of an instance say to each other."""

from typing import Final

__all__ = ["PROTOCOL_VERSION", "why_other_release"]

PROTOCOL_VERSION: Final = 1
"""Of the messages between servers, to be raised whenever one of them gets or loses a field, or means something else.

A server that gets a message with a field that it does not know takes it for none. So a simulation server says its
version when it registers and with each renewal of its lease. It is refused at once if that of its homeserver is another
one: else both would wait for each other. A test notices when the fields of a message have changed
(`tests/authority/wire/test_protocol_version.py`).
"""


def why_other_release(server: str, its_version: int, homeserver: str, version: int) -> str:
    """The sentence for people, with both numbers; a version of 0 is of releases that did not say any."""
    its = f"protocol version {its_version}" if its_version else "an earlier protocol, without a version"
    return f"{server} speaks {its}, and {homeserver} version {version}: have both run the same release"
