"""Who may stand for election: only who was promised the votes of a majority that hears no leader."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from batonpass.tree.raft.elections import Candidacy
from batonpass.tree.raft.raft_elections import RaftElections

OTHERS = ("h1", "h2", "h3", "h4")


def test_a_leader_that_spoke_lately_is_the_leader_until_the_shortest_election_timeout_is_over() -> None:
    candidacy = Candidacy(election_min_s=0.6)
    assert not candidacy.has_live_leader(10.0)
    candidacy.heard_from_leader(10.0)
    assert candidacy.has_live_leader(10.5)
    assert not candidacy.has_live_leader(10.7)
    exact = Candidacy(election_min_s=0.5)
    exact.heard_from_leader(10.0)
    assert not exact.has_live_leader(10.5)
    candidacy.heard_from_leader(11.0)
    candidacy.lost_leader()
    assert not candidacy.has_live_leader(11.0), "a connection that broke need not fall silent first"


@pytest.mark.parametrize(("others", "needed"), [(OTHERS[:1], 1), (OTHERS[:2], 1), (OTHERS[:3], 2), (OTHERS, 2)])
def test_a_majority_of_all_voters_must_grant_it(others: tuple[str, ...], needed: int) -> None:
    candidacy = Candidacy(0.6)
    candidacy.ask(5)
    grants = [candidacy.take_grant(name, 5, others) for name in others[:needed]]
    assert grants == [False] * (needed - 1) + [True]
    assert candidacy.may_stand(5)
    assert not candidacy.may_stand(6)


def test_grants_of_the_same_member_of_strangers_and_of_other_terms_do_not_count() -> None:
    candidacy = Candidacy(0.6)
    assert not candidacy.take_grant("h1", 5, OTHERS), "nobody asked"
    candidacy.ask(5)
    assert candidacy.is_asking_for(5)
    assert not candidacy.is_asking_for(4)
    assert not candidacy.take_grant("h1", 5, OTHERS)
    assert not candidacy.take_grant("h1", 5, OTHERS)
    assert not candidacy.take_grant("h9", 5, OTHERS)
    assert not candidacy.take_grant("h2", 4, OTHERS)
    assert not candidacy.may_stand(5)


def test_hearing_from_a_leader_ends_what_was_begun() -> None:
    candidacy = Candidacy(0.6)
    candidacy.ask(5)
    candidacy.take_grant("h1", 5, OTHERS[:2])
    candidacy.heard_from_leader(1.0)
    assert not candidacy.may_stand(5)
    assert not candidacy.is_asking_for(5)


def test_after_an_election_that_nobody_won_the_next_attempt_is_soon_and_then_later() -> None:
    candidacy = Candidacy(0.6)
    waits = []
    for _ in range(12):
        candidacy.ask(5)
        waits.append(candidacy.stood())
        assert not candidacy.may_stand(5), "each attempt needs new grants"
    assert waits[0] == (0.15, 0.3)
    assert waits[1] == (0.3, 0.6)
    assert waits[-1] == (0.6, 1.2)
    candidacy.heard_from_leader(1.0)
    assert candidacy.stood() == waits[0]


def test_a_reluctant_member_leaves_it_to_the_others_and_stands_when_none_of_them_does() -> None:
    candidacy = Candidacy(0.6)
    assert not candidacy.holds_back(10.0)
    candidacy.reluctant = True
    assert candidacy.holds_back(10.0)
    assert candidacy.holds_back(12.3)
    assert not candidacy.holds_back(12.5), "somebody has to"
    candidacy.heard_from_leader(13.0)
    assert candidacy.holds_back(14.0), "that another one leads meanwhile has it wait anew"
    candidacy.reluctant = False
    assert not candidacy.holds_back(14.0)


@dataclass(frozen=True)
class Voter:
    """Another member, as PySyncObj names it."""

    id: str


class Candidate:
    """A member that stands for election, of which only what it does with votes is real: those that it `counted`."""

    def __init__(self, *others: str) -> None:
        self.counted: list[tuple[str, int]] = []
        self._granted: tuple[int, set[str]] = (0, set())
        self._SyncObj__otherNodes = {Voter(name) for name in others}

    def _SyncObj__onMessageReceived(self, node: Voter, message: dict[str, int]) -> None:  # noqa: N802
        self.counted.append((node.id, message["term"]))

    def is_voted_for(self, name: str, term: int) -> None:
        message = {"type": "response_vote", "term": term}
        RaftElections._receive_vote(cast(Any, self), cast(Any, Voter(name)), message)


def test_a_vote_of_a_member_counts_once_in_each_term_and_one_of_any_other_name_never() -> None:
    """PySyncObj counts what it is given: three votes of one member would be a majority of five."""
    candidate = Candidate("h2", "h3")
    for name, term in [("h2", 4), ("h2", 4), ("stranger", 4), ("h3", 4), ("h3", 4), ("h2", 5), ("h2", 5)]:
        candidate.is_voted_for(name, term)
    assert candidate.counted == [("h2", 4), ("h3", 4), ("h2", 5)]
