"""A homeserver without sockets, and what old authorities ask it: alone, or in one parcel."""

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from hypothesis import strategies as st

from batonpass.actors.base.batcher import Batcher
from batonpass.actors.base.breakpoints import nowhere
from batonpass.actors.base.clock import Bell
from batonpass.authority.errors import MessageError, Refused
from batonpass.authority.model.records import EntityRecord, GroupRecord, TransferRecord
from batonpass.authority.node.spans import SILENT, Spans
from batonpass.authority.placement.policy import Balance, relieve
from batonpass.authority.procedures.group_table import is_behind
from batonpass.authority.procedures.table import MAX_STEPS, PROCEDURES
from batonpass.authority.trust.certificates import PassCertificate, token_hash
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer, no_log
from batonpass.authority.wire.transfer import (
    HandoffRequest,
    Message,
    Report,
)
from batonpass.crypto import jose
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.node.composition import DecisionSettings, build
from batonpass.homeserver.placement.balancer import Balancer
from batonpass.homeserver.transfer.asked import letter_of
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.homeserver.transfer.service import in_nursery
from batonpass.tree.raft.submissions import NoQuorum
from tests.authority.log import ADA, BALL, FAR, HOMESERVER, OTHER, S1, S2, S3, Log, new_log
from tests.authority.rows import directory_row
from tests.authority.trust.test_certificate_reader import KEYS

THIRD = "alpha.third"
CLOCK = SimpleNamespace(monotonic_ns=lambda: 90, unix_s=lambda: 1.0, bell=Bell)


def log_of_three() -> Log:
    log = new_log("allow")
    log.run("entity.create", entity=THIRD, kind="ball", spawner=ADA, server=S1, rule="allow")
    return log


class Kept:
    """A store of one member; what was submitted to it, and whether it can be."""

    def __init__(self, log: Log) -> None:
        self.tree = log.rows
        self.log = log
        self.submitted: list[str] = []
        self.passes: list[Any] = []
        self.fails: Exception | None = None

    async def submit(self, procedure: str, **args: Any) -> Any:
        self.submitted.append(procedure)
        self.passes = [step.get("passes") for _, step in args.get("steps", ())]
        if self.fails is not None:
            raise self.fails
        return PROCEDURES[procedure](self.log.rows, args)

    async def find_transfer(self, transfer_id: str) -> TransferRecord | None:
        return self.transfer(transfer_id)

    def transfer(self, transfer_id: str) -> TransferRecord | None:
        return self.log.rows.transfer(transfer_id)

    def entity(self, entity: str) -> EntityRecord | None:
        data = self.log.rows.get_or(("entities", entity), None)
        return None if data is None else EntityRecord.from_data(data)

    def is_behind(self, group: GroupRecord, now_s: float) -> bool:
        return any(is_behind(group, self.group(name), now_s) for name in group.earlier)

    def grave(self, entity: str) -> Any:
        return self.log.rows.get_or(("tombstones", entity), None)

    def kind_of(self, _entity: str) -> str:
        return "ball"

    def open_rivals(self, _group: GroupRecord) -> list[GroupRecord]:
        return []

    def group(self, group: str) -> GroupRecord | None:
        data = self.log.rows.get_or(("groups", group), None) if group else None
        return None if data is None else GroupRecord.from_data(data)


class Known:
    """A directory in which everybody of the log has keys, and nobody else is known."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def row(self, name: str) -> Any:
        data = self.log.rows.get_or(("servers", name), None)
        return None if data is None else directory_row(name, data["role"])

    async def signer(self, name: str, kid: str) -> tuple[Any, Any]:
        row = await self.row(name)
        return row, None if row is None else KEYS[name].public

    def parse(self, row: Any) -> Any:
        return KEYS[row.name].public


class Home:
    """A homeserver, built as it is shipped, that only notes what it sends."""

    def __init__(self, log: Log, spans: Spans = SILENT) -> None:
        self.kept = Kept(log)
        self.sent: list[tuple[str, Message]] = []
        self.unreachable: set[str] = set()
        self.parcels = 0
        self.asked_far: list[list[Message]] = []
        self.far = SimpleNamespace(exchange_all=self._far, hops_to=lambda _: 1, is_silent=lambda _: False)
        self.directory = Known(log)
        nothing: Any = None
        ports = HomeserverPorts(
            sealer=Sealer(HOMESERVER, KEYS[HOMESERVER]),
            store=cast(Any, self.kept),
            directory=cast(Any, self.directory),
            federation=cast(Any, self.far),
            # Looked up with each message, as tests exchange it.
            post=cast(Any, self),
            positions=cast(Any, SimpleNamespace(place_for=no_log)),
            clock=cast(Any, CLOCK),
            spans=spans,
            leads=lambda: False,
            leads_log=lambda: False,
            is_better_elsewhere=lambda: False,
            reached=nowhere,
            beside_each_other=in_nursery,
            gather=partial(Batcher, most=MAX_STEPS),
        )
        settings = DecisionSettings(
            lease_term_s=1.0, balance=Balance(), policy=relieve, balancing=False, new_id=nothing
        )
        self.moves: list[str] = []
        with patch.object(
            Balancer, "moved", lambda _, entity, _source, target: self.moves.append(f"{entity} to {target}")
        ):
            self.parts = build(ports, settings)
        self.reply, self.replies = self.parts.transfers.reply, self.parts.transfers.replies
        self.order_each, self.waiting = self.parts.orders.order_each, self.parts.waiting
        self.certificates = self.parts.certificates

    async def _far(self, _instance: str, letters: Any, **_: Any) -> Any:
        self.asked_far.append([letter.message for letter in letters])
        return [InstanceUnreachable("beta is silent")] * len(letters)

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        await self.post_all(to, [Letter(message, trace, on_path)])

    async def show_log(self, to: str) -> None:
        pass

    async def post_all(self, to: str, letters: Any) -> list[None]:
        if to in self.unreachable:
            raise InstanceUnreachable(f"{to} has no address")
        self.parcels += 1
        self.sent += [(to, letter.message) for letter in letters]
        return [None] * len(letters)


def opened(message: Any) -> OpenedMessage:
    return OpenedMessage(message, message.source, Trace(message.transfer_id), in_batch=True)


def handoff(transfer_id: str, entity: str = BALL, target: str = S2, **changes: Any) -> OpenedMessage:
    fields = {"transfer_id": transfer_id, "entity": entity, "source": S1, "target": target, "epoch": 1, "sub": 0}
    return opened(HandoffRequest.model_validate(fields | {"tick": 7, "state_hash": "0" * 64} | changes))


def report(transfer_id: str, entity: str = BALL, **changes: Any) -> OpenedMessage:
    fields = {"transfer_id": transfer_id, "entity": entity, "source": S1, "trace": Trace(transfer_id).to_data()}
    return opened(Report.model_validate(fields | {"off_path": {}, "counters": {"copies": 1}} | changes))


def told(message: Message) -> dict[str, Any]:
    """A message without what differs each time: signatures."""
    return {name: value for name, value in message.model_dump().items() if name not in ("certificate", "grant")}


def one_after_the_other(messages: list[OpenedMessage]) -> list[OpenedMessage]:
    """No entity is wanted both here and abroad: there others are asked first, and what is decided first is open."""
    wanted = Counter(one.message.entity for one in messages if isinstance(one.message, HandoffRequest))
    return [
        handoff(one.message.transfer_id, one.message.entity, S3, epoch=one.message.epoch)
        if isinstance(one.message, HandoffRequest) and one.message.target == FAR and wanted[one.message.entity] > 1
        else one
        for one in messages
    ]


MESSAGES = st.lists(
    st.builds(
        handoff,
        st.sampled_from(["t-000001", "t-000002", "t-000003"]),
        st.sampled_from([BALL, OTHER, THIRD, "alpha.none", "beta.ball"]),
        st.sampled_from([S1, S2, S3, FAR]),
        epoch=st.sampled_from([1, 1, 1, 2]),
    )
    | st.builds(report, st.sampled_from(["t-000001", "t-000002", "t-000003"]), st.sampled_from([BALL, OTHER])),
    max_size=5,
    unique_by=lambda one: one.trace.transfer_id,
).map(one_after_the_other)


async def alone(home: Home, messages: list[OpenedMessage]) -> list[Any]:
    answers = []
    for one in messages:
        answer: Letter | Exception | None
        try:
            answer = await home.reply(one)
        except (MessageError, Refused, InstanceUnreachable, NoQuorum) as error:
            answer = error
        answers.append(letter_of(one, answer).message)
    return answers


async def together(home: Home, messages: list[OpenedMessage]) -> list[Any]:
    return [letter.message for letter in await home.replies(messages)]


def passed_to_and_fro(home: Home, entity: str, passes: int) -> list[OpenedMessage]:
    """Reports of direct passes under a grant, each with the chain up to it."""
    record = EntityRecord.from_data(home.kept.log.run("entity.delegate", entity=entity, group=[S1, S2]))
    chain, reports = [home.certificates.grant(record)], []
    for sub in range(1, passes + 1):
        source, target = (S1, S2) if sub % 2 else (S2, S1)
        transfer_id = f"{entity.partition('.')[2]}-pass-{sub}"
        fields = {"entity": entity, "epoch": record.epoch, "sub": sub, "source": source, "target": target, "tick": sub}
        parent = {"transfer_id": transfer_id, "state_hash": "0" * 64, "parent": token_hash(chain[-1])}
        claims = PassCertificate.model_validate(fields | parent).to_claims()
        chain.append(jose.sign(claims, sender=KEYS[source], sender_id=source))
        reports.append(report(transfer_id, entity, source=source, chain=list(chain)))
    return reports
