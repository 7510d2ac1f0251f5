"""Where a stream is asked for: at one of several doors, or where one of them has sent the client on. No I/O.

A path of a `StreamFollower` begins with the name of the stream. Where a client was sent on to, the stream may have
another name, so that part of the path is exchanged.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["MAX_SENT_ON", "BadDoor", "KnownDoors"]

MAX_SENT_ON: Final = 4
"""A client that is sent on more often without an answer asks its doors again, after a pause."""
_MAX_URL_CHARS: Final = 2_048


class BadDoor(ValueError):
    """A door has sent the client on to what is no URL of a stream; the sentence says why."""


class KnownDoors:
    """The doors that may have one stream.

    Args:
        urls: of one door or several, as `http://127.0.0.1:9922`, the one that is asked first in front.

    Raises:
        ValueError: there is none.
    """

    def __init__(self, urls: str | Sequence[str]) -> None:
        self._urls: Final = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._urls:
            raise ValueError("a stream is asked for at one door at least: give its URL")
        self._at = 0
        self._stream_url = ""

    @property
    def names(self) -> str:
        """The URLs of all doors, for people."""
        return ", ".join(self._urls)

    def url_of(self, path: str) -> str:
        """Return where to ask for a path, which begins with the stream's name."""
        if not self._stream_url:
            return self._urls[self._at] + path
        _, _, rest = path.removeprefix("/").partition("/")
        return f"{self._stream_url}/{rest}"

    def sent_on(self, answer: Any) -> None:
        """Take the JSON of an answer 307, which has the URL of the stream elsewhere: it is asked for there from now on.

        Raises:
            BadDoor: the answer has no such URL, or one that would show the private id on the way.
        """
        url = answer.get("url") if isinstance(answer, dict) else None
        if not isinstance(url, str) or len(url) > _MAX_URL_CHARS:
            raise BadDoor(f"the door sends this client on without a URL: {answer!r:.200}")
        try:
            there, here = urlsplit(url), urlsplit(self.url_of("/"))
        except ValueError as error:
            raise BadDoor(f"the door sends this client on to {url!r:.200}, which is no URL: {error}") from error
        schemes = {"link"} if here.scheme == "link" else {"http", "https"}
        if there.scheme not in schemes or not there.netloc:
            raise BadDoor(
                f"the door sends this client on to {url!r:.200}, which is no URL of {' or '.join(sorted(schemes))}"
            )
        if here.scheme == "https" != there.scheme:
            raise BadDoor(f"the door sends this client from https on to {url!r:.200}, without encryption")
        self._stream_url = url.rstrip("/")
        known = [at for at, door in enumerate(self._urls) if self._stream_url.startswith(f"{door}/")]
        self._at = known[0] if known else self._at

    def failed(self) -> None:
        """Ask the next door: the one that was asked does not answer, or does not have the stream."""
        self._stream_url = ""
        self._at = (self._at + 1) % len(self._urls)
