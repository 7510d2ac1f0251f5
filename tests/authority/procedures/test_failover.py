"""The raised fence and takeovers: the procedures, and what a missing rule would do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import (
    Copy,
    CopyTable,
)
from batonpass.authority.model.records import RecoveryRow, Role
from batonpass.authority.model.standing import OrphanPolicy
from batonpass.authority.procedures.lease import find_lease
from tests.authority.log import ADA, BALL, FAR, HOMESERVER, S1, S2, S3, Log, passing, request
from tests.authority.machines.test_replica_choice import copy
from tests.authority.rows import directory_row

# --- procedures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def leased() -> Log:
    """As `leased_log`."""
    return leased_log()


def leased_log() -> Log:
    """Three servers with leases, one homeserver that grants them, and Ada's ball on the first."""
    log = Log()
    for name in (S1, S2, S3):
        log.run("directory.register", row=directory_row(name).to_data())
    log.run("directory.register", row=directory_row(HOMESERVER, Role.HOMESERVER).to_data())
    log.run("lease.take_office", by="alpha.h1", after=0)
    for server in (S1, S2, S3):
        log.run("lease.claim", server=server, incarnation=1, nonce=server, previous_nonce="")
        log.swept(server)
    log.run("entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1, rule="ask")
    return log


def comes_back(log: Log, server: str, incarnation: int = 2) -> None:
    """A server was killed and starts again; nothing has been taken from it yet."""
    previous = server if incarnation == 2 else f"{server}-{incarnation - 1}"
    nonce = f"{server}-{incarnation}"
    log.run("lease.claim", server=server, incarnation=incarnation, nonce=nonce, previous_nonce=previous)


def over(log: Log, server: str, incarnation: int = 1) -> None:
    log.run("lease.expire", server=server, incarnation=incarnation, office=1)


def found(epoch: int = 2, target: str = S2) -> dict[str, Any]:
    return {
        "items": [
            {"entity": BALL, "epoch": epoch, "target": target, "tick": 7, "state_hash": "0" * 64, "source": "follower"}
        ]
    }


def test_a_takeover_goes_by_two_epochs_and_raises_the_fence_first(leased: Log) -> None:
    assert leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]]) == [], "it is alive"
    leased.refuses(Reason.LEASE_HELD, "recovery.begin", server="alpha.s9", entities=[])
    over(leased, S1)
    assert leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]]) == [BALL]
    record = leased.rows.entity(BALL)
    assert (record.authority, record.fence, record.standing) == ("", Fence(2), "recovering")
    assert leased.commit()["outcome"] == "refused", "the dead authority's request comes too late"
    assert leased.run("recovery.finish", **found()) == [BALL]
    record = leased.rows.entity(BALL)
    assert (record.authority, record.fence, record.standing) == (S2, Fence(3), "simulated")
    assert leased.run("recovery.adopted", items=[{"entity": BALL, "epoch": 3, "target": S2}]) == [BALL]
    assert leased.rows.get_or(("recoveries", BALL), None) is None


def test_a_recovery_is_over_for_who_has_handed_the_entity_on_before_home_heard_of_it(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    leased.run("recovery.finish", **found())
    assert leased.run("transfer.commit", **request(target=S3, source=S2, epoch=3))["outcome"] == "committed"
    assert leased.rows.get_or(("recoveries", BALL), None) is None
    for server in (S2, S3):
        assert leased.run("recovery.adopted", items=[{"entity": BALL, "epoch": 3, "target": server}]) == []


def test_nothing_is_given_to_a_server_whose_lease_is_over(leased: Log) -> None:
    over(leased, S1)
    over(leased, S2)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    assert leased.run("recovery.finish", **found()) == []
    assert leased.rows.entity(BALL).authority == ""
    leased.refuses(Reason.TARGET_DOWN, "entity.create", entity="alpha.n", kind="ball", spawner=ADA, server=S2)


def test_failures_row_13_a_target_that_dies_before_it_goes_on_is_swept_like_any_other(leased: Log) -> None:
    leased.commit()
    over(leased, S2)
    assert leased.run("recovery.begin", server=S2, entities=[[BALL, 2, 0]]) == [BALL]
    assert leased.run("transfer.commit", **request())["outcome"] == "committed", "no resuming"


# --- which life of a server had it -----------------------------------------------------------------------------------


def delegated(log: Log) -> Log:
    log.run("entity.delegate", entity=BALL, group=[S1, S2, S3])
    return log


def test_from_a_server_that_came_back_only_what_its_earlier_lives_had_is_taken(leased: Log) -> None:
    comes_back(delegated(leased), S2)
    early, late = passing(1, S1, S2, incarnation=1), passing(1, S1, S2, incarnation=2)
    twin = Log()
    twin.rows.data = dict(leased.rows.data)
    leased.run("transfer.passed", entity=BALL, passes=[late])
    assert leased.run("recovery.begin", server=S2, entities=[[BALL, 1, 1]]) == [], "it is simulated by this life"
    twin.run("transfer.passed", entity=BALL, passes=[early])
    assert twin.run("recovery.begin", server=S2, entities=[[BALL, 1, 1]]) == [BALL]


@pytest.mark.parametrize("how", ["came back", "is dead"])
def test_a_pass_of_which_the_log_hears_when_its_target_was_swept_already_has_it_swept_again(
    leased: Log, how: str
) -> None:
    delegated(leased)
    if how == "came back":
        comes_back(leased, S2)
    else:
        over(leased, S2)
    leased.swept(S2)
    leased.run("transfer.passed", entity=BALL, passes=[passing(1, S1, S2, incarnation=1)])
    lease = find_lease(leased.rows, S2)
    assert lease is not None
    assert not lease.swept
    assert leased.run("recovery.begin", server=S2, entities=[[BALL, 1, 1]]) == [BALL]


def test_who_has_looked_before_the_log_heard_of_a_pass_does_not_call_its_dead_target_swept(leased: Log) -> None:
    delegated(leased)
    comes_back(leased, S2)
    looked = {"server": S2, "incarnation": 2, "late": 0, "phase": "returning"}
    leased.run("transfer.passed", entity=BALL, passes=[passing(1, S1, S2, incarnation=1)])
    row = leased.run("lease.swept", **looked)
    assert (row["swept"], row["phase"]) == (False, "returning"), "whoever grants leases then sweeps it again"
    assert leased.run("recovery.begin", server=S2, entities=[[BALL, 1, 1]]) == [BALL]
    assert leased.swept(S2)["swept"]


def test_a_former_granter_does_not_call_swept_whose_lease_its_successor_has_ended(leased: Log) -> None:
    comes_back(leased, S2)
    leased.swept(S2)
    over(leased, S2, 2)
    row = leased.run("lease.swept", server=S2, incarnation=2, late=0, phase="alive")
    assert not row["swept"], "what its last incarnation had is not taken from it yet"


# --- passes that nobody can prove ------------------------------------------------------------------------------------


def contest(log: Log, epoch: int = 1, sub: int = 1, by: str = S1, transfers: tuple[str, ...] = ()) -> Any:
    return log.run("recovery.contest", entity=BALL, epoch=epoch, sub=sub, by=by, transfers=transfers)


@pytest.mark.parametrize("policy", list(OrphanPolicy))
def test_what_was_passed_with_a_revoked_key_is_looked_for_under_a_raised_fence(
    leased: Log, policy: OrphanPolicy
) -> None:
    """Nobody has died: it ends for no policy, and waits for nobody."""
    delegated(leased)
    record = leased.rows.entity(BALL)
    leased.rows.put(("entities", BALL), record.changed(orphans=policy).to_data())
    assert contest(leased, by=S2)
    record = leased.rows.entity(BALL)
    assert (record.authority, record.epoch, record.delegation, record.standing) == ("", 2, (), "recovering")
    row = RecoveryRow.from_data(leased.rows.get_or(("recoveries", BALL), None))
    assert (row.last, row.held, row.contested) == (S1, False, True)
    assert contest(leased, by=S2), "it is being recovered"
    assert leased.rows.entity(BALL).epoch == 2


def test_only_a_server_of_the_delegation_can_contest_and_only_what_the_log_does_not_know(leased: Log) -> None:
    delegated(leased)
    leased.refuses(Reason.NO_DELEGATION, "recovery.contest", entity=BALL, epoch=1, sub=1, by=FAR, transfers=())
    leased.run("transfer.passed", entity=BALL, passes=[passing(1, S1, S2)])
    assert not contest(leased), "the log knows of that pass"
    assert not contest(leased, epoch=0, sub=9)
    assert not leased.run("recovery.contest", entity="alpha.no", epoch=1, sub=1, by=S1, transfers=())
    assert leased.rows.entity(BALL).authority == S2
    assert contest(leased, sub=2)


@pytest.mark.parametrize("policy", ["freeze", "despawn"])
def test_a_policy_for_orphans_that_is_set_while_nobody_can_prove_who_has_it_is_for_later(
    leased: Log, policy: str
) -> None:
    delegated(leased)
    contest(leased)
    for _ in range(2):
        leased.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
        row = RecoveryRow.from_data(leased.rows.get_or(("recoveries", BALL), None))
        assert (row.held, row.contested) == (False, True)
        # And if whoever was given it does not go on with it.
        epoch = leased.rows.entity(BALL).epoch
        leased.run("recovery.finish", **found(epoch))
        leased.run("recovery.again", items=[{"entity": BALL, "epoch": epoch + 1}])


def test_an_open_transfer_that_nobody_can_prove_has_its_result(leased: Log) -> None:
    delegated(leased)
    leased.propose("transfer-1", direct=True)
    contest(leased, transfers=("transfer-1", "transfer-of-nobody"))
    transfer = leased.transfer("transfer-1")
    assert (transfer.phase, transfer.reason) == ("refused", Reason.UNPROVEN)


def test_what_is_given_through_the_log_is_given_to_the_present_life(leased: Log) -> None:
    answer = leased.commit()
    assert (answer["transfer"]["incarnation"], answer["transfer"]["source_incarnation"]) == (1, 1)
    assert leased.rows.entity(BALL).incarnation == 1
    comes_back(leased, S2)
    assert leased.run("recovery.begin", server=S2, entities=[[BALL, 2, 0]]) == [BALL]
    assert leased.run("recovery.finish", **found(3, S3)) == [BALL]
    assert leased.rows.entity(BALL).incarnation == 1


def test_failures_row_13_who_handed_over_is_not_told_that_others_went_on_before_they_do(leased: Log) -> None:
    """The old authority has the only state: a later fence would have it drop that."""
    first = leased.commit()
    over(leased, S2)
    leased.run("recovery.begin", server=S2, entities=[[BALL, 2, 0]])
    for _ in range(2):
        again = leased.run("transfer.commit", **request())
        assert (again["outcome"], again["authority"], again["epoch"]) == ("committed", S2, 2)
        assert again["transfer"] == first["transfer"]
        leased.run("recovery.finish", **found(3, S3))
    leased.run("recovery.adopted", items=[{"entity": BALL, "epoch": 4, "target": S3}])
    assert (leased.run("transfer.commit", **request())["authority"], leased.rows.entity(BALL).epoch) == (S3, 4)


def test_an_unanswered_pass_is_told_to_the_log_by_who_passed(leased: Log) -> None:
    step = passing(1, S1, S2, incarnation=1, transfer_id="transfer-1")
    for _ in range(2):
        answer = delegated(leased).run("transfer.commit", **request(), passes=[step])
        assert (answer["outcome"], answer["authority"], answer["epoch"], answer["sub"]) == ("committed", S2, 1, 1)


# --- an authority that is alive and has nothing -----------------------------------------------------------------------


def stranded(never: bool = False, **changes: Any) -> dict[str, Any]:
    asked = {"entity": BALL, "transfer_id": "transfer-1", "target": S2, "epoch": 2, "sub": 0, "incarnation": 1}
    return {**asked, "never": never, **changes}


def test_failures_row_10_the_state_was_on_its_way_when_its_server_died_for_good(leased: Log) -> None:
    leased.commit()
    leased.refuses(Reason.LEASE_HELD, "recovery.strand", **stranded())
    over(leased, S1)
    assert leased.run("recovery.strand", **stranded()) == BALL
    record = leased.rows.entity(BALL)
    assert (record.authority, record.fence, record.standing) == ("", Fence(3), "recovering")
    leased.refuses(Reason.TOO_LATE, "recovery.strand", **stranded())
    assert leased.run("recovery.finish", **found(3, S3)) == [BALL]


def test_a_server_that_came_back_has_not_what_it_had_frozen(leased: Log) -> None:
    leased.commit()
    comes_back(leased, S1)
    assert leased.run("recovery.strand", **stranded()) == BALL


def test_what_was_given_to_somebody_else_or_to_another_life_is_nobodys_to_give_back(leased: Log) -> None:
    leased.commit()
    over(leased, S1)
    for changes in ({"target": S3}, {"epoch": 1}, {"sub": 1}, {"incarnation": 2}, {"transfer_id": "transfer-2"}):
        leased.refuses(Reason.TOO_LATE, "recovery.strand", **stranded(**changes))


def test_from_a_server_that_is_not_asked_for_copies_nothing_is_taken_while_it_may_be_alive(leased: Log) -> None:
    leased.commit(target=FAR, check_target=False)
    over(leased, S1)
    for never in (False, True):
        asked = stranded(never=never, target=FAR, incarnation=0)
        leased.refuses(Reason.LEASE_HELD, "recovery.strand", **asked)


def test_who_will_never_begin_gives_it_back_while_its_source_is_alive(leased: Log) -> None:
    delegated(leased).run("entity.change_rights", entity=BALL, by=ADA, orphans="despawn")
    leased.run("transfer.passed", entity=BALL, passes=[passing(1, S1, S2, incarnation=1)])
    asked = stranded(never=True, transfer_id="transfer-p1", epoch=1, sub=1)
    assert leased.run("recovery.strand", **asked) == BALL, "nobody has died"
    assert leased.rows.get_or(("recoveries", BALL), None)["last"] == S1


@pytest.mark.parametrize("policy", ["adopt", "freeze", "despawn"])
def test_what_died_with_its_source_is_treated_by_its_policy(leased: Log, policy: str) -> None:
    leased.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
    leased.commit()
    over(leased, S1)
    leased.run("recovery.strand", **stranded())
    row = leased.rows.get_or(("recoveries", BALL), None)
    assert (row and (row["last"], row["held"])) == {"adopt": (S1, False), "freeze": (S1, True), "despawn": None}[policy]


def test_an_entity_is_given_to_the_life_that_said_it_has_a_copy(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    comes_back(leased, S2)
    leased.swept(S2)
    for incarnation, done in ((1, []), (2, [BALL])):
        (item,) = found()["items"]
        assert leased.run("recovery.finish", items=[item | {"incarnation": incarnation}]) == done


def test_what_its_target_does_not_go_on_with_is_looked_for_again(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    again = {"items": [{"entity": BALL, "epoch": 3}]}
    assert leased.run("recovery.again", items=[{"entity": BALL, "epoch": 2}]) == [], "nobody was told to go on"
    leased.run("recovery.finish", **found())
    assert leased.run("recovery.again", **again) == [BALL]
    assert leased.run("recovery.again", **again) == []
    record, row = leased.rows.entity(BALL), leased.rows.get_or(("recoveries", BALL), None)
    assert (record.authority, record.fence, row["last"], row["target"]) == ("", Fence(4), S1, "")
    assert leased.run("recovery.finish", **found(4, S3)) == [BALL]
    leased.run("recovery.adopted", items=[{"entity": BALL, "epoch": 5, "target": S3}])
    assert leased.run("recovery.again", items=[{"entity": BALL, "epoch": 5}]) == [], "it goes on"


def test_of_two_decisions_the_first_counts(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    assert leased.run("recovery.finish", **found(target=S3)) == [BALL]
    assert leased.run("recovery.finish", **found(target=S2)) == []
    assert leased.rows.entity(BALL).authority == S3


def test_an_entity_that_moved_on_meanwhile_is_left_alone(leased: Log) -> None:
    leased.commit()
    over(leased, S1)
    assert leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]]) == []
    assert leased.rows.entity(BALL).authority == S2


def test_what_nobody_has_a_copy_of_is_lost_until_somebody_has(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    leased.run("recovery.lost", items=[{"entity": BALL, "epoch": 2}])
    assert leased.rows.entity(BALL).standing == "lost"
    assert leased.run("recovery.finish", **found()) == [BALL]
    assert leased.rows.entity(BALL).standing == "simulated"


@pytest.mark.parametrize("policy", ["adopt", "freeze", "despawn"])
def test_failures_row_40_an_orphan_is_treated_by_its_policy(leased: Log, policy: str) -> None:
    new = {"entity": "alpha.n", "kind": "ball", "spawner": ADA, "server": S1, "orphans": policy}
    leased.run("entity.create", **new)
    over(leased, S1)
    taken = leased.run("recovery.begin", server=S1, entities=[["alpha.n", 1, 0]])
    row = leased.rows.get_or(("recoveries", "alpha.n"), None)
    assert taken == ([] if policy == "despawn" else ["alpha.n"])
    assert (row and row["held"]) == {"adopt": False, "freeze": True, "despawn": None}[policy]
    assert (leased.rows.get_or(("entities", "alpha.n"), None) is None) == (policy == "despawn")


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_failures_row_8_an_orphan_that_ends_before_anybody_was_told_of_it_leaves_its_name_free(
    leased: Log, is_confirmed: bool
) -> None:
    new = {"entity": "alpha.n", "kind": "ball", "spawner": ADA, "server": S1, "orphans": "despawn", "confirms": True}
    leased.run("entity.create", **new)
    if is_confirmed:
        leased.run("entity.confirm", entity="alpha.n", born=1)
    over(leased, S1)
    assert leased.run("recovery.begin", server=S1, entities=[["alpha.n", 1, 0]]) == []
    if is_confirmed:
        leased.refuses(Reason.GONE, "entity.create", **new | {"server": S2})
    else:
        again = leased.run("entity.create", **new | {"server": S2})
        assert (again["authority"], again["epoch"], again["born"]) == (S2, 2, 2)


def test_the_master_may_set_what_becomes_of_an_orphan(leased: Log) -> None:
    leased.refuses(Reason.NOT_MASTER, "entity.change_rights", entity=BALL, by="alpha.bob", orphans="despawn")
    leased.run("entity.change_rights", entity=BALL, by=ADA, orphans="despawn")
    over(leased, S1)
    assert leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]]) == []
    leased.refuses(Reason.NOT_FOUND, "entity.change_rights", entity=BALL, by=ADA, orphans="adopt")


def recovered_with(log: Log, policy: str) -> Any:
    """The row of the recovery of the ball, whose server has died when it had this policy."""
    log.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
    over(log, S1)
    log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    return log.rows.get_or(("recoveries", BALL), None)


def test_a_policy_counts_at_once_for_who_is_an_orphan_already(leased: Log) -> None:
    row = recovered_with(leased, "freeze")
    assert row["held"]
    for policy, held in (("adopt", False), ("freeze", True)):
        leased.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
        assert leased.rows.get_or(("recoveries", BALL), None) == row | {"held": held}
    leased.run("entity.change_rights", entity=BALL, by=ADA, orphans="despawn")
    for table in ("entities", "recoveries"):
        assert leased.rows.get_or((table, BALL), None) is None
    assert leased.rows.get_or(("tombstones", BALL), None)["epoch"] == 3


def test_what_was_found_before_the_policy_was_set_is_not_gone_on_with(leased: Log) -> None:
    recovered_with(leased, "adopt")
    (item,) = found()["items"]
    leased.run("entity.change_rights", entity=BALL, by=ADA, orphans="freeze")
    assert leased.run("recovery.finish", items=[item | {"held": False}]) == []
    assert leased.run("recovery.finish", items=[item | {"held": True}]) == [BALL]


@pytest.mark.parametrize("policy", ["freeze", "despawn"])
def test_a_policy_takes_nothing_from_who_has_been_told_to_go_on(leased: Log, policy: str) -> None:
    recovered_with(leased, "adopt")
    leased.run("recovery.finish", **found())
    leased.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
    assert leased.rows.entity(BALL).authority == S2
    assert not leased.rows.get_or(("recoveries", BALL), None)["held"]


def test_failures_row_42_a_server_that_comes_back_is_given_nothing_until_all_was_taken_from_it(leased: Log) -> None:
    claim = {"server": S1, "incarnation": 2, "nonce": "new"}
    leased.refuses(Reason.LEASE_HELD, "lease.claim", **claim, previous_nonce="guessed")
    assert leased.run("lease.claim", **claim, previous_nonce=S1)["phase"] == "returning"
    leased.refuses(Reason.TARGET_DOWN, "entity.create", entity="alpha.n", kind="ball", spawner=ADA, server=S1)
    assert leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]]) == [BALL]
    leased.swept(S1)
    assert leased.run("recovery.finish", **found(target=S1)) == [BALL]
    assert leased.rows.entity(BALL).fence == Fence(3), "epochs only rise"


# --- a takeover against an authority that does not know of it ---------------------------------------------------------


@dataclass
class Rules:
    """What a mutant does not keep to."""

    raises_first: bool = True
    follower_refuses: bool = True
    waits_for_all: bool = True


@dataclass
class Takeover:
    """One authority that still sends copies, two followers, and a takeover in its steps.

    The authority may be dead to the log and alive on the network: its copies arrive at any time. What a follower says
    to have kept is `durable`, and what is gone on with must not be behind that.
    """

    rules: Rules
    tables: list[CopyTable] = field(default_factory=lambda: [CopyTable(1000, 10), CopyTable(1000, 10)])
    tick: int = 0
    durable: int = 0
    raised: bool = False
    answers: dict[int, Copy | None] = field(default_factory=dict)
    gone_on_from: int | None = None

    def send(self, follower: int) -> None:
        self.tick += 1
        table = self.tables[follower]
        new = copy(1, self.tick)
        offer = table.offer if self.rules.follower_refuses else table.keep
        kept = offer(BALL, new, self.tick)
        if kept:
            self.durable = self.tick

    def raise_fence(self) -> None:
        self.raised = True

    def collect(self, follower: int) -> None:
        if self.raised or not self.rules.raises_first:
            if self.raised:
                self.tables[follower].raised(BALL, Fence(2))
            self.answers.setdefault(follower, self.tables[follower].get(BALL))

    def decide(self) -> None:
        if self.gone_on_from is None and self.raised and (len(self.answers) == 2 or not self.rules.waits_for_all):
            found = [one for one in self.answers.values() if one is not None]
            if found:
                self.gone_on_from = max(one.tick for one in found)


def run(rules: Rules, seed: int) -> None:
    dice, model = Random(seed), Takeover(rules)
    steps: list[Callable[[], None]] = [
        lambda: model.send(dice.randrange(2)),
        lambda: model.collect(dice.randrange(2)),
        model.decide,
    ]
    for number in range(40):
        if number == 10:
            model.raise_fence()
        dice.choice(steps)()
        if model.gone_on_from is not None:
            assert model.gone_on_from >= model.durable, f"seed {seed}: durable state is lost"


MUTANTS = {
    "copies-are-read-before-the-fence-is-raised": Rules(raises_first=False),
    "a-follower-keeps-copies-under-lower-fences": Rules(follower_refuses=False),
    "not-everybody-is-waited-for": Rules(waits_for_all=False),
}


def _runs(rules: Rules) -> None:
    for seed in range(2000):
        run(rules, seed)


def test_nothing_durable_is_lost_in_a_takeover() -> None:
    _runs(Rules())


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_of_takeovers_that_is_missing_is_found(mutant: str) -> None:
    with pytest.raises(AssertionError, match="durable"):
        _runs(MUTANTS[mutant])
