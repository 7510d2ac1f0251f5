"""Names and keys that never change, so that what is sealed in the corpus can be opened for ever."""

import random

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto.keys import Identity

NOW_S = 1_000_000.0
_NAMES = ("alpha.h1", "beta.h1", "alpha.s1", "alpha.s2", "alpha.mallory")


def private_key(seed: str) -> ec.EllipticCurvePrivateKey:
    """The same key for the same seed."""
    return ec.derive_private_key(random.Random(seed).randrange(1, 2**255), ec.SECP256R1())


IDENTITIES = {name: Identity(private_key(f"{name} signing"), private_key(f"{name} agreement")) for name in _NAMES}
EPHEMERAL = private_key("ephemeral")
