"""joserfc: JWE in JWS, in their compact forms, as an envelope has them."""

from collections.abc import Callable

from joserfc import jwe, jws
from joserfc.jwk import ECKey

from batonpass.scenarios.bench.link.workers.envelopes import SIZES, processor_time
from batonpass.scenarios.bench.loops import arguments, tell


def envelope() -> Callable[[bytes], bytes]:
    """Seal and open."""
    alice, bob = (ECKey.generate_key("P-256", private=True) for _ in range(2))
    parties = {"apu": alice.thumbprint(), "apv": bob.thumbprint()}
    encryption = jwe.JWERegistry(algorithms=["ECDH-ES", "A128GCM"])
    signing = jws.JWSRegistry(algorithms=["ES256"])
    encryption.max_ciphertext_length = signing.max_payload_length = 4 * max(SIZES.values())

    def both(payload: bytes) -> bytes:
        inner = jwe.encrypt_compact({"alg": "ECDH-ES", "enc": "A128GCM", **parties}, payload, bob, registry=encryption)
        token = jws.serialize_compact({"alg": "ES256", "kid": parties["apu"]}, inner, alice, registry=signing)
        verified = jws.deserialize_compact(token, alice, registry=signing).payload
        plaintext: bytes = jwe.decrypt_compact(verified, bob, registry=encryption).plaintext or b""
        return plaintext

    return both


if __name__ == "__main__":
    todo, duration_s = arguments("joserfc")
    tell(processor_time(envelope(), todo, duration_s))
