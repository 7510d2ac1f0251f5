"""What is wrong with a message of a client is said by the member at fault, at either door."""

from pathlib import Path
from typing import Any, Final

import cbor2
import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.door import (
    MAX_DOOR_MESSAGE_BYTES,
    MAX_HAVE,
    MAX_HOME_MESSAGE_BYTES,
    DoorHave,
    DoorHello,
    HomeWord,
    decode_from_client_untrusted,
    encode_door,
)
from batonpass.authority.wire.home_door import decode_from_home_client_untrusted

ROOT: Final = Path(__file__).parents[3]
HELLO: dict[str, Any] = {"type": "hello", "version": 1}
DECODERS = [decode_from_client_untrusted, decode_from_home_client_untrusted]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    ("message", "named"),
    [
        (HELLO | {"proof": b""}, "hello.proof: "),
        (HELLO | {"token": ""}, "hello.token: "),
        (HELLO | {"version": "1"}, "hello.version: "),
        (HELLO | {"more": 1}, "hello.more: "),
        ({"type": "hello"}, "hello.version: "),
        ({"type": "hallo"}, "'hallo'"),
        ([1], "dictionary"),
    ],
    ids=str,
)
def test_the_member_at_fault_is_named(decode: Any, message: Any, named: str) -> None:
    with pytest.raises(MessageError) as why:
        decode(cbor2.dumps(message))
    assert named in str(why.value)
    assert len(str(why.value)) < 400


@pytest.mark.parametrize("decode", DECODERS)
def test_a_message_is_one_value_and_nothing_after_it(decode: Any) -> None:
    data = cbor2.dumps(HELLO)
    assert decode(data) == DoorHello(version=1)
    assert data.hex() == "a2647479706565" + "68656c6c6f6776657273696f6e01", "as docs/reference/players-door.md has it"
    for wrong in (data + b"\0", data + data, data[:-1], b"", cbor2.dumps(cbor2.CBORTag(55799, HELLO))):
        with pytest.raises(MessageError, match="one CBOR value"):
            decode(wrong)


def test_at_a_players_door_nothing_but_a_word_for_home_is_long() -> None:
    word = HomeWord(data=bytes(MAX_HOME_MESSAGE_BYTES))
    assert decode_from_client_untrusted(encode_door(word)) == word
    for message in (HELLO | {"proof": "a" * MAX_DOOR_MESSAGE_BYTES}, {"type": "home", "data": bytes(66_000)}):
        with pytest.raises(MessageError, match="longer than"):
            decode_from_client_untrusted(cbor2.dumps(message))


def test_what_a_client_has_is_three_numbers_of_each_topic() -> None:
    have = DoorHave(topics=[[1, 41, 32]])
    page = (ROOT / "docs" / "reference" / "players-door.md").read_text(encoding="utf-8")
    assert f"`{encode_door(have).hex()}`" in page, "as docs/reference/players-door.md has it"
    assert decode_from_client_untrusted(encode_door(have)) == have
    most = DoorHave(topics=[[2**53 - 1] * 3] * MAX_HAVE)
    assert len(encode_door(most)) <= MAX_DOOR_MESSAGE_BYTES
    for wrong in ([[1, 2]], [[1, 2, -1]], [[1, 2, 2**53]], [1], [[1, 2, 3.0]], [[1, 2, 3]] * (MAX_HAVE + 1)):
        with pytest.raises(MessageError, match=r"have\.topics"):
            decode_from_client_untrusted(cbor2.dumps({"type": "have", "topics": wrong}))
