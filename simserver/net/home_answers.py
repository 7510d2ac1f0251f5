"""What the home instance answers, and what it is when it does not."""

from collections.abc import Iterable
from typing import Any, Final

from pydantic import ValidationError

from batonpass.authority.model.addresses import with_usable_addresses
from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import NoAnswer
from batonpass.crypto.continuity import Published
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity

__all__ = ["HomeRefused", "HomeUnreachable", "answered", "keys_shown", "rows_of"]


class HomeUnreachable(Exception):
    """No member of the home instance answered; what was asked may have been done all the same."""


class HomeRefused(Exception):
    """The home instance answered with an error that a repetition would not change; with its stable `code` and value."""

    def __init__(self, sentence: str, code: str = "", value: object = None) -> None:
        super().__init__(sentence)
        self.code: Final = code
        self.value: Final = value


def answered(opened: OpenedMessage, member: str) -> OpenedMessage | Exception | None:
    """One of the answers in a batch; None if another member is to be asked."""
    match opened.message:
        case NoAnswer(why="elsewhere"):
            return None
        case NoAnswer(why="undecided"):
            return HomeUnreachable(f"{member} did not decide")
        case NoAnswer(reason=reason):
            return HomeRefused(f"{member}: {reason}")
        case _:
            return opened


def rows_of(rows: Iterable[Any]) -> list[DirectoryRow]:
    """The rows that the directory answered; raises `HomeUnreachable`: they have another form."""
    try:
        return [with_usable_addresses(DirectoryRow.from_data(row)) for row in rows]
    except ValidationError as error:
        raise HomeUnreachable("the directory answered rows of another form") from error


def keys_shown(answer: dict[str, Any]) -> Published:
    """The keys in the answer to a registration; raises `HomeUnreachable`: it has another form."""
    try:
        keys = PublicIdentity.from_jwks_untrusted(answer["keys"])
        return Published(int(answer["version"]), keys, tuple(map(str, answer["statements"])))
    except (KeyError, TypeError, ValueError, CryptoError) as error:
        raise HomeUnreachable("the answer to the registration is of another form") from error
