"""The JSON of strangers is read as RFC 8259 has it: to Python's own reader `1e400` is infinity."""

import ast
import math
from collections.abc import Callable, Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.crypto.errors import Malformed
from batonpass.crypto.json_numbers import finite_number
from batonpass.crypto.jws import json_object_untrusted
from batonpass.tree.etcd import wire
from batonpass.tree.etcd.wire import MalformedAnswer
from tests.budget import examples

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("actors", "authority", "crypto", "homeserver", "simserver", "tree", "batonpass/client")
READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "bodies and answers": read_json_untrusted,
    "headers and statements that are signed": json_object_untrusted,
    "answers of etcd": wire._json_untrusted,
}

# Modules that have Python's own reader read what another person wrote, with their hooks for numbers; and those in which
# it reads what this server itself wrote, into a directory that is its own or into the log.
STRICT: Final = {"actors/http/strict_json.py", "crypto/jws.py", "tree/etcd/wire.py"}
OWN: Final = {
    "crypto/key_store.py",
    "crypto/pin_file.py",
    "homeserver/rest/models.py",
    "simserver/entity/crash_guard.py",
    "simserver/entity/custody_log.py",
    "simserver/lease/keeper.py",
}
# Streams of events keep numbers beyond doubles on purpose, where no member is read that has one; dumps and recordings
# of games are read by the person whose game it is.
OTHERS: Final = {
    "simserver/sync/events/json_form.py",
    "simserver/sync/lockstep/desync.py",
    "simserver/sync/lockstep/follower.py",
    "simserver/sync/lockstep/recording.py",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400 + ".0", "2e308"])
def test_a_number_beyond_doubles_is_no_number(reader: Callable[[bytes], Any], number: str) -> None:
    with pytest.raises((JSONDecodeError, Malformed, MalformedAnswer)):
        reader(f'{{"a": [{number}]}}'.encode())


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_other_numbers_are_read_as_python_has_them(reader: Callable[[bytes], Any]) -> None:
    text = b'{"a": [1e308, -1.7976931348623157e308, 1e-400, -0.0, 0.1, 12]}'
    assert reader(text) == {"a": [1e308, -1.7976931348623157e308, 0.0, -0.0, 0.1, 12]}


@settings(max_examples=examples(200))
@given(st.floats(allow_nan=False))
def test_a_float_is_read_back_unless_it_is_infinite(value: float) -> None:
    if math.isinf(value):
        with pytest.raises(ValueError, match="beyond"):
            finite_number(repr(value))
    else:
        assert finite_number(repr(value)) == value


def readers_in(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Where Python's own reader is named."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="json"), attr="loads" | "load" | "JSONDecoder"):
                yield node
            case _:
                pass


def test_no_other_module_reads_json_by_itself() -> None:
    """`read_json_untrusted` is for it."""
    found = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if any(readers_in(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert found == STRICT | OWN | OTHERS
