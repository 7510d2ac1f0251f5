"""What has been answered to whom: the memory that makes a command submitted twice apply once.

The memory is bounded, and what is forgotten is the same on every member. Within a client, the answers with the lowest
numbers go first. Numbers up to the highest forgotten one are refused ever after, and not applied again. Of the clients,
the one that has not submitted for the longest goes first. Nothing of it is remembered, so a client id must not be used
again after 4096 other clients have come. Members make a new one at every start.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from batonpass.tree.data.errors import BadData

__all__ = ["MAX_ANSWERS", "MAX_ANSWER_BYTES", "MAX_SESSIONS", "ClientSession", "ClientSessions", "FrozenSessions"]

MAX_SESSIONS: Final = 4096
# More than one client can have outstanding, so a live retry always finds its answer.
MAX_ANSWERS: Final = 1024
# Answers are small as a rule; a client that asks for big ones is remembered for fewer of them.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024


class ClientSession:
    """The answers to one client, by number."""

    def __init__(self) -> None:
        # Told before the first change, while a reader has the sessions as they were; see `FrozenSessions`.
        self.before_change: Callable[[ClientSession], None] | None = None
        self._answers: OrderedDict[int, bytes] = OrderedDict()
        self._is_sorted = True  # by number, as they come as a rule
        self._highest = -1
        self._bytes = 0
        self._forgotten_up_to = -1

    def remembered(self, number: int) -> bytes | None:
        """The answer given to this number, or None."""
        return self._answers.get(number)

    def is_forgotten(self, number: int) -> bool:
        """Whether this number may have been answered and forgotten."""
        return number <= self._forgotten_up_to

    def remember(self, number: int, answer: bytes) -> None:
        """Keep an answer, forgetting those of the lowest numbers when there are too many or too big ones."""
        answers = self._answers
        if number <= self._forgotten_up_to or number in answers:
            return
        if self.before_change is not None:
            self.before_change(self)
        if number > self._highest:
            self._highest = number
        else:
            self._is_sorted = False
        answers[number] = answer
        self._bytes += len(answer)
        while len(answers) > MAX_ANSWERS or (self._bytes > MAX_ANSWER_BYTES and len(answers) > 1):
            # Exactly the lowest, not the oldest: a member restored from a snapshot must forget the same one.
            if not self._is_sorted:
                self._answers = answers = OrderedDict(sorted(answers.items()))
                self._is_sorted = True
            lowest, forgotten = answers.popitem(last=False)
            self._bytes -= len(forgotten)
            self._forgotten_up_to = max(self._forgotten_up_to, lowest)

    def to_data(self) -> list[Any]:
        """As plain data."""
        return [self._forgotten_up_to, [[number, answer] for number, answer in sorted(self._answers.items())]]

    @staticmethod
    def from_data(data: Any) -> "ClientSession":
        """Read what `to_data` wrote; raises `BadData`."""
        session = ClientSession()
        match data:
            case [int(forgotten_up_to), list(answers)]:
                session._forgotten_up_to = forgotten_up_to
            case _:
                raise BadData("not a session")
        for answer in answers:
            match answer:
                case [int(number), bytes(encoded)]:
                    session._is_sorted &= number > session._highest
                    session._highest = max(session._highest, number)
                    session._answers[number] = encoded
                    session._bytes += len(encoded)
                case _:
                    raise BadData("not an answer in a session")
        return session


class ClientSessions:
    """The sessions of all clients, the longest unused first."""

    def __init__(self) -> None:
        self._sessions: dict[str, ClientSession] = {}
        self._latest: tuple[str, ClientSession] = ("", ClientSession())  # spares the same client the same bookkeeping

    def of(self, client: str) -> ClientSession:
        """The client's session, new if there was none, marked as used now; the longest unused may go."""
        if self._latest[0] == client:
            return self._latest[1]
        session = self._sessions.pop(client, None)
        if session is None:
            session = ClientSession()
        self._sessions[client] = session
        self._latest = (client, session)
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def peek(self, client: str) -> ClientSession | None:
        """The client's session, if there is one."""
        return self._sessions.get(client)

    def become(self, other: "ClientSessions") -> None:
        """Take over the contents of another memory."""
        self._sessions, self._latest = other._sessions, other._latest

    def freeze(self) -> "FrozenSessions":
        """The sessions as they are now, to be read in slices while they change."""
        return FrozenSessions(self._sessions)

    def add_untrusted(self, rows: Any) -> None:
        """Take the next rows of `FrozenSessions`, the longest unused first; raises `BadData`."""
        for client, session in ClientSessions.from_data(rows)._sessions.items():
            if client in self._sessions or len(self._sessions) >= MAX_SESSIONS:
                raise BadData(f"a client's session is there twice, or there are more than {MAX_SESSIONS}")
            self._sessions[client] = session

    def to_data(self) -> list[Any]:
        """As plain data, the longest unused first."""
        return [[client, session.to_data()] for client, session in self._sessions.items()]

    @staticmethod
    def from_data(data: Any) -> "ClientSessions":
        """Read what `to_data` wrote; raises `BadData`."""
        sessions = ClientSessions()
        if not isinstance(data, list):
            raise BadData("not a list of sessions")
        for row in data:
            match row:
                case [str(client), session]:
                    sessions._sessions[client] = ClientSession.from_data(session)
                case _:
                    raise BadData("not the row of a session")
        return sessions


class FrozenSessions:
    """The sessions of one moment: a session that is about to change is written down before it does."""

    def __init__(self, sessions: dict[str, ClientSession]) -> None:
        self._sessions: Final = list(sessions.items())
        self._before: Final[dict[ClientSession, list[Any]]] = {}
        for _, session in self._sessions:
            session.before_change = self._keep

    def rows(self) -> Iterator[list[Any]]:
        """A row per session, the longest unused first; to be taken in slices."""
        for client, session in self._sessions:
            session.before_change = None
            yield [client, self._before.pop(session, None) or session.to_data()]

    def release(self) -> None:
        """No reader reads on."""
        for _, session in self._sessions:
            session.before_change = None

    def _keep(self, session: ClientSession) -> None:
        session.before_change = None
        self._before[session] = session.to_data()
