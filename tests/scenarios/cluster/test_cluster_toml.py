"""What the TOML writer writes, the standard library's reader reads back."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.cluster.blueprint import to_toml

# Lone surrogates are not text; everything else is, control characters and DEL included.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.one_of(TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(TEXTS, VALUES, max_size=6))
def test_data_survives_the_round_trip(data: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(data)) == data


def test_it_is_written_for_people() -> None:
    data = {
        "rest": {"host": "127.0.0.1", "port": 8080},
        "name": "alpha.h1",
        "members": [{"name": "alpha.h1"}, {"name": "alpha.h2"}],
    }

    assert to_toml(data) == (
        'name = "alpha.h1"\n'
        "members = [\n"
        '  {name = "alpha.h1"},\n'
        '  {name = "alpha.h2"},\n'
        "]\n"
        "\n"
        "[rest]\n"
        'host = "127.0.0.1"\n'
        "port = 8080\n"
    )


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"a": None}, "a: a NoneType"),
        ({"world_options": {"b": [1, b"x"]}}, "world_options.b.1: a bytes"),
        ({"list": [{"x": object()}]}, "list.0.x: a object"),
    ],
)
def test_what_has_no_toml_form_is_refused_by_its_key(data: dict[str, object], where: str) -> None:
    with pytest.raises(TypeError, match=where):
        to_toml(data)
