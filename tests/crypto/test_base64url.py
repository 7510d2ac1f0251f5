"""base64url: every text has one meaning, and every meaning one text."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto import base64url
from batonpass.crypto.errors import Malformed


@given(st.binary(max_size=80))
def test_bytes_come_back(data: bytes) -> None:
    text = base64url.encode(data)
    assert len(text) == base64url.encoded_chars(len(data))
    assert base64url.decode_untrusted(text) == data


@given(st.text("ABQRwxyz019-_=+/. \n", max_size=12).map(str.encode) | st.binary(max_size=12))
def test_another_spelling_is_malformed(text: bytes) -> None:
    try:
        data = base64url.decode_untrusted(text)
    except Malformed:
        return
    assert base64url.encode(data) == text
