"""Names say whom to ask: `instance.local`, in an alphabet that is safe in URLs, paths and headers."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.names import BadName, check_name, instance_of

LOCAL = st.text(string.ascii_letters + string.digits, min_size=1, max_size=1).flatmap(
    lambda first: st.text(string.ascii_letters + string.digits + "_-", max_size=63).map(lambda rest: first + rest)
)
INSTANCE = st.from_regex(r"[a-z][a-z0-9-]{0,15}", fullmatch=True, alphabet=string.ascii_lowercase + string.digits + "-")


@given(INSTANCE, LOCAL)
def test_a_qualified_name_names_its_instance(instance: str, local: str) -> None:
    name = f"{instance}.{local}"
    assert check_name(name) == name
    assert instance_of(name) == instance


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "alpha",
        "alpha.",
        ".s1",
        "Alpha.s1",
        "1alpha.s1",
        "alpha.s1.x",
        "alpha.-s1",
        "alpha/s1",
        "alpha.s 1",
        "alpha.s1\n",
        "älpha.s1",
        "alpha.ſ1",
        "a" * 17 + ".s1",
        "alpha." + "s" * 65,
    ],
)
def test_anything_else_is_refused_and_quoted(bad: str) -> None:
    with pytest.raises(BadName) as caught:
        check_name(bad)
    assert repr(bad[:80]) in str(caught.value)
    with pytest.raises(BadName):
        instance_of(bad)


@given(st.text())
def test_whatever_passes_is_of_the_plain_alphabet(text: str) -> None:
    try:
        check_name(text)
    except BadName:
        return
    assert set(text) <= set(string.ascii_letters + string.digits + "._-")
