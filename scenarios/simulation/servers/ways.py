"""How servers reach each other, in place of what does it over sockets: the home instance, the link, other instances."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import MAX_BATCH, Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Message, NoAnswer
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.scenarios.simulation.servers.calls import AuthorityAsked, CallRefused, Calls, CallUnanswered
from batonpass.scenarios.simulation.servers.company import SimulatedBatch, VirtualCombiner
from batonpass.scenarios.simulation.servers.keys import KeysKnown, SimulatedKeys
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.tasks import SimulatedProcess
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable

__all__ = ["Neighbours", "SimulatedLink", "SimulatedWhereabouts", "WayHome"]


class WayHome:
    """As `home_client.Home`: the key directory, and questions to the members of the home instance in turn."""

    def __init__(
        self,
        name: str,
        keys: KeysKnown,
        calls: Calls,
        process: SimulatedProcess,
        *,
        in_company: bool,
        most: int = MAX_BATCH,
    ) -> None:
        self._keys: Final = keys
        self._calls: Final = calls
        self._members = list(keys.homes(instance_of(name)))
        # They are the same from beginning to end here: no server has to be told which ones this one knows.
        self.members_digest: Final = ""
        self._in_company: Final = in_company
        self._asking: Final[VirtualCombiner[Letter, OpenedMessage | None]] = VirtualCombiner(
            process, self.ask_each, most=most
        )
        self._why_not_asked: Callable[[], str] | None = None

    def bind(self, why_not_asked: Callable[[], str]) -> None:
        """As `Home.bind`."""
        self._why_not_asked = why_not_asked

    def why_not_asked(self) -> str:
        """As `Home.why_not_asked`."""
        return "no server has said yet" if self._why_not_asked is None else self._why_not_asked()

    async def row(self, name: str) -> DirectoryRow | None:
        """As `Home.row`."""
        return await self._keys.row(name)

    def row_at_hand(self, name: str) -> DirectoryRow | None:
        """As `Home.row_at_hand`."""
        return self._keys.row_at_hand(name)

    async def role_of(self, name: str) -> Role | None:
        """As `Home.role_of`."""
        return self.role_at_hand(name)

    def role_at_hand(self, name: str) -> Role | None:
        """As `Home.role_at_hand`."""
        row = self._keys.row_at_hand(name)
        return None if row is None else row.role

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        """As `Home.keys_of`."""
        return await self._keys.keys_of(name, kid)

    def keys_at_hand(self, name: str, kid: str = "") -> PublicIdentity | None:
        """As `Home.keys_at_hand`."""
        return self._keys.keys_at_hand(name, kid)

    def is_member(self, name: str) -> bool:
        """As `Home.is_member`."""
        return any(row.name == name for row in self._members)

    def members_changed(self) -> None:
        """As `Home.members_changed`: they never do."""

    def members(self) -> Iterator[DirectoryRow]:
        """As `Home.members`."""
        yield from self._members

    async def prefer(self, name: str, *, to: str) -> None:
        """As `Home.prefer`."""
        self._members.sort(key=lambda row: (row.name != name, row.name == to))

    async def ask(self, message: Message, trace: Trace, *, on_path: bool, **how: Any) -> OpenedMessage | None:
        """As `Home.ask`."""
        if why := self.why_not_asked():
            raise HomeUnreachable(why)
        if self._in_company:
            return await self._asking.do(Letter(message, trace, on_path))
        return await self.ask_alone(message, trace)

    async def authority_of(self, entity: str) -> str | None:
        """As `Home.authority_of`."""
        if why := self.why_not_asked():
            raise HomeUnreachable(why)
        authority, _ = await self._ask(AuthorityAsked(entity))
        found: str | None = authority
        return found

    async def _ask(self, message: Any) -> tuple[Any, str]:
        """The answer of the first member that gives one, and which that is."""
        problem = ""
        for member in list(self._members):
            try:
                answer = await self._calls.call(member.name, message)
            except CallUnanswered as error:
                problem = str(error)
                continue
            except CallRefused as error:
                raise HomeRefused(str(error)) from error
            if self._members[0] is not member:
                self._members = [member, *(row for row in self._members if row is not member)]
            return answer, member.name
        raise HomeUnreachable(problem)

    async def ask_alone(self, message: Message, trace: Trace) -> OpenedMessage | None:
        """As `Home.ask_alone`."""
        answer, member = await self._ask(message)
        return None if answer is None else OpenedMessage(answer, member, trace)

    async def renew(self, message: Message, trace: Trace) -> OpenedMessage | None:
        """As `Home.renew`: whatever else is not asked without a lease, this is."""
        return await self.ask_alone(message, trace)

    async def ask_each(self, letters: Sequence[Letter]) -> list[OpenedMessage | Exception | None]:
        """As `Home.ask_each`: in one parcel if anything shares one here, else one after the other."""
        if why := self.why_not_asked():
            return [HomeUnreachable(why)] * len(letters)
        if not self._in_company or len(letters) == 1:
            return [await self._asked(letter) for letter in letters]
        try:
            answers, member = await self._ask(SimulatedBatch(tuple(letter.message for letter in letters)))
        except (HomeUnreachable, HomeRefused) as error:
            return [error] * len(letters)
        return [_read(answer, member, letter.trace) for answer, letter in zip(answers, letters, strict=True)]

    async def _asked(self, letter: Letter) -> OpenedMessage | Exception | None:
        try:
            answer, member = await self._ask(letter.message)
            return None if answer is None else OpenedMessage(answer, member, letter.trace)
        except (HomeUnreachable, HomeRefused) as error:
            return error


class SimulatedWhereabouts:
    """As `HomeWhereabouts`: a client finds a server by its name."""

    def __init__(self, home: WayHome) -> None:
        self._home: Final = home

    async def authority_of(self, entity: str) -> str | None:
        """As `EntityWhereabouts.authority_of`."""
        return await self._home.authority_of(entity)

    async def door_of(self, server: str, doors: str = "streams") -> str:
        """As `EntityWhereabouts.door_of`."""
        return server


def _read(answer: Message, member: str, trace: Trace) -> OpenedMessage | Exception | None:
    """One answer of several, as `simserver.net.home_client` reads it."""
    if not isinstance(answer, NoAnswer):
        return OpenedMessage(answer, member, trace)
    if answer.why == "elsewhere":
        return None
    return HomeRefused(answer.reason) if answer.why == "refused" else HomeUnreachable("it could not be decided")


class SimulatedLink:
    """As `actors.net.link_service.LinkService`, for what travels bare."""

    def __init__(self, name: str, mail: SimulatedMail) -> None:
        self._name: Final = name
        self._mail: Final = mail
        self.stats: Final[Mapping[str, int]] = {}
        """As `LinkService.stats`; bytes are not counted here."""

    def post(self, to: str, where: tuple[str, int], message: bytes, *, channel: int = 0) -> None:
        """As `LinkService.post`."""
        self._mail.send(self._name, to, message)


class Neighbours:
    """The way to other home instances, as `homeserver.names.federation.Federation` is used."""

    def __init__(self, keys: SimulatedKeys, calls: Calls) -> None:
        self._keys: Final = keys
        self._calls: Final = calls

    def hops_to(self, instance: str) -> int | None:
        """All of them know each other."""
        return 1

    def is_silent(self, instance: str) -> bool:
        """No server has noticed."""
        return False

    def reachable_instances(self) -> dict[str, int]:
        """All there are."""
        return dict.fromkeys(self._keys.instances, 1)

    async def exchange(self, instance: str, message: Message, trace: Trace, **how: Any) -> tuple[Message, Trace]:
        """Ask the members of the other home in turn, or one of them `first`."""
        return await self._ask(instance, message, **how), trace

    async def exchange_all(
        self, instance: str, letters: Sequence[Letter], **how: Any
    ) -> list[tuple[Message, Trace] | InstanceUnreachable]:
        """As `Federation.exchange_all`: what is asked together travels together."""
        try:
            if len(letters) == 1:
                answers = [await self._ask(instance, letters[0].message)]
            else:
                answers = await self._ask(instance, SimulatedBatch(tuple(letter.message for letter in letters)))
        except InstanceUnreachable as error:
            return [error] * len(letters)
        return [
            InstanceUnreachable(answer.why) if isinstance(answer, NoAnswer) else (answer, letter.trace)
            for letter, answer in zip(letters, answers, strict=True)
        ]

    async def _ask(self, instance: str, message: Any, *, first: str = "", **_: Any) -> Any:
        problem = f"{instance} had nothing to say"
        for row in sorted(self._keys.homes(instance), key=lambda row: row.name != first):
            try:
                answer = await self._calls.call(row.name, message)
            except (CallUnanswered, CallRefused) as error:
                problem = str(error)
                continue
            if answer is not None:
                return answer
        raise InstanceUnreachable(problem)
