"""Which servers take part in a show, as its controller knows them."""

from batonpass.authority.wire.shows import MAX_SHOW_NODES
from batonpass.simserver.sync.shows.nodes import SILENCE_NS, NodeTable, ShowPeer

OWN = ShowPeer(1, "127.0.0.1", 9, b"o" * 32)
KEY = b"k" * 32


def table() -> NodeTable:
    return NodeTable("alpha.s1", OWN)


def test_each_life_of_a_node_has_a_number_that_no_other_had() -> None:
    nodes = table()
    assert nodes.heard("alpha.s2", "127.0.0.1", 7, KEY, 0)
    assert nodes.heard("alpha.s3", "127.0.0.1", 8, KEY, 0)
    before = nodes.revision
    assert nodes.heard("alpha.s2", "127.0.0.1", 7, KEY, 1)
    assert nodes.revision == before
    assert nodes.heard("alpha.s2", "127.0.0.1", 7, b"n" * 32, 2)
    assert {name: peer.number for name, peer in nodes.peers.items()} == {"alpha.s1": 1, "alpha.s2": 4, "alpha.s3": 3}


def test_a_node_that_is_silent_is_forgotten_and_gets_a_new_number_when_it_is_back() -> None:
    nodes = table()
    nodes.heard("alpha.s2", "127.0.0.1", 7, KEY, 0)
    assert nodes.forget_silent(SILENCE_NS) == []
    assert nodes.forget_silent(SILENCE_NS + 1) == ["alpha.s2"]
    nodes.heard("alpha.s2", "127.0.0.1", 7, KEY, SILENCE_NS + 2)
    assert nodes.peers["alpha.s2"].number == 3


def test_no_node_is_taken_for_this_one_and_no_more_than_there_may_be() -> None:
    nodes = table()
    assert not nodes.heard("alpha.s1", "127.0.0.1", 7, KEY, 0)
    for number in range(2, MAX_SHOW_NODES + 10):
        nodes.heard(f"alpha.s{number}", "127.0.0.1", number, KEY, 0)
    assert len(nodes.peers) == MAX_SHOW_NODES
    assert nodes.peers["alpha.s1"] is OWN


def test_a_new_controller_knows_the_nodes_of_the_one_before() -> None:
    nodes = table()
    before = {"alpha.s1": OWN, "alpha.s2": ShowPeer(1, "h", 2, KEY), "alpha.s3": ShowPeer(7, "h", 3, KEY)}
    nodes.took_over(before, 5)
    assert {name: peer.number for name, peer in nodes.peers.items()} == {"alpha.s1": 1, "alpha.s2": 2, "alpha.s3": 3}
    assert nodes.forget_silent(5 + SILENCE_NS + 1) == ["alpha.s2", "alpha.s3"]
