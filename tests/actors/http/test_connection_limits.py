"""Who has a place where anybody may knock: who dawdles makes room, and a crowd of one address costs that address."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.actors.http.connection_limits import Admitted, ConnectionLimits
from batonpass.actors.link.strangers import place_of


def test_there_is_room_until_there_is_none() -> None:
    crowd = ConnectionLimits(2, 2)
    assert crowd.enter("a", "1") == crowd.enter("b", "2") == Admitted(is_in=True)
    assert crowd.enter("c", "3") == Admitted(is_in=True, instead_of="a")
    assert len(crowd) == 2


def test_whoever_works_stays_and_the_newest_is_sent_away_when_all_work() -> None:
    crowd = ConnectionLimits(2, 2)
    for who in "ab":
        crowd.enter(who, who)
        crowd.works(who)
    assert crowd.enter("c", "3") == Admitted(is_in=False)
    crowd.waits("b")
    assert crowd.enter("c", "3") == Admitted(is_in=True, instead_of="b")


def test_an_address_that_has_all_that_is_its_makes_room_for_itself() -> None:
    crowd = ConnectionLimits(10, 2)
    crowd.enter("honest", "1")
    for number in range(20):
        crowd.enter(number, "2")
    assert len(crowd) == 3
    assert crowd.enter(20, "2") == Admitted(is_in=True, instead_of=18)
    for number in (19, 20):
        crowd.works(number)
    assert crowd.enter(21, "2") == Admitted(is_in=False), "all of that address work"
    assert crowd.enter("another", "3") == Admitted(is_in=True)


def test_of_many_addresses_with_one_connection_each_the_one_that_has_waited_longest_goes() -> None:
    crowd = ConnectionLimits(3, 3)
    for number in range(3):
        crowd.enter(number, f"10.0.0.{number}")
    crowd.waits(0)
    assert crowd.enter("new", "10.0.1.1").instead_of == 1


@given(honest_needs=st.integers(1, 90), most=st.integers(100, 600))
def test_whoever_sends_a_request_while_strangers_send_half_ones_gets_it_through(honest_needs: int, most: int) -> None:
    """However many they are: as long as fewer of them come meanwhile than there are places."""
    crowd = ConnectionLimits(most, most)
    for number in range(2 * most):
        crowd.enter(number, "10.0.0.1")
    assert crowd.enter("honest", "10.0.0.1").is_in
    for number in range(honest_needs):
        assert crowd.enter(-1 - number, "10.0.0.1").instead_of != "honest"
    crowd.works("honest")
    for number in range(2 * most):
        assert crowd.enter(("more", number), "10.0.0.1").instead_of != "honest"


class AnyCrowd(RuleBasedStateMachine):
    """Against the rule as one would say it: a list of who is in, in the order in which they began to wait."""

    @initialize(most=st.integers(1, 8), of_a_place=st.integers(1, 8))
    def open(self, most: int, of_a_place: int) -> None:
        self.most, self.of_a_place = most, of_a_place
        self.crowd = ConnectionLimits(most, of_a_place)
        self.places: dict[int, str] = {}
        self.waiting: list[int] = []
        self.came = 0

    def in_place(self, place: str) -> list[int]:
        return [who for who, where in self.places.items() if where == place]

    @rule(place=st.sampled_from(["1", "2", "3"]))
    def somebody_comes(self, place: str) -> None:
        self.came += 1
        admitted = self.crowd.enter(self.came, place)
        if len(self.in_place(place)) >= self.of_a_place:
            may_go = [who for who in self.waiting if self.places[who] == place]
        elif len(self.places) >= self.most:
            fullest = max((len(self.in_place(self.places[who])) for who in self.waiting), default=0)
            may_go = [who for who in self.waiting if len(self.in_place(self.places[who])) == fullest]
        else:
            assert admitted == Admitted(is_in=True)
            may_go = []
        full = len(self.in_place(place)) >= self.of_a_place or len(self.places) >= self.most
        if full:
            assert admitted == (Admitted(is_in=True, instead_of=may_go[0]) if may_go else Admitted(is_in=False))
        if admitted.instead_of is not None:
            self.forget(may_go[0])
        if admitted.is_in:
            self.places[self.came] = place
            self.waiting.append(self.came)

    def forget(self, who: int) -> None:
        self.places.pop(who)
        if who in self.waiting:
            self.waiting.remove(who)

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def one_waits_works_or_leaves(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.places)))
        match data.draw(st.sampled_from(["waits", "works", "leaves"])):
            case "waits":
                self.crowd.waits(who)
                self.waiting = [one for one in self.waiting if one != who] + [who]
            case "works":
                self.crowd.works(who)
                self.waiting = [one for one in self.waiting if one != who]
            case _:
                self.crowd.leave(who)
                self.forget(who)

    @rule(who=st.integers(-3, 0))
    def who_is_not_in_changes_nothing(self, who: int) -> None:
        self.crowd.waits(who)
        self.crowd.works(who)
        self.crowd.leave(who)

    @invariant()
    def never_more_than_there_is_room_for(self) -> None:
        if hasattr(self, "crowd"):
            assert len(self.crowd) == len(self.places) <= self.most
            assert all(len(self.in_place(place)) <= self.of_a_place for place in "123")


TestAnyCrowd = AnyCrowd.TestCase


def test_an_ipv6_network_of_64_bits_counts_as_one_address() -> None:
    assert place_of(("2001:db8::1", 1)) == place_of(("2001:db8::ffff", 2)) != place_of(("2001:db8:0:1::1", 1))
    assert place_of(("::ffff:10.0.0.1", 1)) == place_of(("10.0.0.1", 2))
