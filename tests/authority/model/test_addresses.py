"""Which addresses can be registered, and what becomes of those of others that cannot be used."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.model.addresses import BadAddress, check_link, check_url, ip_version, with_usable_addresses
from batonpass.authority.model.records import DirectoryRow, Role


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "::1", "2001:db8::7", "fd00::1"])
def test_a_numeric_address_of_either_ip_version_is_usable(host: str) -> None:
    check_link(host, 7000)
    check_url(f"http://[{host}]:7000" if ":" in host else f"http://{host}:7000")
    assert ip_version(host) == (6 if ":" in host else 4)


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("localhost", "no numeric IP address"),
        ("", "no numeric IP address"),
        ("a" * 10**6, "no numeric IP address"),
        ("\ud800", "no numeric IP address"),
        ("010.0.0.1", "no numeric IP address"),
        ("0.0.0.0", "no address that others could send to"),
        ("::", "no address that others could send to"),
        ("224.0.0.1", "no address of one server"),
        ("ff02::1", "no address of one server"),
        ("255.255.255.255", "no address of one server"),
        ("240.0.0.1", "no address of one server"),
        ("fe80::1", "on one machine alone"),
        ("fe80::1%eth0", "on one machine alone"),
        ("::ffff:10.0.0.1", "give 10.0.0.1"),
    ],
)
def test_a_link_is_not_registered_where_nobody_could_send(host: str, sentence: str) -> None:
    with pytest.raises(BadAddress, match=sentence):
        check_link(host, 7000)


@pytest.mark.parametrize("port", [-1, 0, 9, 53, 123, 1023, 65536, 10**30])
def test_a_link_is_not_registered_at_the_port_of_a_service(port: int) -> None:
    with pytest.raises(BadAddress, match="no port for a link"):
        check_link("127.0.0.1", port)


@pytest.mark.parametrize("url", ["http://alpha.example.org:7100", "https://h1", "http://[::1]:1", "http://a_b:65535"])
def test_a_host_name_is_usable_in_a_url(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:80",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http://:80",
        "http://user:secret@127.0.0.1",
        "http://@127.0.0.1",
        "http://127.0.0.1/",
        "http://127.0.0.1/v1/secrets",
        "http://127.0.0.1?",
        "http://127.0.0.1#x",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:x",
        "http://[::1",
        "http://[::1]x",
        "http://0.0.0.0:80",
        "http://[::]:80",
        "http://255.255.255.255",
        "http://224.0.0.1",
        "http://a..b",
        "http://1.2.3.4.5",
        "http://-",
        "http://" + "a" * 250,
        "http://a b",
        "http://a\nb",
        "http://\ud800",
        "http://ä",
    ],
)
def test_what_is_no_base_of_a_servers_rest_is_refused(url: str) -> None:
    with pytest.raises(BadAddress):
        check_url(url)


@given(host=st.text(max_size=40), port=st.integers())
def test_whatever_is_said_to_be_a_link_is_checked_without_another_error(host: str, port: int) -> None:
    with suppress(BadAddress):
        check_link(host, port)


@given(url=st.one_of(st.text(max_size=60), st.from_regex(r"https?://[!-~]{0,40}", fullmatch=True)))
def test_whatever_is_said_to_be_a_url_is_checked_without_another_error(url: str) -> None:
    with suppress(BadAddress):
        check_url(url)


def row(**addresses: str | int) -> DirectoryRow:
    return DirectoryRow(name="beta.s1", role=Role.SIMSERVER, keys={"keys": []}, **addresses)  # type: ignore[arg-type]


def test_of_whom_others_speak_an_address_that_cannot_be_used_is_as_good_as_none() -> None:
    good = row(rest_url="http://10.0.0.1:1", link_host="10.0.0.1", link_port=7000)
    assert with_usable_addresses(good) == good
    assert with_usable_addresses(row()) == row()
    bad = with_usable_addresses(row(rest_url="http://u:p@x", link_host="0.0.0.0", link_port=70_000))
    assert (bad.rest_url, bad.link_host, bad.link_port) == ("", "", 0)
    half = with_usable_addresses(row(rest_url="http://10.0.0.1:1", link_host="name", link_port=7000))
    assert (half.rest_url, half.link_host, half.link_port) == ("http://10.0.0.1:1", "", 0)
