"""Routes for people, players and tools."""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final, Literal

from fastapi import Depends, FastAPI, Query, Request
from fastapi import Path as PathParam

from batonpass.actors.http.app import (
    ERROR_RESPONSES,
    ApiError,
    BodyBound,
    ErrorBody,
    document_once,
    prepare_app,
)
from batonpass.actors.http.callers import Caller, check_callers
from batonpass.actors.http.key_routes import key_routes
from batonpass.actors.http.metrics_route import metrics_routes
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.actors.observe.observation import actor_routes
from batonpass.actors.observe.supervision import supervision_routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import DirectoryRow, EntityRecord, GroupPhase, Phase, Role, TransferRecord, Want
from batonpass.authority.node.metrics import Metrics
from batonpass.authority.procedures.transfer_table import DECIDED
from batonpass.authority.trust.certificates import Name, TransferId
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.names.registration import register
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.acts import ActsList, RecordsActs
from batonpass.homeserver.overview.live import LiveOverview
from batonpass.homeserver.overview.routes import may_act, overview_routes
from batonpass.homeserver.rest.absence import absence_routes
from batonpass.homeserver.rest.access import (
    AtDoor,
    PlayerAtDoor,
    check_home,
    check_player_proof,
    check_players,
    client_access,
    player_access,
)
from batonpass.homeserver.rest.callers import HOMESERVER_CALLERS
from batonpass.homeserver.rest.cluster import cluster_routes, log_routes
from batonpass.homeserver.rest.creations import MANY_BOUND, creation_routes
from batonpass.homeserver.rest.deletion import deletion_routes
from batonpass.homeserver.rest.doors import door_routes
from batonpass.homeserver.rest.enrolments import enrolment_routes
from batonpass.homeserver.rest.errors import install_errors, not_told
from batonpass.homeserver.rest.groups import group_routes
from batonpass.homeserver.rest.hierarchy import hierarchy_routes
from batonpass.homeserver.rest.models import (
    POLICIES,
    SEALED,
    AnswerBody,
    AskView,
    DelegationBody,
    EntityView,
    Health,
    KeysBody,
    KeysView,
    NewTransfer,
    RecoveriesView,
    RightsBody,
    ServerView,
    TransferView,
)
from batonpass.homeserver.rest.pages import page_routes
from batonpass.homeserver.rest.placement import placement_routes
from batonpass.homeserver.rest.quarantine import quarantine_routes
from batonpass.homeserver.rest.regions import region_routes
from batonpass.homeserver.rest.rights import rights_routes, tell_owner
from batonpass.homeserver.rest.servers import server_routes
from batonpass.homeserver.rest.transactions import transaction_routes
from batonpass.homeserver.rest.transport import MAX_IMPORTED_VALUES, transport_routes
from batonpass.homeserver.rest.tree import tree_routes
from batonpass.homeserver.rest.watches import watch_routes
from batonpass.homeserver.rest.why import why_routes
from batonpass.homeserver.transfer.hierarchies import order_all
from batonpass.homeserver.transfer.master_questions import MAX_SEEN_CHARACTERS, MAX_WAIT_S
from batonpass.homeserver.transfer.move_queue import MAX_MOVES
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from batonpass.tree.machine.commands import MAX_COMMAND_BYTES

__all__ = ["make_app"]

# Writes that are let in while the log is known to be an older one than it was.
_DURING_ALARM: Final = ("/v1/handoffs", "/v1/federation", "/v1/cluster", "/v1/keys", "/v1/actors")

Consistency = Annotated[
    Literal["linearizable", "local"],
    Query(
        description="linearizable: sees every commit before this call; local: this member's copy, fast, except that "
        "what it does not have is looked for like that"
    ),
]
EntityId = Annotated[Name, PathParam(description="for example alpha.ball-1")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many at most")]
WaitS = Annotated[
    float,
    Query(
        ge=0,
        le=MAX_WAIT_S,
        description="seconds to wait, at most, until there is one that is not among the `seen`; only with the token",
    ),
]
Seen = Annotated[
    str,
    Query(max_length=MAX_SEEN_CHARACTERS, description="transfers that are not waited for, with commas between them"),
]


def make_app(
    node: HomeserverNode,
    metrics: Metrics | None = None,
    live: LiveOverview | None = None,
    acts_path: Path | None = None,
) -> FastAPI:
    """The whole REST API of one homeserver; without `metrics`, its route says how to have them.

    `live` is what those who look on are told, and has to be served. `acts_path` is where it is kept what operators did.
    """
    live = live or LiveOverview(node)
    acts = ActsList(acts_path, live.tell_act, node.clock)
    app = FastAPI(
        title="batonpass homeserver",
        summary="Who simulates an entity, who controls it, and who may change that.",
        version="1",
        docs_url=None,
        redoc_url=None,
        responses=ERROR_RESPONSES,
    )
    # What the log takes of one command is less, but JSON takes more room than CBOR: bytes a third more.
    written = BodyBound(2 * MAX_COMMAND_BYTES)
    bounds = dict.fromkeys(("/v1/handoffs", "/v1/federation"), SEALED) | dict.fromkeys(("/v1/tree", "/v1/tx"), written)
    bounds["/v1/entities/many"] = MANY_BOUND
    prepare_app(app, bounds | {"/v1/import": written._replace(max_values=MAX_IMPORTED_VALUES)})
    app.add_middleware(RecordsActs, acts=acts, callers=HOMESERVER_CALLERS, dashboard_acts=may_act(node))
    app.router.dependencies.append(Depends(_unless_log_went_back(node)))
    install_errors(app)
    # Before the servers by name: "load" is none.
    placement_routes(node).add_to(app)
    region_routes(node).add_to(app)
    _server_list_routes(node).add_to(app)
    cluster_routes(node).add_to(app)
    log_routes(node).add_to(app)
    creation_routes(node).add_to(app)
    _entity_routes(node).add_to(app)
    _transfer_routes(node).add_to(app)
    group_routes(node).add_to(app)
    deletion_routes(node).add_to(app)
    hierarchy_routes(node).add_to(app)
    absence_routes(node).add_to(app)
    why_routes(node).add_to(app)
    door_routes(node).add_to(app)
    enrolment_routes(node).add_to(app)
    quarantine_routes(node, _entity).add_to(app)
    rights_routes(node, _entity).add_to(app)
    _player_routes(node).add_to(app)
    server_routes(node).add_to(app)
    tree_routes(node).add_to(app)
    transaction_routes(node).add_to(app)
    watch_routes(node).add_to(app)
    transport_routes(node).add_to(app)
    page_routes(node.config.pages).add_to(app)
    overview_routes(node, live, acts).add_to(app)
    key_routes(node.keys, node.federation.pins, node.tokens).add_to(app)
    actor_routes(lambda: node.system, node.tokens).add_to(app)
    supervision_routes(lambda: node.system).add_to(app)
    metrics_routes(metrics).add_to(app)
    check_callers(app, HOMESERVER_CALLERS)
    document_once(app)
    return app


def _unless_log_went_back(node: HomeserverNode) -> Callable[[Request], Awaitable[None]]:
    """Refuses whatever would write into a log that is not the one that it was: it would be taken back with it.

    Not what servers say, which is refused message by message, nor that one is there, nor what is about this member.
    """

    async def check(request: Request) -> None:
        path, why = request.url.path, node.leases.went_back
        is_let_in = path.startswith(_DURING_ALARM) or (request.method == "PUT" and path.startswith("/v1/servers/"))
        if why and request.method not in ("GET", "HEAD") and not is_let_in:
            raise ApiError(503, "log_went_back", f"nothing is written: {why}")

    return check


async def _entity(node: HomeserverNode, entity_id: str, consistency: str = "linearizable") -> EntityRecord:
    check_home(node.config.instance, entity_id)
    if consistency == "linearizable":
        await node.store.fresh()
        record = node.store.entity(entity_id)
    else:
        record = await node.store.find_entity(entity_id)
    if record is None:
        raise ApiError(404, Reason.NOT_FOUND, f"there is no entity {entity_id}", entity_id)
    return record


def _server_list_routes(node: HomeserverNode) -> Routes:
    routes = Routes(tags=["cluster"])

    @routes.get("/healthz", responses={503: {"model": ErrorBody, "description": "Not ready yet."}})
    async def healthz() -> Health:
        """Ready when this member knows a leader, has caught up with its log, and is registered."""
        status = node.replica.status
        # First what is known for sure: without its leave, etcd does not say either which of its members leads.
        reason = f"nothing can be written: {status.cannot_write}" if status.cannot_write else ""
        if not reason and not status.leader:
            reason = node.why_no_leader()
        if not reason and not status.ready:
            reason = f"not caught up with the log of {status.leader} yet"
        if not reason and not node.registered:
            reason = "not registered in its own directory yet"
        off = "; ".join(why for why in (node.clock.why, node.federation.why_off) if why)
        if reason:
            raise ApiError(503, "not_ready", f"{reason}; {off}" if off else reason)
        if node.leases.went_back:
            raise ApiError(503, "log_went_back", node.leases.went_back)
        return Health(status="clock_off" if off else "ok", name=node.config.name, role=Role.HOMESERVER, clock=off)

    @routes.get("/v1/servers")
    async def servers() -> list[ServerView]:
        """Every server that is registered with this instance, as far as this member knows."""
        return [ServerView.of(row, node.store.lease(row.name)) for row in node.store.servers()]

    @routes.get("/v1/recoveries")
    async def takeovers() -> RecoveriesView:
        """The entities of dead simulation servers: which server takes them over, and from which copy."""
        data = node.takeovers.to_data() | {"log_went_back": node.leases.went_back}
        foreign = node.abroad.to_data()
        return RecoveriesView(**data, foreign_custody=foreign, abroad=foreign)

    @routes.get("/v1/servers/{name}")
    async def server(name: Name) -> ServerView:
        """One server of any instance, with its public keys."""
        row = await node.directory.row(name)
        if row is None or row.role is Role.PLAYER:
            raise ApiError(404, Reason.NOT_FOUND, f"no server {name} is registered", name)
        return ServerView.of(row, node.store.lease(name))

    return routes


def _entity_routes(node: HomeserverNode) -> Routes:
    routes = Routes(prefix="/v1/entities", tags=["entities"])
    client = Depends(client_access(node.tokens))
    player = Depends(player_access(node))

    @routes.get("/{entity_id}")
    async def get_entity(entity_id: EntityId, consistency: Consistency = "linearizable") -> EntityView:
        """Owner, master, authority, epoch and rule of an entity, and how it stands: its authority is asked.

        With `local` no server is asked: `standing` is what the log alone says, and whether its server reports.
        """
        record = await _entity(node, entity_id, consistency)
        if consistency == "local":
            return EntityView.of(record, node.standings.known(record))
        return EntityView.of(record, await node.standings.of(record))

    @routes.patch("/{entity_id}", dependencies=[player])
    async def change_rights(entity_id: EntityId, body: RightsBody, at_door: AtDoor = None) -> EntityView:
        """Set rule, owner or master; the master signs what it wants."""
        record = await _entity(node, entity_id)
        statement = {
            "action": "rights",
            "entity": entity_id,
            "rule": body.rule,
            "owner": body.owner,
            "master": body.master,
        }
        # Naming the revisions makes the proof good for one change at most.
        settings = body.model_dump(mode="json", include=POLICIES, exclude_none=True)
        names = {"rule_rev", "owner_rev", "master_rev"} | ({"policies_rev"} if settings else set())
        revisions = record.model_dump(include=names)
        statement |= settings
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, revisions, at_door=at_door)
        await check_players(node.directory, node.config.instance, body.model_dump(include={"owner", "master", "heir"}))
        changes = settings | body.model_dump(mode="json", include={"by", "rule", "owner", "master"})
        changes |= revisions
        changed = EntityRecord.from_data(await node.store.submit("entity.change_rights", entity=entity_id, **changes))
        if changed.owner_rev != record.owner_rev:
            await tell_owner(node, changed)
        return EntityView.of(changed)

    @routes.put("/{entity_id}/delegation", dependencies=[client])
    async def delegate(entity_id: EntityId, body: DelegationBody) -> EntityView:
        """Let a group of this instance's simulation servers pass the entity among themselves (case 3)."""
        check_home(node.config.instance, entity_id)
        data = await node.store.submit("entity.delegate", entity=entity_id, group=body.group)
        record = EntityRecord.from_data(data)
        if record.delegation:
            try:
                await node.notices.deliver_delegation(record)
            except NOT_TOLD as error:
                raise not_told(error, record.authority) from error
        return EntityView.of(record)

    @routes.get("/{entity_id}/transfers")
    async def get_transfers(
        entity_id: EntityId, limit: Limit = 100, consistency: Consistency = "linearizable"
    ) -> list[TransferView]:
        """The transfers of an entity: those without an epoch, then the others, newest first. Old ones are forgotten."""
        await _entity(node, entity_id, consistency)
        records = node.store.transfers_of(entity_id, limit)
        return [TransferView.of(record, is_left=node.store.is_left(record)) for record in records]

    @routes.post("/{entity_id}/transfers", status_code=202, dependencies=[player])
    async def request_transfer(entity_id: EntityId, body: NewTransfer, at_door: AtDoor = None) -> TransferView:
        """Have an entity moved; answers at once with the transfer, whose progress is at /v1/transfers/{id}."""
        return await _request_transfer(node, entity_id, body, at_door)

    return routes


async def _request_transfer(
    node: HomeserverNode, entity_id: str, body: NewTransfer, at_door: PlayerAtDoor | None
) -> TransferView:
    check_home(node.config.instance, entity_id)
    if at_door is not None and body.requester is None:
        text = f"{at_door.name} asks in its own name: say it as the requester"
        raise ApiError(403, "not_permitted", text, at_door.name)
    if body.requester is not None:
        if body.proof is None:
            text = "a request in a player's name needs that player's proof"
            raise ApiError(422, "no_proof", text, body.requester)
        if body.transfer_id is None:
            # It makes the proof good for one transfer: one that sends it again gets the answer of the first time.
            text = "a request in a player's name needs a transfer_id, which its proof names"
            raise ApiError(422, "no_transfer_id", text, body.requester)
        statement = {"action": "transfer", "entity": entity_id, "to": body.to, "transfer_id": body.transfer_id}
        if body.want is not Want.BY_RULE:
            statement["want"] = body.want.value
        now_s = node.clock.unix_s()
        await check_player_proof(
            node.directory, body.requester, body.proof, statement, now_s, would_own=True, at_door=at_door
        )
        node.request_gate.admit(body.requester, entity_id, body.transfer_id)
    target = await node.directory.row(body.to)
    if target is None or target.role is not Role.SIMSERVER:
        raise ApiError(422, Reason.UNKNOWN_TARGET, f"no simulation server {body.to} is known", body.to)
    waiting = node.moves.waiting(entity_id)
    if waiting >= MAX_MOVES and (body.transfer_id is None or node.store.transfer(body.transfer_id) is None):
        text = f"{waiting} moves of {entity_id} are not over here, and one more would wait for all of them"
        raise ApiError(409, "too_many_moves", text, waiting)
    data = await node.store.submit(
        "transfer.propose",
        transfer_id=body.transfer_id or secrets.token_hex(12),
        entity=entity_id,
        target=body.to,
        requester=body.requester or "",
        mode=body.mode,
        notice_ms=body.notice_ms,
        freeze_budget_ms=body.freeze_budget_ms,
        direct=body.path == "direct" and await _is_delegated(node, entity_id, body.to),
        transport=body.transport,
        want=body.want.value,
        ask_timeout_s=body.ask_timeout_s,
        binds_master=True,
        waits=waiting > 0,
        now_s=node.clock.unix_s(),
    )
    return await _begun(node, TransferRecord.from_data(data))


async def _is_delegated(node: HomeserverNode, entity_id: str, target: str) -> bool:
    """Whether an entity may be passed directly to a server: its authority is of the same group."""
    here = node.store.entity(entity_id)
    if here is not None and target in here.delegation:
        return True
    return target in (await _entity(node, entity_id)).delegation


async def _begun(node: HomeserverNode, transfer: TransferRecord) -> TransferView:
    """The transfer, after its old authority has been told to begin if it may, and those of what comes along."""
    if transfer.phase is Phase.PERMITTED:
        try:
            await node.moves.begin(transfer)
        except NOT_TOLD as error:
            raise not_told(error, transfer.id, " with this transfer_id") from error
        if transfer.group:
            await order_all(node.store, node.orders.order_each, transfer.group)
    return TransferView.of(transfer, is_left=node.store.is_left(transfer))


def _transfer_routes(node: HomeserverNode) -> Routes:
    routes = Routes(prefix="/v1/transfers", tags=["transfers"])
    player = Depends(player_access(node))

    @routes.get("/{transfer_id}")
    async def get_transfer(transfer_id: TransferId, consistency: Consistency = "linearizable") -> TransferView:
        """How far a transfer is; when it is done, its hops and timings."""
        if consistency == "linearizable":
            await node.store.fresh()
            record = node.store.transfer(transfer_id)
        else:
            record = await node.store.find_transfer(transfer_id)
        if record is None:
            raise ApiError(404, Reason.NOT_FOUND, f"there is no transfer {transfer_id}", transfer_id)
        now_s = node.clock.unix_s()
        group = node.store.group(record.group)
        is_late = group is not None and group.phase is GroupPhase.OPEN and now_s > group.expires_at_s
        is_late |= record.phase is Phase.ASKED and now_s > record.ask_expires_at_s
        if is_late or (record.phase not in DECIDED and node.store.entity(record.entity) is None):
            data = await node.store.submit("transfer.expire", transfer_id=transfer_id, now_s=now_s)
            record = TransferRecord.from_data(data)
        view = TransferView.of(record, is_left=node.store.is_left(record))
        if view.result == "pending" and consistency == "linearizable":
            view.waits = await node.standings.why_waits(record)
        return view

    @routes.delete("/{transfer_id}", dependencies=[Depends(operator_access(node.tokens))])
    async def take_back(transfer_id: TransferId) -> TransferView:
        """The operator takes back a move for the system's own reasons that is not decided yet.

        What a drain or the balancer wants, it may order again: end the drain first.
        """
        data = await node.store.submit("transfer.cancel", transfer_id=transfer_id, by="")
        return TransferView.of(TransferRecord.from_data(data))

    @routes.post("/{transfer_id}/answer", dependencies=[player])
    async def answer(transfer_id: TransferId, body: AnswerBody, at_door: AtDoor = None) -> TransferView:
        """The master answers a request that the rule `ask` put to it."""
        stated = {"transfer_id": transfer_id, **body.model_dump(include={"allow", "master_rev"})}
        now_s = node.clock.unix_s()
        statement = {"action": "answer", **stated}
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, at_door=at_door)
        data = await node.store.submit("transfer.answer", **stated, by=body.by, now_s=now_s)
        transfer = TransferRecord.from_data(data)
        # Not read anew: without a majority by now that would say that nothing was changed.
        record = node.store.entity(transfer.entity) if transfer.stay and transfer.phase is Phase.DONE else None
        if record is not None:
            owned = {"owner": transfer.owner, "owner_rev": transfer.owner_rev, "authority": transfer.target}
            await tell_owner(node, record.changed(**owned))
        return await _begun(node, transfer)

    return routes


def _player_routes(node: HomeserverNode) -> Routes:
    routes = Routes(prefix="/v1/players", tags=["players"])
    client = Depends(client_access(node.tokens))

    @routes.put("/{player}/keys", dependencies=[client])
    async def put_keys(player: Name, body: KeysBody) -> KeysView:
        """Pin a player's public keys to its name. A name belongs to its first registrant.

        Later versions of the keys must follow from those that stand here.
        """
        check_home(node.config.instance, player)
        try:
            jwks = {"keys": body.keys} if body.revoked is None else {"keys": body.keys, "revoked": body.revoked}
            keys = PublicIdentity.from_jwks_untrusted(jwks)
        except CryptoError as error:
            raise ApiError(422, "bad_keys", str(error)) from error
        row = DirectoryRow(
            name=player,
            role=Role.PLAYER,
            keys=keys.to_jwks(),
            version=body.version,
            statements=body.statements,
        )
        return KeysView.of(await register(node.store, row))

    @routes.get("/{player}/keys")
    async def get_keys(player: Name) -> KeysView:
        """A player's public keys; those of other instances' players are fetched from there."""
        row = await node.directory.row(player)
        if row is None or row.role is not Role.PLAYER:
            raise ApiError(404, Reason.NOT_FOUND, f"no keys are registered for {player}", player)
        return KeysView.of(row)

    @routes.get("/{player}/asks")
    async def get_asks(
        request: Request,
        player: Name,
        limit: Limit = 100,
        consistency: Consistency = "linearizable",
        wait_s: WaitS = 0.0,
        seen: Seen = "",
    ) -> list[AskView]:
        """The requests that wait for this player's answer, as the master of entities of this instance."""
        if wait_s > 0:
            node.tokens.let_in(request, Caller.WAITING)
        if consistency == "linearizable":
            await node.store.fresh()
        asked = await node.questions.new_ones(player, limit, seen.split(","), wait_s)
        return [AskView.of(*question) for question in asked]

    return routes
