"""What a client says of an address where no homeserver answers: whether something else does is told apart."""

import pytest
import trio

from batonpass.client import HomeFailure, connect, home_link


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is as good as a quick one."""
    monkeypatch.setattr(home_link, "CONNECT_S", 60.0)
    monkeypatch.setattr(home_link, "ASK_S", 60.0)


async def sentence_of(url: str) -> str:
    with pytest.raises(HomeFailure) as failed:
        async with connect(url):
            raise AssertionError("somebody is there")
    assert failed.value.code == "unreachable"
    return str(failed.value)


async def test_where_nothing_answers_it_asks_whether_the_homeserver_runs() -> None:
    with trio.socket.socket() as nobody:
        # A port that is reserved and at which nobody listens.
        await nobody.bind(("127.0.0.1", 0))
        told = await sentence_of(f"http://127.0.0.1:{nobody.getsockname()[1]}")
    assert told.endswith(": is it running, or busy?")


async def test_where_something_else_answers_it_asks_for_the_url_of_a_homeserver() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        told = await sentence_of(f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()
    assert told.endswith(": give the URL of a homeserver, not that of a simulation server or its door")
