"""A simulation server's client of its home instance: registration, the key directory, sealed requests.

Any member can answer. The leader is asked first, because it spares the log one more step; when it is gone, the others
are asked in turn. Requests are idempotent, so asking twice is safe.

Questions of the same moment travel as one parcel, and few parcels are under way at a time. What is asked meanwhile
gathers, and leaves together, or not at all if no task waits for it any more. There is a lane for each set of instances
that have to do with it: one that does not answer keeps only its own waiting. Renewals of the lease are in no lane, and
so never wait for anything else that is asked.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import trio

from batonpass.actors.base.batcher import Batcher
from batonpass.actors.base.clock import InstanceClock
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.authority.errors import MessageError, Reason
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import BadName, check_name
from batonpass.authority.protocol_version import PROTOCOL_VERSION
from batonpass.authority.trust.key_pinning import (
    CLOCK,
    DIRECTORY,
    Pins,
    address_claims,
    is_proof,
    registration_proof,
    rows_proof,
)
from batonpass.authority.wire.batch import MAX_BATCH, Letter, take_batch
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import digest_of_members
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import Message, Parcel
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.crypto.continuity import Published
from batonpass.crypto.errors import CryptoError, KeyConflict
from batonpass.crypto.keys import PublicIdentity
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable, answered, keys_shown, rows_of

__all__ = [
    "HomeClient",
]

_log = logging.getLogger("batonpass.simserver.net.home_client")

REQUEST_TIMEOUT_S: Final = 2.0
ROW_TTL_NS: Final = 30_000_000_000
# The row of a peer that is silent: it may have come back elsewhere.
SILENT_ROW_TTL_NS: Final = 2_000_000_000
# Keys of this age are asked for again before they are used; those of peers with a link are asked for earlier.
KEYS_TTL_NS: Final = 60_000_000_000
# At a handshake, and for a key id that is not known, keys are asked for anew, except this soon after the last time. New
# keys are in the directory before anything is signed with them: waiting this long and asking once more finds them.
FRESH_NS: Final = 1_000_000_000
UNKNOWN_KEY_NS: Final = 20_000_000
# A home instance that does not answer is not asked more often.
RETRY_NS: Final = 5_000_000_000
MAX_ROWS: Final = 100_000
# Parcels under way in one lane, of `MAX_BATCH` messages each. That keeps home busy, and few of its questions come from
# servers that have given up.
AT_ONCE: Final = 4
# Of names that worlds have made up. A question in a lane that is forgotten is asked all the same.
MAX_LANES: Final = 64
# Directory rows that are looked up at a time; those of homeservers are not counted, since renewals wait for them.
MAX_LOOKUPS: Final = 16


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be asked, and whether a task waits for the answer still."""

    letter: Letter
    is_wanted: Callable[[], bool]


class HomeHandshakeKeys:
    """The key directory as the link asks it: what the home instance shows now, if it was not asked a moment ago."""

    def __init__(self, home: "HomeClient") -> None:
        self._home: Final = home

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """As `HomeClient.keys_of`."""
        return await self._home.keys_of(name, max_age_ns=FRESH_NS)


class HomeClient:
    """One simulation server's way to its home instance.

    Args:
        sealer: this server's name and keys.
        urls: REST addresses of the members, as configured.
        join_token: the secret that proves, both ways, which servers belong to the instance.
        is_silent: whether a peer may be elsewhere by now.
        pins: what is known of the keys of others.
    """

    def __init__(
        self,
        sealer: Sealer,
        instance: str,
        urls: tuple[str, ...],
        join_token: bytes,
        client: HttpClient,
        clock: InstanceClock,
        is_silent: Callable[[str], bool],
        pins: Pins | None = None,
    ) -> None:
        self._sealer = sealer
        self._instance = instance
        self._urls = list(urls)
        self._join_token = join_token
        self._client = client
        self._clock = clock
        self._members: list[DirectoryRow] = []
        self.members_digest = ""
        """By which the home instance sees whether the members are still those that are known; empty before any are."""
        self._other_members = clock.bell()
        self.is_registered = True
        """Whether the directory had this server's row when it was last looked at: when a renewal was not answered."""
        self._rows: LruTable[str, tuple[int, DirectoryRow | None]] = LruTable(MAX_ROWS)
        self._keys: LruTable[str, tuple[int, PublicIdentity]] = LruTable(MAX_ROWS)
        self._lanes: FifoTable[frozenset[str], Batcher[_Asked, OpenedMessage | None]] = FifoTable(MAX_LANES)
        self._lookups: Final = trio.CapacityLimiter(MAX_LOOKUPS)
        self.pins: Final = Pins() if pins is None else pins
        self._why_not_asked: Callable[[], str] | None = None
        self._is_silent: Final = is_silent
        self.handshakes: Final = HomeHandshakeKeys(self)

    def bind(self, why_not_asked: Callable[[], str]) -> None:
        """Ask as a server that has a lease, or has none. Once; before it, nothing is asked that needs one.

        `why_not_asked` says why the home instance is asked for nothing but the lease: this server has none, say; empty
        if it is.

        Raises:
            RuntimeError: it was bound before.
        """
        if self._why_not_asked is not None:
            raise RuntimeError(f"the way from {self._sealer.name} to its home instance is bound to a lease already")
        self._why_not_asked = why_not_asked

    def why_not_asked(self) -> str:
        """As it is bound: why the home instance is asked for nothing but the lease; empty if it is."""
        if self._why_not_asked is None:
            return "it is not known yet whether this server has a lease"
        return self._why_not_asked()

    # --- registration and directory --------------------------------------------------------------------------------

    async def register(self, rest_url: str, link: tuple[str, int], keys: Published) -> Published:
        """Register this server's keys and addresses; waits until the home instance has taken them.

        Returns the keys that the home instance shows from now on.

        Raises:
            HomeRefused: the token is wrong, other keys are pinned to this name, or that is another release.
        """
        fields = {
            "role": Role.SIMSERVER.value,
            "keys": keys.keys.to_jwks(),
            "version": keys.version,
            "statements": list(keys.statements),
            "rest_url": rest_url,
            "link_host": link[0],
            "link_port": link[1],
            "protocol": PROTOCOL_VERSION,
        }
        name, after = self._sealer.name, 0
        while True:
            claims = address_claims(name, rest_url, *link, revision=after + 1)
            fields["address_statement"] = jose.sign(claims, sender=self._sealer.identity, sender_id=name)
            body = fields | {"proof": registration_proof(self._join_token, name, fields)}
            try:
                answer = await self._request("PUT", f"/v1/servers/{name}", json_body=body)
                await self.refresh_members()
                return keys_shown(answer)
            except HomeUnreachable as error:
                _log.info("not registered yet: %s", error)
                await trio.sleep(0.2)
            except HomeRefused as error:
                if error.code != Reason.STALE_REVISION or type(error.value) is not int or error.value == after:
                    raise
                after = error.value

    async def refresh_members(self) -> None:
        """Learn which the homeservers are and which one leads.

        Raises:
            HomeUnreachable: no homeserver answers.
        """
        rows = await self._directory({"role": Role.HOMESERVER.value})
        members = [row for row in rows if await self._is_believed(row)]
        if not members:
            raise HomeUnreachable("the home instance has registered no homeserver yet")
        leader = (await self._request("GET", "/v1/cluster")).get("leader")
        # Of all that were shown: one that is not believed is no news with every renewal.
        self.members_digest = digest_of_members(rows)
        self._members = sorted(members, key=lambda row: (row.name != leader, row.name))
        leading = self.rest_urls()
        self._urls = leading + [url for url in self._urls if url not in leading]

    def is_member(self, name: str) -> bool:
        """Whether this is a homeserver of the instance, as far as is known here."""
        return any(row.name == name for row in self._members)

    def members_changed(self) -> None:
        """There is word that the homeservers, or where they are, are not as they were: `serve_members` asks."""
        self._other_members.ring()

    async def serve_members(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn which the homeservers are whenever that has changed, until cancelled.

        Beside the renewals, which must not wait for it. Without this a server would know for good only the homeservers
        of its own start. One that came later would hear no load, and a drain asked of it would not end.
        """
        task_status.started()
        while True:
            await self._other_members.wait()
            await self._refresh_in_peace()

    async def _refresh_in_peace(self) -> None:
        name = self._sealer.name
        try:
            await self.refresh_members()
            self.is_registered = any(row.name == name for row in await self._directory({"name": name}))
        except (HomeUnreachable, HomeRefused) as error:
            _log.info("there are other homeservers, and it is not known where: %s", error)

    async def _is_believed(self, row: DirectoryRow) -> bool:
        try:
            await self._believed(row)
        except KeyConflict:
            return False
        return True

    async def _believed(self, row: DirectoryRow, asked: frozenset[str] = frozenset()) -> DirectoryRow:
        """The row with the keys to use. A reset is judged by what keys the homeserver that signed it has today."""
        signer, current = self.pins.resetter_of(row), tuple[str, ...]()
        if signer is not None and signer not in asked:
            try:
                rows = await self._directory({"name": signer, "fresh": "true"})
                shown = next(one for one in rows if one.name == signer)
                if await self._believed(shown, asked | {row.name, signer}) == shown:
                    current = (signer,)
            except (HomeUnreachable, HomeRefused, KeyConflict, StopIteration) as error:
                _log.warning("the reset of %s cannot be judged now: %s", row.name, error)
        return self.pins.believed(row, now_s=self._clock.unix_s(), current=current)

    async def row(self, name: str, *, max_age_ns: int = ROW_TTL_NS) -> DirectoryRow | None:
        """The directory row of a server or player of any instance, or None; with keys that follow from the pinned ones.

        Raises:
            HomeUnreachable: no homeserver answers now.
        """
        try:
            check_name(name)
        except BadName:
            return None
        if self._is_silent(name):
            max_age_ns = min(max_age_ns, SILENT_ROW_TTL_NS)
        now_ns = self._clock.monotonic_ns()
        cached = self._rows.get(name)
        if cached is not None and now_ns - cached[0] < max_age_ns and cached[1] is not None:
            return cached[1]
        fresh = {"fresh": "true"} if max_age_ns < ROW_TTL_NS else {}
        rows = await self._directory({"name": name} | fresh)
        row = rows[0] if rows and rows[0].name == name else None
        if row is not None:
            try:
                row = await self._believed(row)
            except KeyConflict:
                return None
            self._rows[name] = (now_ns, row)
        return row

    async def keys_of(self, name: str, kid: str = "", *, max_age_ns: int = KEYS_TTL_NS) -> PublicIdentity | None:
        """The public keys of a server or player that are good now; None when it has none, or none can be had.

        With a `kid` that is not among the keys known, newer ones are asked for. When the home instance cannot be asked,
        or what it shows does not follow from what is pinned, the keys are those that are known.
        """
        now_ns = self._clock.monotonic_ns()
        known = self._keys.get(name)
        max_age_ns = min(max_age_ns, self._keys_ttl_ns(name))
        if known is not None and kid and not known[1].knows(kid):
            await trio.sleep(max(UNKNOWN_KEY_NS - (now_ns - known[0]), 0) / 1e9)
            now_ns, known = self._clock.monotonic_ns(), self._keys.get(name, known)
            max_age_ns = min(max_age_ns, UNKNOWN_KEY_NS)
        if known is None or now_ns - known[0] >= max_age_ns:
            known = await self._look_up(name, known, now_ns, max_age_ns)
        return None if known is None else known[1].valid_at(self._clock.unix_s())

    def keys_at_hand(self, name: str, kid: str = "") -> PublicIdentity | None:
        """As `keys_of`, if it is known here; else None."""
        known, now_ns = self._keys.get(name), self._clock.monotonic_ns()
        if known is None or now_ns - known[0] >= self._keys_ttl_ns(name) or (kid and not known[1].knows(kid)):
            return None
        return known[1].valid_at(self._clock.unix_s())

    def keys_known(self, name: str) -> PublicIdentity | None:
        """The keys that were seen last, or are pinned, however long ago: for what must not wait."""
        known, pin = self._keys.get(name), self.pins.pin_of(name)
        keys = known[1] if known is not None else None if pin is None else pin.keys
        return None if keys is None else keys.valid_at(self._clock.unix_s())

    def _keys_ttl_ns(self, name: str) -> int:
        """For how long keys are good without asking: a peer that does not answer may have been given others."""
        return SILENT_ROW_TTL_NS if self._is_silent(name) else KEYS_TTL_NS

    async def role_of(self, name: str) -> Role | None:
        """The role of a server or player of any instance, or None. What it once was, it stays, so any row tells.

        Raises:
            HomeUnreachable: no homeserver answers now.
        """
        if (role := self.role_at_hand(name)) is not None:
            return role
        row = await self.row(name)
        return None if row is None else row.role

    def role_at_hand(self, name: str) -> Role | None:
        """As `role_of`, if it is known here; else None."""
        cached = self._rows.get(name)
        return cached[1].role if cached is not None and cached[1] is not None else self.pins.role_of(name)

    def row_at_hand(self, name: str) -> DirectoryRow | None:
        """As `row`, if it is known here; else None."""
        cached = self._rows.get(name)
        return None if cached is None or self._clock.monotonic_ns() - cached[0] >= ROW_TTL_NS else cached[1]

    async def _look_up(
        self, name: str, known: tuple[int, PublicIdentity] | None, now_ns: int, max_age_ns: int
    ) -> tuple[int, PublicIdentity] | None:
        try:
            row = await self.row(name, max_age_ns=max_age_ns)
            found = None if row is None else (now_ns, PublicIdentity.from_jwks_untrusted(row.keys))
        except (HomeUnreachable, HomeRefused, CryptoError) as error:
            _log.info("no keys for %s now: %s", name, error)
            pin = self.pins.pin_of(name)
            found = None if pin is None else (now_ns - max(max_age_ns - RETRY_NS, 0), pin.keys)
        if found is None:
            self._keys.pop(name, None)
            return None
        if known is not None and known[1] == found[1]:
            found = (found[0], known[1])
        self._keys[name] = found
        return found

    async def authority_of(self, entity: str) -> str | None:
        """Which server simulates an entity, by this instance's log: a hint, that is not proved.

        Empty if none does, None if there is no such entity.

        Raises:
            HomeUnreachable, HomeRefused: no member can say.
        """
        try:
            record = await self._request("GET", f"/v1/entities/{entity}", params={"consistency": "local"})
        except HomeRefused as error:
            if error.code == "not_found":
                return None
            raise
        authority = record.get("authority")
        return authority if isinstance(authority, str) else ""

    async def _directory(self, params: dict[str, str]) -> list[DirectoryRow]:
        nonce, asked_ns = secrets.token_urlsafe(16), self._clock.monotonic_ns()
        is_of_home = "name" not in params or self.is_member(params["name"])
        async with nullcontext() if is_of_home else self._lookups:
            answer = await self._request("GET", "/v1/directory", params=params | {"nonce": nonce})
        rows, proof = answer.get("rows"), answer.get("proof")
        if not is_proof(proof, rows_proof(self._join_token, DIRECTORY, nonce, rows)):
            raise HomeUnreachable("the directory answer is not proved with the join token of this instance")
        now_ms, clock_proof = answer.get("now_ms"), answer.get("clock_proof")
        # Of an earlier release there is none.
        if type(now_ms) is int and is_proof(clock_proof, rows_proof(self._join_token, CLOCK, nonce, now_ms)):
            self._clock.told(now_ms, asked_ns)
        return rows_of(rows or ())

    # --- sealed requests -------------------------------------------------------------------------------------------

    def members(self) -> Iterator[DirectoryRow]:
        """The homeservers, the one to ask first at the head."""
        yield from self._members

    def rest_urls(self) -> list[str]:
        """Where the homeservers answer, as far as they are registered."""
        return [row.rest_url for row in self._members if row.rest_url]

    async def prefer(self, name: str, *, to: str) -> None:
        """Ask this homeserver first from now on, and another one last.

        If it is not known, it has registered since the members were last asked for. It would never be asked as long as
        another one answers.
        """
        if name and all(row.name != name for row in self._members):
            await self._refresh_in_peace()
        self._members.sort(key=lambda row: (row.name != name, row.name == to))

    async def ask(
        self, message: Message, trace: Trace, *, on_path: bool, is_wanted: Callable[[], bool] = _always
    ) -> OpenedMessage | None:
        """Send a sealed message to a member and return its sealed answer, opened; None when it takes another way.

        Questions of the same moment travel as one parcel, and so do the answers. When it is its turn to leave and
        it is not wanted any more, it is not asked.

        Raises:
            HomeUnreachable: no member answered.
            HomeRefused: a member refused it for good.
        """
        return await self._lane(message).do(_Asked(Letter(message, trace, on_path), is_wanted))

    def _lane(self, message: Message) -> Batcher[_Asked, OpenedMessage | None]:
        """Where it waits for its turn, with what may have to wait for the same instances."""
        fields = vars(message)
        names = (fields.get("entity", ""), fields.get("target", ""))
        concerned = frozenset(name.partition(".")[0] for name in names if name) - {self._instance}
        lane = self._lanes.get(concerned)
        if lane is None:
            lane = self._lanes[concerned] = Batcher(self._ask_wanted, most=MAX_BATCH, at_once=AT_ONCE)
        return lane

    async def _ask_wanted(self, asked: Sequence[_Asked]) -> list[OpenedMessage | Exception | None]:
        wanted = [one.letter for one in asked if one.is_wanted()]
        outcomes = iter(await self.ask_each(wanted))
        letters = set(map(id, wanted))
        given_up = HomeUnreachable("it is not waited for any more")
        return [next(outcomes) if id(one.letter) in letters else given_up for one in asked]

    async def ask_alone(self, message: Message, trace: Trace) -> OpenedMessage | None:
        """As `ask`, in a parcel of its own: nothing else has to be decided before it is answered.

        And whatever `why_not_asked` says, unlike `ask` and `ask_each`: for what a server has to know to get its lease.
        """
        (outcome,) = await self._ask_each([Letter(message, trace, on_path=False)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ask_each(self, letters: Sequence[Letter]) -> list[OpenedMessage | Exception | None]:
        """`ask` of each of these, in as few parcels as they fit: its answer, None, or what `ask` would raise."""
        if why := self.why_not_asked():
            return [HomeUnreachable(why)] * len(letters)
        return await self._ask_each(letters)

    async def _ask_each(self, letters: Sequence[Letter]) -> list[OpenedMessage | Exception | None]:
        outcomes: list[OpenedMessage | Exception | None] = []
        waiting = deque(letters)
        while together := take_batch(waiting):
            try:
                outcomes += await self._ask_some(together)
            except (HomeUnreachable, HomeRefused) as error:
                outcomes += [error] * len(together)
        return outcomes

    async def _ask_some(self, letters: list[Letter]) -> list[OpenedMessage | Exception | None]:
        """One parcel, to each member in turn until one answers."""
        problem: Exception = HomeUnreachable("no homeserver is known")
        for member in list(self._members):
            try:
                answers = await self._ask_member(member, letters)
            except HomeUnreachable as error:
                problem = error
                continue
            if self._members and self._members[0] is not member:
                # It answered where others did not: ask it first from now on.
                self._members = [member, *(row for row in self._members if row.name != member.name)]
            return answers
        try:
            await self.refresh_members()
        except HomeUnreachable as error:
            problem = error
        raise problem

    async def _ask_member(self, member: DirectoryRow, letters: list[Letter]) -> list[OpenedMessage | Exception | None]:
        keys = await self.keys_of(member.name)
        if keys is None:
            raise HomeUnreachable(f"there are no usable keys of {member.name}")
        parcel = self._sealer.seal_all(
            letters, to=member.name, keys=keys, now_ns=self._clock.monotonic_ns(), now_s=self._clock.unix_s()
        )
        sealed_with, body = self._sealer.identity.public.signing_kid, {"parcel": parcel.to_data()}
        try:
            answer = await self._request("POST", "/v1/handoffs", json_body=body, urls=[member.rest_url], waits=True)
        except HomeRefused as refused:
            if refused.code == "bad_message" and await self._are_keys_of_before(sealed_with, keys, member.name):
                raise HomeUnreachable(f"keys were revoked while {member.name} was asked: {refused}") from refused
            raise
        if not answer and len(letters) == 1:
            return [None]
        try:
            sealed = Parcel.from_data_untrusted(answer.get("parcel"))
            signed_with = await self.keys_of(member.name, jose.peek_key_untrusted(sealed.sealed))
            opened = self._sealer.open_all_untrusted(
                sealed,
                sender=signed_with or keys,
                now_ns=self._clock.monotonic_ns(),
                now_s=self._clock.unix_s(),
            )
        except (MessageError, CryptoError) as error:
            raise HomeUnreachable(f"{member.name} answered something that cannot be opened: {error}") from error
        if len(opened) != len(letters):
            raise HomeUnreachable(f"{member.name} gave {len(opened)} answers to {len(letters)} messages")
        return [answered(one, member.name) for one in opened]

    async def _are_keys_of_before(self, sealed_with: str, keys: PublicIdentity, member: str) -> bool:
        """Whether we, or the member, have other keys by now than those with which something was sealed.

        A parcel that was on its way when one of them was revoked cannot be opened any more, and is not at fault. Sealed
        anew it can.
        """
        if sealed_with != self._sealer.identity.public.signing_kid:
            return True
        now = await self.keys_of(member, max_age_ns=FRESH_NS)
        return now is not None and now.agreement_kid != keys.agreement_kid

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        json_body: dict[str, Any] | None = None,
        urls: list[str] | None = None,
        waits: bool = False,
    ) -> dict[str, Any]:
        """One REST request, to each address in turn until one answers; an empty answer is an empty dictionary.

        With `waits` it says for how long the answer is waited for.
        """
        problem, headers = "no address is configured", {}
        if waits:
            headers[WAIT_HEADER] = str(round(REQUEST_TIMEOUT_S * 1000))
        for url in list(urls or self._urls):
            try:
                answered = await self._client.request(
                    method, url + path, params=params, json=json_body, headers=headers, timeout_s=REQUEST_TIMEOUT_S
                )
                answer = answered.json() if answered.body else {}
            except (HttpFailed, ValueError) as error:
                problem = f"{url}: {error}"
                continue
            if answered.is_success and isinstance(answer, dict):
                return answer
            code = answer.get("code", "") if isinstance(answer, dict) else ""
            sentence = answer.get("message", "") if isinstance(answer, dict) else ""
            value = answer.get("value") if isinstance(answer, dict) else None
            problem = f"{url}: HTTP {answered.status} {code} {sentence}"
            if answered.status < 500:
                raise HomeRefused(f"{method} {path}: {code or answered.status}: {sentence}", code, value)
        raise HomeUnreachable(f"no homeserver of {self._instance} answered ({problem})")
