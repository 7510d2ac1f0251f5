"""jwcrypto: JWE in JWS, in their compact forms, as an envelope has them."""

import json
from collections.abc import Callable

from jwcrypto import jwe, jwk, jws

from batonpass.scenarios.bench.link.workers.envelopes import processor_time
from batonpass.scenarios.bench.loops import arguments, tell


def envelope() -> Callable[[bytes], bytes]:
    """Seal and open."""
    alice, bob = (jwk.JWK.generate(kty="EC", crv="P-256") for _ in range(2))
    parties = {"apu": alice.thumbprint(), "apv": bob.thumbprint()}
    encrypted = json.dumps({"alg": "ECDH-ES", "enc": "A128GCM", **parties})
    signed = json.dumps({"alg": "ES256", "kid": parties["apu"]})

    def both(payload: bytes) -> bytes:
        encryption = jwe.JWE(payload, encrypted)
        encryption.add_recipient(bob)
        signature = jws.JWS(encryption.serialize(compact=True).encode())
        signature.add_signature(alice, protected=signed)
        token = signature.serialize(compact=True)
        received = jws.JWS()
        received.deserialize(token)
        received.verify(alice)
        inner = jwe.JWE(algs=["ECDH-ES", "A128GCM"])
        inner.deserialize(received.payload.decode(), bob)
        payload_out: bytes = inner.payload
        return payload_out

    return both


if __name__ == "__main__":
    todo, duration_s = arguments("jwcrypto")
    tell(processor_time(envelope(), todo, duration_s))
