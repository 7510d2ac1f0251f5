"""Under which office a renewal may be granted that was heard under an earlier one: under none."""

from batonpass.authority.machines.lease import Granter, LeaseTerms

TERMS = LeaseTerms(6_000_000_000)
SERVER = "alpha.s1"


def granter_in_office(number: int) -> Granter:
    granter = Granter(TERMS)
    granter.took_office(number, 0)
    return granter


def test_a_renewal_that_was_heard_under_one_office_is_granted_under_no_other() -> None:
    granter = granter_in_office(3)
    assert granter.heard(SERVER, 1, 1, 10)
    assert granter.may_grant(SERVER, 1, 3)
    granter.took_office(4, 20)
    assert not granter.may_grant(SERVER, 1, 3), "what the log says may be of before the office was taken again"
    assert granter.may_grant(SERVER, 1, 4)


def test_a_granter_without_an_office_grants_nothing() -> None:
    granter = granter_in_office(3)
    assert granter.heard(SERVER, 1, 1, 10)
    granter.left_office()
    assert not granter.may_grant(SERVER, 1, 3)
    assert not granter.may_grant(SERVER, 1, 0)


def test_a_lease_that_is_to_end_is_granted_no_more() -> None:
    granter = granter_in_office(3)
    assert granter.heard(SERVER, 1, 1, 10)
    looks = range(0, 2 * TERMS.granter_ns, TERMS.granter_ns // 10)
    ending = [granter.overdue([(SERVER, 1)], now_ns) for now_ns in looks]
    assert (ending[0], ending[-1]) == ([], [(SERVER, 1)])
    assert not granter.may_grant(SERVER, 1, 3)
    assert not granter.heard(SERVER, 1, 2, looks[-1])
