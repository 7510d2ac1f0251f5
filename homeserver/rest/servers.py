"""Routes for other servers: registration, directory rows, and sealed parcels."""

import logging
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Response

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import MessageError, Reason
from batonpass.authority.model.addresses import BadAddress, check_server
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.authority.protocol_version import PROTOCOL_VERSION, why_other_release
from batonpass.authority.trust.certificates import Name
from batonpass.authority.trust.key_pinning import (
    CLOCK,
    DIRECTORY,
    address_claims,
    federation_clock_purpose,
    federation_purpose,
    is_proof,
    registration_proof,
    rows_proof,
)
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Parcel
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.names import registration
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import as_written, check_home
from batonpass.homeserver.rest.errors import nobody_waits
from batonpass.homeserver.rest.models import (
    DirectoryQuery,
    FederationBody,
    Nonce,
    ParcelBody,
    ParcelView,
    RegisterBody,
    ResetBody,
    RowsView,
    ServerView,
    WaitMs,
)
from batonpass.homeserver.transfer.parcels import NobodyWaits

__all__ = ["server_routes"]

_log: Final = logging.getLogger("batonpass.homeserver.servers")


def server_routes(node: HomeserverNode) -> Routes:
    """What simulation servers, other instances and relays call."""
    routes = Routes(tags=["servers"])

    @routes.put("/v1/servers/{name}")
    async def register(name: Name, body: RegisterBody) -> ServerView:
        """A simulation server registers its public keys and addresses (again after every start)."""
        return await _register(node, name, body)

    @routes.post("/v1/directory/{name}/reset", dependencies=[Depends(operator_access(node.tokens))])
    async def reset(name: Name, body: ResetBody) -> ServerView:
        """Give a server or player of this instance new keys, because it has lost its own; the old ones are revoked.

        The statement that leads to the new keys is signed by this homeserver, and says why.
        """
        return await _reset(node, name, body)

    @routes.get("/v1/directory")
    async def directory(
        nonce: Annotated[Nonce, Query()],
        name: Annotated[Name | None, Query()] = None,
        role: Annotated[Role | None, Query()] = None,
        fresh: Annotated[bool, Query(description="of another instance: ask it, unless that was a moment ago")] = False,
    ) -> RowsView:
        """Directory rows for the servers of this instance, proved with the join token over their nonce."""
        if name is not None:
            found = await node.directory.row(name, fresh=fresh)
            rows = [] if found is None else [_shown(node, found)]
        else:
            rows = [_shown(node, row) for row in await node.store.find_servers(role)]
        secret, now_ms = node.secrets.join_token, round(node.clock.unix_s() * 1e3)
        proofs = {
            "proof": rows_proof(secret, DIRECTORY, nonce, rows),
            "clock_proof": rows_proof(secret, CLOCK, nonce, now_ms),
        }
        return RowsView(rows=rows, now_ms=now_ms, **proofs)

    @routes.post(
        "/v1/handoffs",
        response_model=ParcelView,
        responses={204: {"description": "Decided; the answer takes another way.", "model": None}},
    )
    async def handoff(body: ParcelBody, wait_ms: WaitMs = None) -> Any:
        """A sealed message of a simulation server of this instance (hop 1 of cases 1 and 2, and reports)."""
        opened = await _opened(node, body.parcel, wait_ms)
        answer = await node.answer(opened)
        return Response(status_code=204) if answer is None else ParcelView(parcel=answer.to_data())

    @routes.post("/v1/federation")
    async def federation(body: FederationBody, wait_ms: WaitMs = None) -> ParcelView | RowsView:
        """A sealed message or a directory query of another instance, directly or through relays."""
        if body.to_instance != node.config.instance:
            raise ApiError(421, Reason.WRONG_HOME, f"this is {node.config.instance}", body.to_instance)
        if body.query is not None:
            return await _query(node, body.query)
        if body.to != node.config.name:
            raise ApiError(421, "misdirected", f"this is {node.config.name}", body.to)
        opened = await _opened(node, body.parcel, wait_ms)
        # Through relays, if there are any.
        answer = await node.answer(opened, relayed=True)
        if answer is None:
            raise MessageError(f"{opened[0].message.type} has no answer for another instance")
        return ParcelView(parcel=answer.to_data())

    return routes


async def _opened(node: HomeserverNode, parcel: object, wait_ms: int | None) -> list[OpenedMessage]:
    """What is in a parcel.

    Raises `ApiError` if its sender does not wait any more, and as `Parcels.open_untrusted`.
    """
    until_ns = None if wait_ms is None else node.clock.monotonic_ns() + wait_ms * 1_000_000
    try:
        return await node.parcels.open_untrusted(Parcel.from_data_untrusted(parcel), until_ns)
    except NobodyWaits as error:
        raise nobody_waits() from error


async def _register(node: HomeserverNode, name: str, body: RegisterBody) -> ServerView:
    check_home(node.config.instance, name)
    fields = body.model_dump(mode="json", exclude={"proof"}, exclude_unset=True)
    if not is_proof(body.proof, registration_proof(node.secrets.join_token, name, fields)):
        raise ApiError(403, "wrong_token", f"{name} does not know the join token of this instance", name)
    if body.protocol != PROTOCOL_VERSION:
        text = why_other_release(name, body.protocol, node.config.name, PROTOCOL_VERSION)
        _log.error("other_release: %s is not registered: %s", name, text)
        raise ApiError(409, "other_release", text, PROTOCOL_VERSION)
    try:
        keys = PublicIdentity.from_jwks_untrusted(body.keys)
    except CryptoError as error:
        raise ApiError(422, "bad_keys", str(error)) from error
    try:
        check_server(body.rest_url, body.link_host, body.link_port, beside=node.link.address[0])
    except BadAddress as error:
        raise ApiError(422, "bad_address", f"no server could reach {name}: {error}", name) from error
    after = _signed_revision(name, body, keys) - 1
    row = DirectoryRow(
        name=name,
        role=Role.SIMSERVER,
        keys=keys.to_jwks(),
        rest_url=body.rest_url,
        link_host=body.link_host,
        link_port=body.link_port,
        version=body.version,
        statements=body.statements,
    )
    return ServerView.of(await registration.register(node.store, row, after=after))


def _signed_revision(name: str, body: RegisterBody, keys: PublicIdentity) -> int:
    """The revision that the server has signed for these addresses, with the keys that it registers.

    Raises `ApiError` (403) unless it has signed exactly these.
    """
    proof = body.address_statement
    try:
        if jose.peek_sender_untrusted(proof) != name:
            raise ApiError(403, "wrong_signer", f"address_statement is not signed by {name}", name)
        statement = jose.verify_untrusted(proof, sender=keys)
    except CryptoError as error:
        text = f"address_statement of {name} is not signed with the keys that it registers: {error}"
        raise ApiError(403, "bad_proof", text, name) from error
    revision = statement.get("revision")
    if type(revision) is not int or not 1 <= revision < 1 << 62:
        raise ApiError(403, "bad_proof", f"address_statement of {name} has no revision from 1", name)
    expected = address_claims(name, body.rest_url, body.link_host, body.link_port, revision=revision)
    if as_written(statement) != as_written(expected):
        raise ApiError(403, "proof_mismatch", f"address_statement of {name} is about something else", name)
    return revision


async def _reset(node: HomeserverNode, name: str, body: ResetBody) -> ServerView:
    check_home(node.config.instance, name)
    if name == node.config.name:
        # What it signs with is what is to be replaced.
        raise ApiError(409, "own_keys", f"{name} cannot attest its own new keys: ask another member", name)
    try:
        given = PublicIdentity.from_jwks_untrusted({"keys": body.keys})
        row = await registration.reset_keys(
            node.store, name, given, signer=node.sealer, reason=body.reason, clock=node.clock
        )
    except (CryptoError, ValueError) as error:
        raise ApiError(422, "bad_keys", str(error)) from error
    if row is None:
        raise ApiError(404, Reason.NOT_FOUND, f"no keys are registered for {name}", name)
    return ServerView.of(row)


async def _query(node: HomeserverNode, query: DirectoryQuery) -> RowsView:
    if query.name is None:
        rows = [_shown(node, row) for row in await node.store.find_servers(Role.HOMESERVER)]
    elif instance_of(query.name) != node.config.instance:
        rows = []
    else:
        found = await node.store.find_row(query.name)
        rows = [] if found is None else [_shown(node, found)]
    instance, secret, now_ms = node.config.instance, node.secrets.federation, round(node.clock.unix_s() * 1e3)
    return RowsView(
        rows=rows,
        proof=rows_proof(secret, federation_purpose(instance), query.nonce, rows),
        now_ms=now_ms,
        clock_proof=rows_proof(secret, federation_clock_purpose(instance), query.nonce, now_ms),
    )


def _shown(node: HomeserverNode, row: DirectoryRow) -> dict[str, Any]:
    """A row as data; of this instance, with its resets vouched for by keys of today."""
    if instance_of(row.name) == node.config.instance:
        row = node.key_reset.shown(row, node.clock.unix_s())
    return row.to_data()
