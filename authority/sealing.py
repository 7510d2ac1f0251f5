"""Sealing messages into parcels and opening them: the seed's eight steps around every transfer message.

Steps 1, 2 and 6 (fetching keys) are the shells' business; here a message is encrypted to the receiver and signed by the
sender (3, 4), checked and opened (6, 7). The signature also covers the hop trace as the sender left it, so a relay can
only add hops behind it.
"""

from dataclasses import dataclass

from authority.errors import MessageError
from authority.hops import Trace
from authority.messages import MAX_BODY_BYTES, Message, Parcel, decode_message_untrusted, encode_message
from crypto import jose
from crypto.errors import CryptoError
from crypto.keys import Identity, PublicIdentity

__all__ = ["LIFETIME_S", "Opened", "Sealer"]

# A sealed message is worth nothing after this long; retries are sealed anew. It must exceed the clock difference of two
# servers plus the longest way, and bounds how long the log must remember finished transfers.
LIFETIME_S = 60.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A message whose sender is proved, and the trace up to its arrival."""

    message: Message
    sender: str
    trace: Trace


class Sealer:
    """One server's name and identity, for everything it seals and opens."""

    def __init__(self, name: str, identity: Identity) -> None:
        self.name = name
        self.identity = identity

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
        trace, `now_s` Unix time for the expiry.
        """
        if on_path:
            trace = trace.leave(self.name, message.type, now_ns)
        claims = jose.Claims(
            sender=self.name,
            receiver=to,
            transfer_id=trace.transfer_id,
            sequence=len(trace.hops),
            expires_at_s=now_s + LIFETIME_S,
            trace_digest=trace.digest(),
        )
        sealed = jose.seal(encode_message(message), claims, sender=self.identity, receiver=keys)
        return Parcel(trace=trace, on_path=on_path, kind=message.type, sealed=sealed)

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
        message = decode_message_untrusted(opened.payload)
        if message.type != parcel.kind:
            raise MessageError(f"a parcel marked {parcel.kind} holds {message.type}")
        if parcel.on_path != trace.under_way:
            raise MessageError(f"the parcel and the hop trace of {trace.transfer_id} differ on whether this is a hop")
        if parcel.on_path:
            trace = trace.arrive(self.name, now_ns, len(parcel.sealed))
        return Opened(message, claims.sender, trace)
