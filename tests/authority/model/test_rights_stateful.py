"""Rights in the log, against a dumb model: whatever anybody asks for, in any order, stale or twice.

Invariants: at most one owner; a refused request changes nothing (the log's stage checks that of every one); the
revision of a right rises exactly when the right changes; `deny` never asks the master, and `ask` asks it exactly once;
what a master has permitted holds as long as it is the master, without a break, and then the next one is asked.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from batonpass.authority.errors import Refused
from batonpass.authority.model.records import EntityRecord, Phase, Rule, Want
from tests.authority.log import ADA, BALL, BOB, S2, Log, new_log
from tests.budget import examples

EVE = "alpha.eve"
PLAYERS = st.sampled_from([ADA, BOB, EVE])
IDS = [f"transfer-{number}" for number in range(6)]
TRANSFERS = st.sampled_from(IDS)
# Also those under which a new master is asked again.
QUESTIONS = st.sampled_from([*IDS, *(f"{name}-anew" for name in IDS)])
# Mostly what it is, sometimes what it was.
STALE = st.sampled_from([None, None, 0, 1])


class Rights(RuleBasedStateMachine):
    """Three players and a ball."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.before: EntityRecord | None = None
        self.asked: dict[str, int] = {}
        self.answered: dict[str, int] = {}
        self.word_of: dict[str, int] = {}
        """Under which revision of the mastership a transfer was permitted by the master."""

    @initialize(kind=st.sampled_from(Rule))
    def begin(self, kind: Rule) -> None:
        self.log = new_log(kind.value)
        self.before = self.record

    @property
    def record(self) -> EntityRecord:
        return self.log.rows.entity(BALL)

    def attempt(self, procedure: str, **args: Any) -> Any:
        """Run it; a refusal leaves everything as it was (checked by `Log.run`) and has a code."""
        old = self.record
        try:
            answer = self.log.run(procedure, **args)
        except Refused:
            return None
        new = self.record
        for right in ("rule", "owner", "master", "locks"):
            changed = getattr(old, right) != getattr(new, right)
            assert getattr(new, f"{right}_rev") == getattr(old, f"{right}_rev") + changed, right
        return answer

    def rev(self, name: str, stale: int | None) -> dict[str, int]:
        return {} if stale is None else {name: getattr(self.record, name) - stale}

    @rule(who=PLAYERS, transfer=TRANSFERS, want=st.sampled_from(Want), stale=STALE, stay=st.booleans())
    def request(self, who: str, transfer: str, want: Want, stale: int | None, stay: bool) -> None:
        old, known = self.record, self.log.rows.transfer(transfer)
        args = {"transfer_id": transfer, "entity": BALL, "target": S2, "requester": who, "want": want.value}
        answer = self.attempt(
            "transfer.propose", **args, stay=stay, now_s=0.0, **self.rev("owner_rev", stale), binds_master=True
        )
        if answer is None or known is not None:
            assert self.record == old, "a refused request, or one said again, changes nothing"
            return
        if answer["phase"] == Phase.ASKED:
            assert (old.rule, want) == (Rule.ASK, Want.BY_RULE)
            assert who not in (old.owner, old.master)
            self.asked[transfer] = self.asked.get(transfer, 0) + 1
        elif stay:
            assert self.record.owner == who, "granted at once, in the order of the log"
        if who == old.master != old.owner and not stay:
            self.word_of[transfer] = old.master_rev
        if who not in (old.owner, old.master):
            assert old.rule is not Rule.DENY
            assert not old.locks
        if stale:
            raise AssertionError("a request that names a stale owner is refused")

    @rule(who=PLAYERS, transfer=QUESTIONS, allow=st.booleans(), stale=st.sampled_from([0, 0, 1]))
    def answer(self, who: str, transfer: str, allow: bool, stale: int) -> None:
        old, known = self.record, self.log.rows.transfer(transfer)
        args = {"transfer_id": transfer, "by": who, "allow": allow, "now_s": 0.0}
        answer = self.attempt("transfer.answer", **args, **self.rev("master_rev", stale))
        if answer is None:
            return
        if known is not None and known.phase is Phase.ASKED:
            assert not stale, "an answer under an earlier mastership is refused"
            if allow:
                self.word_of[transfer] = old.master_rev
        assert who == old.master
        assert known is not None
        if known.phase is Phase.ASKED:
            self.answered[transfer] = self.answered.get(transfer, 0) + 1
        if known.stay and allow and known.phase is Phase.ASKED:
            assert self.record.owner == known.requester

    @rule(who=PLAYERS, transfer=TRANSFERS)
    def cancel(self, who: str, transfer: str) -> None:
        known, old = self.log.rows.transfer(transfer), self.record
        if self.attempt("transfer.cancel", transfer_id=transfer, by=who) is not None:
            assert known is not None
            assert who in (known.requester, old.master)
            assert self.record == old

    @rule(who=PLAYERS, name=st.sampled_from(["dock", "cargo"]), lock=st.booleans(), stale=STALE)
    def lock(self, who: str, name: str, lock: bool, stale: int | None) -> None:
        old = self.record
        verb = "entity.lock" if lock else "entity.unlock"
        answer = self.attempt(verb, entity=BALL, by=who, name=name, **self.rev("locks_rev", stale))
        if answer is not None:
            assert not stale
            counts = [r.locks[name].count if name in r.locks else 0 for r in (old, self.record)]
            assert counts[1] - counts[0] == (1 if lock else -1)

    @rule(who=PLAYERS, if_wanted=st.booleans(), back=st.booleans(), stale=STALE)
    def give_up(self, who: str, if_wanted: bool, back: bool, stale: int | None) -> None:
        old = self.record
        verb = "entity.hand_back" if back else "entity.divest"
        args = {} if back else {"if_wanted": if_wanted, "now_s": 0.0}
        if self.attempt(verb, entity=BALL, by=who, **args, **self.rev("owner_rev", stale)) is not None:
            assert who == old.owner
            assert not stale
            assert self.record.owner == ((old.previous_owner or old.master) if back else "")

    @rule(
        who=PLAYERS,
        kind=st.none() | st.sampled_from(Rule),
        owner=st.none() | PLAYERS,
        master=st.none() | PLAYERS,
        stale=STALE,
    )
    def the_master_sets(
        self, who: str, kind: Rule | None, owner: str | None, master: str | None, stale: int | None
    ) -> None:
        old = self.record
        rights = {"rule": kind and kind.value, "owner": owner, "master": master}
        answer = self.attempt("entity.change_rights", entity=BALL, by=who, **rights, **self.rev("rule_rev", stale))
        assert (answer is not None) == (who == old.master and not stale)

    @rule(transfer=QUESTIONS)
    def the_holder_hands_over_and_it_comes_back(self, transfer: str) -> None:
        """A permitted move is committed under the rights as they are now, or refused and the fence raised."""
        old, known = self.record, self.log.rows.transfer(transfer)
        if known is None or known.phase is not Phase.PERMITTED:
            return
        args: dict[str, Any] = {"source": old.authority, "target": known.target, "epoch": old.epoch, "sub": old.sub}
        outcome = self.log.commit(transfer, **args)["outcome"]
        if outcome == "committed":
            assert self.record.owner == known.requester
            if known.want is not Want.FORCED:
                assert known.permit_owner_rev == old.owner_rev
                assert not old.locks or known.requester == old.owner
                assert self.word_of.get(transfer, old.master_rev) == old.master_rev
        else:
            refused = self.log.transfer(transfer)
            if refused.successor:
                assert (refused.reason, transfer in self.asked) == ("master_changed", True)
                assert self.log.transfer(refused.successor).phase is Phase.ASKED
                self.asked[refused.successor] = self.asked.get(refused.successor, 0) + 1
            assert (self.record.owner, self.record.authority) == (old.owner, old.authority)

    @invariant()
    def ask_costs_exactly_one_round_trip(self) -> None:
        assert all(count == 1 for count in self.asked.values())
        assert all(count == 1 and transfer in self.asked for transfer, count in self.answered.items())

    @invariant()
    def a_lock_has_a_holder_with_a_right(self) -> None:
        if self.before is not None:
            assert all(lock.count > 0 for lock in self.record.locks.values())


TestRights = Rights.TestCase
TestRights.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
