"""Certificates without signatures: tokens that look like signed ones, and are known by the cluster that made them.

A signature takes a hundred times as long as everything else about a certificate, and is another test's business. Here a
token is believed if it was made here: none is forged. Its text is that of a compact JWS, because others look into it
(`simserver.transfer.source.order_history`) and name it by its hash.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from batonpass.authority.model.records import TransferRecord
from batonpass.authority.trust.certificates import CommitCertificate, DelegationGrant, PassCertificate, check_chain
from batonpass.crypto import base64url, jws
from batonpass.homeserver.transfer.certificates import args_of_pass, commit_certificate

__all__ = ["Tokens"]

Certificate = CommitCertificate | DelegationGrant | PassCertificate
_AnyCertificate = TypeVar("_AnyCertificate", CommitCertificate, DelegationGrant, PassCertificate)

_WRITER: Final = json.JSONEncoder(separators=(",", ":"))
_HEADER: Final = jws.encode_header({"alg": "none"}).decode() + "."
_SIGNATURE: Final = "." + "A" * jws.SIGNATURE_CHARS


class Tokens:
    """All the certificates of one run."""

    def __init__(self) -> None:
        self._known: Final[dict[str, Certificate]] = {}
        self._commits: Final[dict[tuple[str, int], str]] = {}
        self._passes: Final[dict[str, dict[str, Any]]] = {}

    def sign(self, certificate: Certificate) -> str:
        """A token of this certificate; the same one for an equal one."""
        text = _WRITER.encode(certificate.to_claims()).encode()
        token = _HEADER + base64url.encode(text).decode() + _SIGNATURE
        self._known[token] = certificate
        return token

    def commit(self, transfer: TransferRecord) -> str:
        """The log's word that it gave an entity to the target of this transfer."""
        key = (transfer.id, transfer.epoch)
        token = self._commits.get(key)
        if token is None:
            token = self._commits[key] = self.sign(commit_certificate(transfer))
        return token

    def read(self, token: str, kind: type[_AnyCertificate]) -> _AnyCertificate:
        """What a token says. Raises TypeError if that is something else."""
        certificate = self._known[token]
        if not isinstance(certificate, kind):
            raise TypeError(f"this is a {certificate.kind}, not a {kind.__name__}")
        return certificate

    def chain(self, chain: Sequence[str]) -> tuple[DelegationGrant, list[PassCertificate]]:
        """A grant and the passes that follow from it. Raises `BrokenChain` if they do not."""
        grant = self.read(chain[0], DelegationGrant)
        steps = [(token, self.read(token, PassCertificate)) for token in chain[1:]]
        check_chain(grant, chain[0], steps)
        return grant, [step for _, step in steps]

    def passes(self, chain: Sequence[str]) -> list[dict[str, Any]]:
        """The passes of a chain as arguments of the log's procedures. Raises as `chain`."""
        if not chain:
            return []
        _, steps = self.chain(chain)
        for token, step in zip(chain[1:], steps, strict=True):
            if token not in self._passes:
                self._passes[token] = args_of_pass(step)
        return [self._passes[token] for token in chain[1:]]
