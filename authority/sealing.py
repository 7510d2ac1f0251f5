"""Sealing messages into parcels and opening them: the seed's eight steps around every transfer message.

Steps 1, 2 and 6 (fetching keys) are the shells' business; here a message is encrypted to the receiver and signed by the
sender (3, 4), checked and opened (6, 7). The signature also covers the hop trace as the sender left it, so a relay can
only add hops behind it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cbor2

from authority.errors import MessageError
from authority.hops import Trace
from authority.letters import Batch, BatchItem, Letter
from authority.messages import (
    INLINE_STATE_BYTES,
    MAX_BODY_BYTES,
    MAX_STATE_BYTES,
    DirectHandoff,
    Manifest,
    Message,
    Parcel,
    Precopy,
    Stage,
    StateTransfer,
    decode_message_untrusted,
    encode_message,
)
from crypto import jose
from crypto.errors import CryptoError
from crypto.jwe import ContentKey
from crypto.keys import Identity, PublicIdentity

__all__ = ["LIFETIME_S", "Opened", "Sealer"]

# A sealed message is worth nothing after this long; retries are sealed anew. It must exceed the clock difference of two
# servers plus the longest way, and bounds how long the log must remember finished transfers.
LIFETIME_S = 60.0
BATCH_TRACE: Final = "batch"
# Receivers for whose next message a key is kept, at 1 kB each; the one that was made first is dropped first.
MAX_READY: Final = 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """A message whose sender is proved, and the trace up to its arrival; `in_batch` if others came with it.

    `state_hash` is that of a state that travelled beside it, which was held against it; to hash it takes a while.
    """

    message: Message
    sender: str
    trace: Trace
    in_batch: bool = False
    state_hash: str = ""


class Sealer:
    """One server's name and identity, for everything it seals and opens."""

    def __init__(self, name: str, identity: Identity) -> None:
        self.name = name
        self.identity = identity
        # For the next message to each of those to whom something was sent lately, by the keys of both.
        self._ready: OrderedDict[tuple[str, str], ContentKey] = OrderedDict()

    def change_identity(self, identity: Identity) -> None:
        """Sign with other keys, and open with them, from now on."""
        self.identity = identity
        self._ready.clear()

    def get_ready(self, keys: PublicIdentity) -> None:
        """Agree on the key of the next message to whoever has these keys.

        Whoever has just sent something has time for that, and who waits for the next message has not: this is more than
        half of what it costs to seal it. One key for each receiver, which `seal` uses up.
        """
        parties = (self.identity.public.signing_kid, keys.agreement_kid)
        if parties not in self._ready:
            self._ready[parties] = jose.agree(sender=self.identity, receiver=keys)
            if len(self._ready) > MAX_READY:
                self._ready.popitem(last=False)

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

        A message that is `on_path` leaves this server as the next hop of `trace`; `now_ns` is monotonic time for the
        trace, `now_s` Unix time for the expiry. A state above `INLINE_STATE_BYTES` goes beside the sealed message.

        Raises:
            ValueError: the state is larger than `MAX_STATE_BYTES`.
        """
        if on_path:
            trace = trace.leave(self.name, message.type, now_ns)
        claims = jose.Claims(
            sender=self.name,
            receiver=to,
            transfer_id=trace.transfer_id,
            sequence=trace.count,
            expires_at_s=now_s + LIFETIME_S,
            trace_digest=trace.digest(),
        )
        message, body = _detach(message)
        ready = self._ready.pop((self.identity.public.signing_kid, keys.agreement_kid), None)
        sealed = jose.seal(_encoded(message), claims, sender=self.identity, receiver=keys, ready=ready)
        return Parcel(trace=trace, on_path=on_path, kind=message.type, sealed=sealed, body=body)

    def seal_all(
        self,
        letters: Sequence[Letter],
        *,
        to: str,
        keys: PublicIdentity,
        now_ns: int,
        now_s: float,
        over_link: bool = False,
    ) -> Parcel:
        """Seal messages for `to` as one parcel; see `authority.letters`. Large states are not for it. As `seal`.

        With `over_link` many messages go beside what is sealed, as a large state does.
        """
        if len(letters) == 1:
            (alone,) = letters
            return self.seal(
                alone.message, alone.trace, to=to, keys=keys, now_ns=now_ns, now_s=now_s, on_path=alone.on_path
            )
        items = []
        for letter in letters:
            trace = letter.trace.leave(self.name, letter.message.type, now_ns) if letter.on_path else letter.trace
            body = encode_message(letter.message)
            # Not checked again: what we make is what we would take.
            items.append(BatchItem.model_construct(trace=trace.to_data(), on_path=letter.on_path, body=body))
        batch, trace = Batch.model_construct(messages=items), Trace(BATCH_TRACE)
        body = _encoded(batch) if over_link else b""
        if len(body) <= INLINE_STATE_BYTES:
            return self.seal(batch, trace, to=to, keys=keys, now_ns=now_ns, now_s=now_s)
        beside = Batch(manifest=Manifest(hash=hashlib.sha256(body).hexdigest(), length=len(body)))
        parcel = self.seal(beside, trace, to=to, keys=keys, now_ns=now_ns, now_s=now_s)
        return parcel.model_copy(update={"body": body})

    def open_all_untrusted(self, parcel: Parcel, *, sender: PublicIdentity, now_ns: int, now_s: float) -> list[Opened]:
        """Check and open a parcel as `open_untrusted`; the messages in it, which are several if it is a batch."""
        opened = self.open_untrusted(parcel, sender=sender, now_ns=now_ns, now_s=now_s)
        if not isinstance(opened.message, Batch):
            return [opened]
        return [self._opened_item_untrusted(item, opened.sender, now_ns) for item in opened.message.messages]

    def _opened_item_untrusted(self, item: BatchItem, sender: str, now_ns: int) -> Opened:
        trace = Trace.from_data_untrusted(item.trace)
        message = _attach_untrusted(decode_message_untrusted(item.body), b"")
        if isinstance(message, Batch):
            raise MessageError("a batch in a batch")
        if item.on_path != trace.under_way:
            raise MessageError(f"a batch and the hop trace of {trace.transfer_id} differ on whether this is a hop")
        trace = trace.arrive(self.name, now_ns, len(item.body)) if item.on_path else trace
        return Opened(message, sender, trace, in_batch=True)

    def open_untrusted(self, parcel: Parcel, *, sender: PublicIdentity, now_ns: int, now_s: float) -> Opened:
        """Check and open a parcel from the peer whose keys are `sender`; complete its last hop.

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
            )
        except CryptoError as error:
            raise MessageError(f"{type(error).__name__}: {error}") from error
        claims, trace = opened.claims, parcel.trace
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
        manifest = sealed.manifest if isinstance(sealed, _WITH_STATE) else None
        return Opened(message, claims.sender, trace, state_hash="" if manifest is None else manifest.hash)


_WITH_STATE: Final = (StateTransfer, Stage, DirectHandoff, Precopy)


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
        # Whoever made it has hashed all of the state, which this is.
        digest = message.state_hash
    manifest = Manifest(hash=digest, length=length)
    return message.model_copy(update={"state": b"", "manifest": manifest}), message.state


def _encoded(message: Message) -> bytes:
    """As `encode_message`; of a batch without a walk through what it is made of."""
    if not isinstance(message, Batch) or message.manifest is not None:
        return encode_message(message)
    items = [{"trace": item.trace, "on_path": item.on_path, "body": item.body} for item in message.messages]
    return cbor2.dumps({"type": message.type, "messages": items})


def _attach_untrusted(message: Message, body: bytes) -> Message:
    """The message with the state, or the batch, that its manifest, which is proved, speaks of. Raises MessageError."""
    manifest = message.manifest if isinstance(message, (*_WITH_STATE, Batch)) else None
    if isinstance(message, Batch) and bool(message.messages) is (manifest is not None):
        raise MessageError("a batch has messages, or the manifest of a batch that has")
    if manifest is None:
        if body:
            raise MessageError(f"a parcel has a body of which its {message.type} says nothing")
        return message
    # The length first: it costs nothing, and a hash of megabytes does.
    if len(body) != manifest.length or hashlib.sha256(body).hexdigest() != manifest.hash:
        raise MessageError("what is beside a message is not what its manifest says")
    if isinstance(message, Batch):
        beside = decode_message_untrusted(body)
        if not isinstance(beside, Batch) or beside.manifest is not None or not beside.messages:
            raise MessageError("what is beside a batch is no batch")
        return beside
    return message.model_copy(update={"state": body, "manifest": None})
