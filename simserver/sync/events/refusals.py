"""What a server of event streams refuses. A refused request changes nothing, for no client."""

from enum import StrEnum
from typing import Final

from batonpass.actors.base.refusals import DoorRefused

__all__ = ["RefusalCode", "StreamRefusal"]


class RefusalCode(StrEnum):
    """Why a request was refused. The texts are stable: clients read them."""

    ORIGIN_REFUSED = "origin_refused"
    UNAUTHORIZED = "unauthorized"
    BAD_PATH = "bad_path"
    BAD_NUMBER = "bad_number"
    BAD_BODY = "bad_body"
    RESERVED_TYPE = "reserved_type"
    BODY_TOO_LARGE = "body_too_large"
    TOO_MANY_EVENTS = "too_many_events"
    TOO_MANY_CLIENTS = "too_many_clients"
    TOO_MANY_STREAMS = "too_many_streams"
    STREAM_FULL = "stream_full"
    HISTORY_DROPPED = "history_dropped"
    UNKNOWN_STREAM = "unknown_stream"
    UNKNOWN_CLIENT = "unknown_client"
    OTHER_INCARNATION = "other_incarnation"
    NO_SNAPSHOT = "no_snapshot"
    BAD_SNAPSHOT = "bad_snapshot"
    OLD_SNAPSHOT = "old_snapshot"
    NO_QUORUM = "no_quorum"
    NO_DESYNC = "no_desync"
    TOO_MANY_DUMPS = "too_many_dumps"
    ELSEWHERE = "elsewhere"
    UNAVAILABLE = "unavailable"


_STATUS: Final = {
    RefusalCode.ORIGIN_REFUSED: 403,
    RefusalCode.UNAUTHORIZED: 401,
    RefusalCode.BAD_PATH: 404,
    RefusalCode.BAD_NUMBER: 400,
    RefusalCode.BAD_BODY: 400,
    RefusalCode.RESERVED_TYPE: 400,
    RefusalCode.BODY_TOO_LARGE: 413,
    RefusalCode.TOO_MANY_EVENTS: 429,
    RefusalCode.TOO_MANY_CLIENTS: 429,
    RefusalCode.TOO_MANY_STREAMS: 429,
    RefusalCode.STREAM_FULL: 429,
    RefusalCode.HISTORY_DROPPED: 410,
    RefusalCode.UNKNOWN_STREAM: 404,
    RefusalCode.UNKNOWN_CLIENT: 404,
    RefusalCode.OTHER_INCARNATION: 409,
    RefusalCode.NO_SNAPSHOT: 404,
    RefusalCode.BAD_SNAPSHOT: 400,
    RefusalCode.OLD_SNAPSHOT: 409,
    RefusalCode.NO_QUORUM: 409,
    RefusalCode.NO_DESYNC: 404,
    RefusalCode.TOO_MANY_DUMPS: 429,
    RefusalCode.ELSEWHERE: 307,
    RefusalCode.UNAVAILABLE: 503,
}


class StreamRefusal(DoorRefused):
    """A request was refused. `code` is for programs, `message` names the offender and the remedy.

    With the code `elsewhere`, `url` is that of the stream at the server that has it: `{url}/{private id}/{tick}`. The
    name of that server is `server`.
    """

    code: RefusalCode

    def __init__(self, code: RefusalCode, message: str, url: str = "", server: str = "") -> None:
        super().__init__(code, message)
        self.message: Final = message
        self.url: Final = url
        self.server: Final = server

    @property
    def status(self) -> int:
        """The HTTP status: 4xx; 307 and 503 if this server cannot know, because it does not have the stream."""
        return _STATUS[self.code]
