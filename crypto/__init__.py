"""Keys, envelopes, sessions and replay windows: the leaf under everything that must be trusted.

Pure: nothing here waits, opens a socket or reads a clock; `now_s` is an argument. Start with `keys`.

- `errors`   what can be wrong with something a stranger sent, one class each
- `names`    which strings may name a server or a transfer
- `keys`     Identity: the private keys of a server, current and retiring
- `public_keys`  PublicIdentity: what others know of them (JWK Set), with what is retiring and revoked
- `key_forms`    one key as PEM, JWK or raw; thumbprints
- `key_store`, `key_files`  where a server keeps its keys, rotates and revokes them
- `continuity`   how others come to believe in new keys: statements signed with the old ones, and pins
- `base64url`, `jws`, `jwe`   the parts of JOSE that are used: compact form, ES256, ECDH-ES with A128GCM
- `jose`     one message: sealed for one receiver and signed by one sender (JWE in JWS), or only signed
- `seen`     what has been opened already
- `verified` which signatures have been verified already
- `mac`      proofs of knowing a shared secret
- `session`  many messages: an authenticated handshake, then AES-GCM datagrams
- `replay`   the sliding window that lets each datagram of a session in once
"""

from batonpass.crypto.errors import (
    CryptoError,
    Expired,
    KeyConflict,
    KeyFileError,
    Malformed,
    Revoked,
    Tampered,
    UnknownSender,
    WrongReceiver,
)
from batonpass.crypto.jose import Claims, Opened, open_untrusted, peek_sender_untrusted, seal, sign, verify_untrusted
from batonpass.crypto.keys import Identity, PublicIdentity

__all__ = [
    "Claims",
    "CryptoError",
    "Expired",
    "Identity",
    "KeyConflict",
    "KeyFileError",
    "Malformed",
    "Opened",
    "PublicIdentity",
    "Revoked",
    "Tampered",
    "UnknownSender",
    "WrongReceiver",
    "open_untrusted",
    "peek_sender_untrusted",
    "seal",
    "sign",
    "verify_untrusted",
]
