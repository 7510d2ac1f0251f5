"""What an envelope cannot do without: the cryptography alone, with everything prepared that can be."""

import os
from collections.abc import Callable

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from batonpass.crypto.keys import decode_point_untrusted, encode_point
from batonpass.scenarios.bench.link.workers.envelopes import processor_time
from batonpass.scenarios.bench.loops import arguments, tell

_ECDSA = ec.ECDSA(hashes.SHA256())
_SIGNED_BYTES = 900
"""About what the signature of an envelope of 100 bytes covers."""


def primitives() -> Callable[[bytes], bytes]:
    """One of each per envelope. Keys that outlive it are made here, once."""
    alice, bob = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    alices, bobs = alice.public_key(), bob.public_key()
    signed, nonce = os.urandom(_SIGNED_BYTES), bytes(12)

    def both(payload: bytes) -> bytes:
        ephemeral = ec.generate_private_key(ec.SECP256R1())
        sealed = AESGCM(ephemeral.exchange(ec.ECDH(), bobs)[:16]).encrypt(nonce, payload, None)
        signature = alice.sign(signed, _ECDSA)
        alices.verify(signature, signed, _ECDSA)
        theirs = decode_point_untrusted(encode_point(ephemeral.public_key()))
        return AESGCM(bob.exchange(ec.ECDH(), theirs)[:16]).decrypt(nonce, sealed, None)

    return both


if __name__ == "__main__":
    todo, duration_s = arguments("cryptography")
    tell(processor_time(primitives(), todo, duration_s))
