"""Sealing messages into parcels and opening them: the seed's eight steps around every transfer message.

Steps 1, 2 and 6 (fetching keys) are the shells' business. Here a message is encrypted to the receiver and signed by the
sender (3, 4), checked and opened (6, 7). The signature also covers the hop trace as the sender left it, so a relay can
only add hops behind it.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, Self

import cbor2

from batonpass.authority.errors import MessageError
from batonpass.authority.limits import INLINE_STATE_BYTES, MAX_BODY_BYTES, MAX_STATE_BYTES
from batonpass.authority.wire.batch import Batch, BatchItem, Letter
from batonpass.authority.wire.columnar import Row, columns_of, rows_untrusted
from batonpass.authority.wire.hops import Hop, Trace
from batonpass.authority.wire.transfer import (
    DirectHandoff,
    Manifest,
    Message,
    Parcel,
    Precopy,
    StageState,
    StateTransfer,
    decode_message_untrusted,
    encode_message,
)
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.jwe import AgreedKey, ContentKey
from batonpass.crypto.keys import Identity, PublicIdentity

__all__ = ["LIFETIME_S", "OpenedMessage", "Sealer", "no_log", "unheard"]

# A sealed message is worth nothing after this long; retries are sealed anew. It must exceed the clock difference of two
# servers plus the longest way, and bounds how long the log must remember finished transfers.
LIFETIME_S = 60.0
BATCH_TRACE: Final = "batch"
# Receivers for whose next message a key is kept, at 1 kB each; the one that was made first is dropped first.
MAX_READY: Final = 1024
# What stands in the header of everything that is sealed here: its sender reads batches in columns.
_CONTENT_TYPE: Final = "cbor;batch=columns"
# The same of who agrees on the key of the next message before that comes.
_CONTENT_TYPE_AHEAD: Final = "cbor;batch=columns;key=ahead"
# Servers of whom that is known, by their names; of more than that some are written to as if it were not.
MAX_READERS: Final = 4096
# Servers with whom a key is agreed on for their next message, one each; that of the first is dropped first.
MAX_AGREED: Final = 1024
_BATCH: Final = "batch"
# What tells by other means that it is no recording, whatever the clocks of the two servers show
# (`authority.machines.lease`).
_OF_ANY_AGE: Final = frozenset({"renew", "renew_reply"})


@dataclass(frozen=True, slots=True)
class OpenedMessage:
    """A message whose sender is proved, and the trace up to its arrival; `in_batch` if others came with it.

    `state_hash` is that of a state that travelled beside it, which was held against it; to hash it takes a while.
    `is_late`: it has expired by this server's clock, which says little of a message that is good at any age.
    `until_ns` is until when its sender waits for an answer, by the monotonic clock; None if it is not known.
    """

    message: Message
    sender: str
    trace: Trace
    in_batch: bool = False
    state_hash: str = ""
    is_late: bool = False
    until_ns: int | None = None

    def left_s(self, now_ns: int) -> float:
        """For how many seconds its sender waits for an answer yet; 0 if it does not any more."""
        return math.inf if self.until_ns is None else max(self.until_ns - now_ns, 0) / 1e9


def no_log(_receiver: str) -> str:
    """What the messages of a server that is a member of no log say of one, to any receiver."""
    return ""


def unheard(_sender: str, _log: str) -> None:
    """What a server makes of the logs of others that it does not follow by what their messages say."""


class Sealer:
    """One server's name and identity, for everything it seals and opens."""

    def __init__(self, name: str, identity: Identity, *, agrees_ahead: bool = False) -> None:
        """`agrees_ahead` if a peer that seals for it may tell it (`KeyAhead`) what with, so that it is `told`."""
        self.name = name
        self.identity = identity
        # For the next message to each of those to whom something was sent lately, by the keys of both.
        self._ready: FifoTable[tuple[str, str], ContentKey] = FifoTable(MAX_READY)
        self._content_type: Final = _CONTENT_TYPE_AHEAD if agrees_ahead else _CONTENT_TYPE
        # Of the next message of those who told it, by their names.
        self._agreed_with: LruTable[str, AgreedKey] = LruTable(MAX_AGREED)
        # Who reads batches in columns, by what they sealed last, and whether they agree ahead; others run an older
        # version.
        self._readers: FifoTable[str, bool] = FifoTable(MAX_READERS)
        self._log_for: Callable[[str], str] = self._is_not_bound
        self._heard_log: Callable[[str, str], None] = self._is_not_bound

    @classmethod
    def without_log(cls, name: str, identity: Identity, *, agrees_ahead: bool = False) -> Self:
        """That of a server which is a member of no log and follows none."""
        sealer = cls(name, identity, agrees_ahead=agrees_ahead)
        sealer.bind(log_for=no_log, heard_log=unheard)
        return sealer

    def bind(self, *, log_for: Callable[[str], str], heard_log: Callable[[str, str], None]) -> None:
        """Know of logs. Once; before it, nothing is sealed, nor anything opened whose sender says where its log stands.

        Args:
            log_for: where the log stands of which this server is a member, for a receiver who has to know; else empty.
            heard_log: told where a sender, which is proved, says that its log stands.

        Raises:
            RuntimeError: it was bound before.
        """
        if self._log_for != self._is_not_bound:
            raise RuntimeError(f"the sealer of {self.name} knows already what it is to say of its log")
        self._log_for, self._heard_log = log_for, heard_log

    def log_for(self, receiver: str) -> str:
        """What messages to a receiver say of this server's log. Raises `RuntimeError` before it is bound."""
        return self._log_for(receiver)

    def _is_not_bound(self, *_: str) -> NoReturn:
        raise RuntimeError(f"the sealer of {self.name} does not know what it is to say of its log: bind it first")

    def change_identity(self, identity: Identity) -> None:
        """Sign with other keys, and open with them, from now on."""
        self.identity = identity
        self._ready.clear()
        self._agreed_with.clear()

    def agrees_ahead(self, name: str) -> bool:
        """Whether this server has said that it agrees on the key of a message before that comes."""
        return self._readers.get(name, False)

    def told_untrusted(self, sender: str, header: bytes, now_s: float) -> None:
        """The next message of `sender` begins with this header: agree on its key. Does nothing for strangers.

        Raises:
            MessageError: there can be no such message.
        """
        if sender not in self._readers:
            # Players and all others that have never sealed anything for this server have no such messages.
            return
        try:
            agreed = jose.agree_ahead_untrusted(header, receiver=self.identity, now_s=now_s)
        except CryptoError as error:
            raise MessageError(f"{type(error).__name__}: {error}") from error
        self._agreed_with[sender] = agreed

    def get_ready(self, keys: PublicIdentity) -> bytes:
        """Agree on the key of the next message to the holder of these keys.

        A server that has just sent something has time for that, and one that waits for the next message has not. This
        is more than half of what it costs to seal it. One key for each receiver, which `seal` uses up. What a message
        with a new key will begin with, so that its receiver can be told; nothing if there was a key.
        """
        parties = (self.identity.public.signing_kid, keys.agreement_kid)
        if parties in self._ready:
            return b""
        key = self._ready[parties] = self._agreed(keys)
        return key.header

    def _agreed(self, keys: PublicIdentity) -> ContentKey:
        return jose.agree(sender=self.identity, receiver=keys, content_type=self._content_type)

    def seal(
        self,
        message: Message,
        trace: Trace,
        *,
        to: str,
        keys: PublicIdentity,
        now_ns: int,
        now_s: float,
        on_path: bool = False,
    ) -> Parcel:
        """Seal `message` for `to`, whose public keys are `keys`.

        A message that is `on_path` leaves this server as the next hop of `trace`. `now_ns` is monotonic time for the
        trace, `now_s` Unix time for the expiry. A state above `INLINE_STATE_BYTES` goes beside the sealed message.

        Raises:
            ValueError: the state is larger than `MAX_STATE_BYTES`.
        """
        if on_path:
            trace = trace.leave(self.name, message.type, now_ns)
        kind, (message, body) = message.type, _detach(message)
        return self._sealed(encode_message(message), kind, trace, to, keys, now_s, on_path=on_path, body=body)

    def _sealed(
        self,
        contents: bytes,
        kind: str,
        trace: Trace,
        to: str,
        keys: PublicIdentity,
        now_s: float,
        *,
        on_path: bool = False,
        body: bytes = b"",
    ) -> Parcel:
        claims = jose.Claims(
            sender=self.name,
            receiver=to,
            transfer_id=trace.transfer_id,
            sequence=trace.count,
            expires_at_s=now_s + LIFETIME_S,
            trace_digest=trace.digest(),
            log=self._log_for(to),
        )
        ready = self._ready.pop((self.identity.public.signing_kid, keys.agreement_kid), None) or self._agreed(keys)
        sealed = jose.seal(contents, claims, sender=self.identity, receiver=keys, ready=ready)
        return Parcel(trace=trace, on_path=on_path, kind=kind, sealed=sealed, body=body)

    def seal_all(
        self,
        letters: Sequence[Letter],
        *,
        to: str,
        keys: PublicIdentity,
        now_ns: int,
        now_s: float,
        over_link: bool = False,
        relayed: bool = False,
    ) -> Parcel:
        """Seal messages for `to` as one parcel; see `authority.wire.batch`. Large states are not for it. As `seal`.

        With `over_link` many messages go beside what is sealed, as a large state does. With `relayed` the parcel has a
        trace of its own, which relays extend: what it crosses is crossed by each numbered hop in it.
        """
        if len(letters) == 1:
            (alone,) = letters
            return self.seal(
                alone.message, alone.trace, to=to, keys=keys, now_ns=now_ns, now_s=now_s, on_path=alone.on_path
            )
        rows: list[Row] = [
            (letter.message, letter.trace.leave(self.name, letter.message.type, now_ns), True)
            if letter.on_path
            else (letter.message, letter.trace, False)
            for letter in letters
        ]
        # Not checked again: what we make is what we would take.
        body = _columns(rows) if to in self._readers else _one_after_the_other(rows)
        trace, on_path = Trace(BATCH_TRACE), relayed and any(letter.on_path for letter in letters)
        if on_path:
            trace = trace.leave(self.name, _BATCH, now_ns)
        if not over_link or len(body) <= INLINE_STATE_BYTES:
            return self._sealed(body, _BATCH, trace, to, keys, now_s, on_path=on_path)
        manifest = Manifest(hash=hashlib.sha256(body).hexdigest(), length=len(body))
        beside = cbor2.dumps({"type": _BATCH, "manifest": manifest.model_dump()})
        return self._sealed(beside, _BATCH, trace, to, keys, now_s, on_path=on_path, body=body)

    def open_all_untrusted(
        self, parcel: Parcel, *, sender: PublicIdentity, now_ns: int, now_s: float, until_ns: int | None = None
    ) -> list[OpenedMessage]:
        """Check and open a parcel as `open_untrusted`; the messages in it, which are several if it is a batch.

        `until_ns` is until when their sender waits.
        """
        opened = self.open_untrusted(parcel, sender=sender, now_ns=now_ns, now_s=now_s, until_ns=until_ns)
        batch, who = opened.message, opened.sender
        if not isinstance(batch, Batch):
            return [opened]
        if batch.columns is None:
            rows = [_row_untrusted(item) for item in batch.messages]
        else:
            rows = rows_untrusted(batch.columns)
        # As the parcel itself came here, or straight from its sender.
        straight = Hop(1, _BATCH, who, self.name, now_ns, now_ns, parcel.size_bytes)
        way = opened.trace.hops if parcel.on_path else (straight,)
        return [
            OpenedMessage(
                message, who, trace.carried(way, len(rows)) if on_path else trace, in_batch=True, until_ns=until_ns
            )
            for message, trace, on_path in rows
        ]

    def _note_reader(self, name: str, content_type: str) -> None:
        if content_type not in {_CONTENT_TYPE, _CONTENT_TYPE_AHEAD}:
            self._readers.pop(name, None)
        else:
            self._readers[name] = content_type == _CONTENT_TYPE_AHEAD

    def open_untrusted(
        self, parcel: Parcel, *, sender: PublicIdentity, now_ns: int, now_s: float, until_ns: int | None = None
    ) -> OpenedMessage:
        """Check and open a parcel from the peer whose keys are `sender`; complete its last hop.

        Renewals of leases and their answers are opened at any age.

        Raises:
            MessageError: the signature, seal, receiver, expiry, trace or content is wrong.
        """
        try:
            opened = jose.open_untrusted(
                parcel.sealed,
                receiver=self.identity,
                receiver_id=self.name,
                sender=sender,
                now_s=now_s,
                max_bytes=MAX_BODY_BYTES,
                agreed=self._agreed_with,
                whatever_age=parcel.kind in _OF_ANY_AGE,
            )
        except CryptoError as error:
            raise MessageError(f"{type(error).__name__}: {error}") from error
        claims, trace = opened.claims, parcel.trace
        # A key is good for one message, and this was the next.
        self._agreed_with.pop(claims.sender, None)
        self._note_reader(claims.sender, opened.content_type)
        if claims.transfer_id != trace.transfer_id or claims.trace_digest != trace.digest(claims.sequence):
            raise MessageError(f"the hop trace of {trace.transfer_id} was changed on the way")
        sealed = decode_message_untrusted(opened.payload)
        message = _attach_untrusted(sealed, parcel.body)
        if message.type != parcel.kind:
            raise MessageError(f"a parcel marked {parcel.kind} holds {message.type}")
        if parcel.on_path != trace.under_way:
            raise MessageError(f"the parcel and the hop trace of {trace.transfer_id} differ on whether this is a hop")
        if parcel.on_path:
            trace = trace.arrive(self.name, now_ns, parcel.size_bytes)
        is_late = now_s >= claims.expires_at_s
        if claims.log and not is_late:
            self._heard_log(claims.sender, claims.log)
        manifest = sealed.manifest if isinstance(sealed, _WITH_STATE) else None
        state_hash = "" if manifest is None else manifest.hash
        return OpenedMessage(message, claims.sender, trace, state_hash=state_hash, is_late=is_late, until_ns=until_ns)


_WITH_STATE: Final = (StateTransfer, StageState, DirectHandoff, Precopy)


def _detach(message: Message) -> tuple[Message, bytes]:
    """The message as it is sealed, and what travels beside it."""
    if not isinstance(message, _WITH_STATE) or len(message.state) <= INLINE_STATE_BYTES:
        return message, b""
    length = len(message.state)
    if length > MAX_STATE_BYTES:
        raise ValueError(f"a state has at most {MAX_STATE_BYTES} bytes; that of {message.entity} has {length}")
    if isinstance(message, Precopy) or message.recipe:
        digest = hashlib.sha256(message.state).hexdigest()
    else:
        # Its maker has hashed all of the state, which this is.
        digest = message.state_hash
    manifest = Manifest(hash=digest, length=length)
    return message.model_copy(update={"state": b"", "manifest": manifest}), message.state


def _row_untrusted(item: BatchItem) -> Row:
    """One message of a batch that has them one after the other. Raises MessageError."""
    trace = Trace.from_data_untrusted(item.trace)
    message = _attach_untrusted(decode_message_untrusted(item.body), b"")
    if isinstance(message, Batch):
        raise MessageError("a batch in a batch")
    if item.on_path != trace.under_way:
        raise MessageError(f"a batch and the hop trace of {trace.transfer_id} differ on whether this is a hop")
    return message, trace, item.on_path


def _columns(rows: Sequence[Row]) -> bytes:
    """A batch."""
    return cbor2.dumps({"type": _BATCH, "columns": columns_of(rows)})


def _one_after_the_other(rows: Sequence[Row]) -> bytes:
    """A batch as servers of an older version read it too, who know of no columns."""
    items = [
        {"trace": trace.to_data(), "on_path": on_path, "body": encode_message(message)}
        for message, trace, on_path in rows
    ]
    return cbor2.dumps({"type": _BATCH, "messages": items})


def _attach_untrusted(message: Message, body: bytes) -> Message:
    """The message with the state, or the batch, that its manifest, which is proved, speaks of. Raises MessageError."""
    manifest = message.manifest if isinstance(message, (*_WITH_STATE, Batch)) else None
    if isinstance(message, Batch) and _forms(message) != 1:
        raise MessageError("a batch has messages, or columns, or the manifest of a batch that has")
    if manifest is None:
        if body:
            raise MessageError(f"a parcel has a body of which its {message.type} says nothing")
        return message
    # The length first: it costs nothing, and a hash of megabytes does.
    if len(body) != manifest.length or hashlib.sha256(body).hexdigest() != manifest.hash:
        raise MessageError("what is beside a message is not what its manifest says")
    if isinstance(message, Batch):
        beside = decode_message_untrusted(body)
        if not isinstance(beside, Batch) or beside.manifest is not None or _forms(beside) != 1:
            raise MessageError("what is beside a batch is no batch")
        return beside
    return message.model_copy(update={"state": body, "manifest": None})


def _forms(batch: Batch) -> int:
    return bool(batch.messages) + (batch.columns is not None) + (batch.manifest is not None)
