"""The table of bounds in docs/reference/protocol.md: every row has its reason, and the numbers of the code."""

import pytest

from batonpass.actors.http import strict_json
from batonpass.actors.http.client import ANSWERS_BYTES, MAX_ANSWER_BYTES
from batonpass.authority.limits import INLINE_STATE_BYTES, MAX_BODY_BYTES, MAX_STATE_BYTES
from batonpass.authority.machines.capacity import MAX_PLACES, MAX_STAGED_BYTES, PLACES_TTL_NS
from batonpass.authority.machines.precopy import MAX_KEPT_BYTES, MAX_RECIPE_BYTES
from batonpass.authority.model.records import MAX_UNKNOWN_CHARS
from batonpass.authority.procedures.delete import MAX_TOMBSTONES
from batonpass.authority.procedures.group_table import (
    GROUP_LIFETIME_S,
    MAX_GROUP,
    MAX_GROUPS,
    MAX_RIVALS,
    MEMBERS_IN_A_SECOND,
)
from batonpass.authority.procedures.hierarchy import MAX_CHILDREN, MAX_DEPTH, MAX_TREE
from batonpass.authority.procedures.rate_limit import BURST, REQUESTS_PER_S
from batonpass.authority.procedures.transfer_table import MAX_KEPT, MAX_TRANSFERS
from batonpass.authority.trust.certificates import MAX_CHAIN
from batonpass.authority.trust.signed_positions import MAX_HEARD_OFFICES, MAX_OFFICES
from batonpass.authority.wire.base import MAX_TOKEN_CHARS
from batonpass.authority.wire.batch import MAX_BATCH, MAX_BATCH_BYTES, MAX_WAITING
from batonpass.authority.wire.columnar import MAX_SHARED
from batonpass.authority.wire.envelope import MAX_KEY_HEADER_BYTES
from batonpass.authority.wire.hops import MAX_HOPS, MAX_MARKS
from batonpass.authority.wire.lease import MAX_LEASES, MAX_PEERS, MAX_POSITION_CHARS
from batonpass.authority.wire.neighbours import MAX_GHOSTS_TOLD, MAX_INTEREST_CELLS
from batonpass.authority.wire.placement import MAX_CENSUS, MAX_GROUP_CHARS, MAX_MOVES
from batonpass.authority.wire.queries import (
    MAX_FOREIGN_LOGS,
    MAX_HELD,
    MAX_OFFICES_ABROAD,
    MAX_WENT_ON,
    MAX_WITNESSES,
)
from batonpass.authority.wire.recovery import MAX_COPIES, MAX_RECOVERED
from batonpass.authority.wire.sealing import LIFETIME_S, MAX_AGREED, MAX_READERS, MAX_READY
from batonpass.authority.wire.standing import MAX_STANDINGS
from batonpass.authority.wire.transfer import MAX_INPUT_BYTES, MAX_INPUTS, MAX_NOTICE_MS
from batonpass.crypto import jws
from batonpass.crypto.jose import MAX_HEADER_CHARS, MAX_STATEMENT_BYTES
from batonpass.crypto.seen import DEFAULT_LONGEST_LIFE_S
from batonpass.homeserver.names.federation import AT_ONCE
from batonpass.homeserver.rest.models import MAX_WAIT_MS, SEALED
from batonpass.homeserver.rest.transport import MAX_IMPORTED_VALUES
from batonpass.homeserver.transfer.rate_limit import MAX_COUNTED, MAX_REQUESTERS, RATE
from batonpass.simserver.durability.retained_states import MAX_HANDED_OVER, MAX_HANDED_OVER_BYTES, MAX_WRITTEN_BYTES
from batonpass.simserver.entity.snapshot import MAX_BROKEN_CHARS
from batonpass.simserver.failover.adoption import MAX_STAGED
from batonpass.simserver.failover.spawn import MAX_REFUSED
from batonpass.simserver.mail import received
from batonpass.simserver.mail.items import MAX_SERVER_BYTES
from batonpass.simserver.mail.received import KEPT_SENDERS, MAX_SENDERS, MAX_WAITING_BYTES
from batonpass.simserver.neighbours.ghost_streams import MAX_GHOSTS_OF_STREAM
from batonpass.simserver.neighbours.ghost_table import MAX_GHOSTS
from batonpass.simserver.owners.lookup import AGAIN_NS, MAX_SENT_ON
from batonpass.simserver.transfer.source.admission import MAX_UNSURE
from batonpass.simserver.transfer.source.order_history import MAX_REMEMBERED, MAX_STAYS
from batonpass.simserver.transfer.target.early_inputs import MAX_EARLY, MAX_EARLY_BYTES, MAX_ENTITIES
from batonpass.simserver.transfer.target.staged_states import MAX_DISK_BYTES, MAX_STAGES
from batonpass.simserver.world.messages import (
    MAX_MESSAGE_BYTES,
    MAX_OUTBOX,
    MAX_OUTBOX_BYTES,
    MAX_PAIR,
    MAX_PAIR_BYTES,
)
from batonpass.simserver.world.participants import MAX_PART_NAME, MAX_PARTS, MAX_PARTS_BYTES
from tests.collected import ROOT

PAGE = ROOT / "docs" / "reference" / "protocol.md"
MIB = 1024 * 1024

EXPECTED = {
    "what is sealed in a parcel": f"{MAX_BODY_BYTES // MIB} MiB",
    "state inside the sealed message": f"{INLINE_STATE_BYTES // 1024} KiB",
    "state beside the sealed message": f"{MAX_STATE_BYTES // MIB} MiB",
    "states that are offered, of all entities": f"{MAX_STAGED_BYTES // MIB} MiB",
    "recipe of a state, chunks that went ahead": f"{MAX_RECIPE_BYTES // 1024} KiB, {MAX_KEPT_BYTES // MIB} MiB",
    "header of a sealed message": f"{MAX_HEADER_CHARS:,} characters",
    "life of a sealed message": f"{LIFETIME_S:.0f} s",
    "longest life that a receiver believes": f"{DEFAULT_LONGEST_LIFE_S:.0f} s",
    "hops, marks of a trace": f"{MAX_HOPS}, {MAX_MARKS}",
    "messages in a batch": f"{MAX_BATCH}",
    "batch, before it is sealed": f"{MAX_BATCH_BYTES // 1024} KiB",
    "value that stands for a whole column of a batch": f"{MAX_SHARED} characters",
    "servers known to read columns": f"{MAX_READERS:,}",
    "header of a key that is told ahead": f"{MAX_KEY_HEADER_BYTES:,} bytes",
    "servers with which a key is agreed on ahead": f"{MAX_AGREED:,}",
    "rows of a census": f"{MAX_CENSUS}",
    "requests of one player for an entity; for all, at one member; players and requests remembered": (
        f"{BURST} and {REQUESTS_PER_S:.0f} a second; {RATE.burst} and {RATE.per_s:.0f} a second; "
        f"{MAX_REQUESTERS:,} and {MAX_COUNTED:,}"
    ),
    "entities in one question of how they stand": f"{MAX_STANDINGS}",
    "moves in one message": f"{MAX_MOVES}",
    "name of an affinity group": f"{MAX_GROUP_CHARS} characters",
    "parts of an entity beside its state; their names; all of them": (
        f"{MAX_PARTS}; {MAX_PART_NAME} characters; {MAX_PARTS_BYTES // MIB} MiB"
    ),
    "why an entity is quarantined": f"{MAX_BROKEN_CHARS} characters",
    "receivers for which a key is ready": f"{MAX_READY:,}",
    "places in a reservation": f"{MAX_PLACES:,}, {PLACES_TTL_NS // 10**9} s",
    "questions for room that wait for the home's word that a server is drained still": f"{MAX_UNSURE:,}",
    "states staged on a server": f"{MAX_STAGES:,}, {MAX_DISK_BYTES // 1024**3} GiB",
    "states that a server has handed over; on its disk, with those of its earlier lives": (
        f"{MAX_HANDED_OVER:,}, {MAX_HANDED_OVER_BYTES // MIB} MiB; {MAX_HANDED_OVER:,}, {MAX_WRITTEN_BYTES // MIB} MiB"
    ),
    "staged states that home was told of": f"{MAX_STAGED:,}, `max_copies_bytes`",
    "owner hints that were sent on": f"{MAX_SENT_ON:,}, {AGAIN_NS // 10**9} s",
    "messages that wait for one receiver": f"{MAX_WAITING:,}",
    "entities, levels of a hierarchy; children of one": f"{MAX_TREE}, {MAX_DEPTH}; {MAX_CHILDREN}",
    "early inputs of an entity; entities with some": f"{MAX_EARLY}, {MAX_EARLY_BYTES // 1024} KiB; {MAX_ENTITIES}",
    "members of a group, groups": f"{MAX_GROUP:,}, {MAX_GROUPS}",
    "open groups with some of the same entities, before one": f"{MAX_RIVALS}",
    "wait for the last member of a group": f"{GROUP_LIFETIME_S} s, and 1 s for each {MEMBERS_IN_A_SECOND} members",
    "questions to another instance about entities that are frozen": f"{AT_ONCE} at once",
    "transfers in the log; those that it may not forget yet": f"{MAX_TRANSFERS:,}; {MAX_KEPT:,}",
    "notice before an entity leaves": f"{MAX_NOTICE_MS:,} ms",
    "input": f"{MAX_INPUT_BYTES:,} bytes",
    "inputs in a list": f"{MAX_INPUTS:,}",
    "certificate": f"{MAX_TOKEN_CHARS:,} characters",
    "chain of certificates": f"1 grant and {MAX_CHAIN} passes",
    "unknown members of a directory row": f"{MAX_UNKNOWN_CHARS:,} characters",
    "servers named to each other": f"{MAX_PEERS:,}",
    "position of the log; offices whose marks are kept": f"{MAX_POSITION_CHARS:,} characters; {MAX_OFFICES}",
    "offices of which a server remembers where the log was": f"{MAX_HEARD_OFFICES}",
    "words of other instances' logs that a server keeps, of one instance; words of one that its homes show": (
        f"{MAX_FOREIGN_LOGS}, {MAX_OFFICES_ABROAD}; {MAX_WITNESSES}"
    ),
    "entities in a question about what a server has; earlier custody terms of each": f"{MAX_HELD}; {MAX_WENT_ON}",
    "leases in a question of another home": f"{MAX_LEASES}",
    "copies in a message": f"{MAX_COPIES}, 64 KiB of states or one alone",
    "entities in a message of a recovery": f"{MAX_RECOVERED}",
    "entities of which a server remembers that it has handed them on; stays of each": (
        f"{MAX_REMEMBERED:,}; {MAX_STAYS}"
    ),
    "deleted entities in the log; refused ones on a server": f"{MAX_TOMBSTONES:,}; {MAX_REFUSED:,}",
    "cells of an interest; ghosts in a message; of one peer; in all": (
        f"{MAX_INTEREST_CELLS}; {MAX_GHOSTS_TOLD} and 64 KiB of states; {MAX_GHOSTS_OF_STREAM:,}; {MAX_GHOSTS:,}"
    ),
    "messages of entities: one; of a pair; of one entity; that wait for it; on a server": (
        f"{MAX_MESSAGE_BYTES // 1024} KiB; {MAX_PAIR}, {MAX_PAIR_BYTES // 1024} KiB; {MAX_OUTBOX:,}, "
        f"{MAX_OUTBOX_BYTES // 1024} KiB; {received.MAX_WAITING:,}, {MAX_WAITING_BYTES // 1024} KiB; "
        f"{MAX_SERVER_BYTES // MIB} MiB"
    ),
    "senders of which an entity knows how far they are; of one instance; kept once they have closed": (
        f"{MAX_SENDERS:,}; {MAX_SENDERS // 4}; {KEPT_SENDERS}"
    ),
    "copies kept": "100,000, `max_copies_bytes`",
    "signed statement": f"{MAX_STATEMENT_BYTES:,} bytes",
    "how long an answer is waited for (`batonpass-wait-ms`)": f"{MAX_WAIT_MS // 1000} s",
    "renewals of a server that a homeserver has": "1 under way, the newest 1 waiting",
    "answer of another server over HTTP; all answers under way; encodings": (
        f"{MAX_ANSWER_BYTES // MIB} MiB and {MAX_ANSWER_BYTES % MIB // 1024} KiB; {ANSWERS_BYTES // MIB} MiB; none"
    ),
    "values of JSON over REST; in sealed parcels; in an import": (
        f"{strict_json.MAX_JSON_VALUES:,}; {SEALED.max_values:,}; {MAX_IMPORTED_VALUES:,}"
    ),
    "nesting of a signed statement, and of JSON over REST": f"{jws.MAX_JSON_LEVELS}; {strict_json.MAX_JSON_LEVELS}",
}


def _table() -> dict[str, tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Bounds\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {name: (value, reason) for name, value, reason in rows[2:]}


def test_every_bound_is_in_the_table() -> None:
    assert set(_table()) == set(EXPECTED)


@pytest.mark.parametrize("bound", EXPECTED)
def test_a_bound_is_what_the_code_says_and_has_its_reason(bound: str) -> None:
    value, reason = _table()[bound]
    assert value == EXPECTED[bound]
    assert len(reason) > 10, "a bound without a reason"
