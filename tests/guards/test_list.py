"""The list of guards is of the code as it stands: `make guards` removes each of them and runs its tests."""

import ast

import pytest

from tests.guards.guards import GUARDS, ROOT, Guard


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_where_the_list_says_and_can_be_removed(guard: Guard) -> None:
    text = (ROOT / guard.file).read_text(encoding="utf-8")
    without = guard.without(text)
    assert without != text
    ast.parse(without)
    for test in guard.tests:
        assert (ROOT / test.split("::")[0]).exists(), test


def test_a_guard_that_is_gone_is_missed() -> None:
    with pytest.raises(LookupError, match="has no such line"):
        GUARDS[0].without("nothing")
