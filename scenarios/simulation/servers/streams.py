"""Clients of event streams in a simulated cluster: all of them must be told one history, with all that they posted.

A client asks one server at a time, over the same network as all else. It keeps its events until they are acknowledged,
goes where it is sent, and asks another server when one does not answer.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.names import instance_of
from batonpass.simserver.sync.events.messages import PostedEvent, StreamEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["SimulatedStreamClients", "StreamAnswer", "StreamAsked", "StreamClient"]

_ASKS_EVERY_S: Final = (0.05, 0.3)
_PATIENCE_S: Final = 1.0
_POSTS_SHARE: Final = 0.15
_MOST: Final = 10
"""Events in one request."""


@dataclass(frozen=True, slots=True)
class StreamAsked:
    """A client's request on its way."""

    number: int
    stream: str
    request: StreamRequest


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """Its answer: a reply, or a refusal's code and where else to ask."""

    number: int
    reply: StreamReply | None
    code: str = ""
    url: str = ""


class StreamClient:
    """One client of one stream."""

    def __init__(self, cluster: "ServersCluster", entity: str, name: str) -> None:
        self.entity: Final = entity
        self.name: Final = name
        self.log: Final[list[StreamEvent]] = []
        self.sent = 0
        self.acked = 0
        self.known = 0
        self._cluster: Final = cluster
        self._incarnation: str | None = None
        self._number = 0
        self._asked_s = -_PATIENCE_S
        self._elsewhere()
        cluster.mail.join(name, self._take)
        self._later()

    def _later(self) -> None:
        self._cluster.schedule.after(self._cluster.dice.uniform(*_ASKS_EVERY_S), self._ask)

    def _ask(self) -> None:
        self._later()
        cluster = self._cluster
        now_s = cluster.schedule.now_s
        if now_s - self._asked_s < _PATIENCE_S:
            return
        if self._asked_s > 0:
            # It was not answered in time.
            self._elsewhere()
        if not cluster.players[0].resting and cluster.dice.random() < _POSTS_SHARE:
            self.sent += 1
        numbers = range(self.acked + 1, min(self.sent, self.acked + _MOST) + 1)
        events = tuple(PostedEvent("say", f"{self.name} {number}", number) for number in numbers)
        self._number, self._asked_s = self._number + 1, now_s
        request = StreamRequest(self.name, self.known, events, incarnation=self._incarnation)
        cluster.mail.send(self.name, self._server, StreamAsked(self._number, self._stream, request))

    def _elsewhere(self) -> None:
        self._server = self._cluster.dice.choice(self._cluster.servers_of(instance_of(self.entity)))
        self._stream = self.entity.partition(".stream-")[2]

    def _take(self, _sender: str, answer: Any) -> None:
        # Players are asked and told other things, and late answers to earlier requests are of the past.
        if not isinstance(answer, StreamAnswer) or answer.number != self._number or self._asked_s < 0:
            return
        self._asked_s = -_PATIENCE_S
        if answer.reply is not None:
            self._learn(answer.reply)
        elif answer.code == RefusalCode.ELSEWHERE:
            self._server, _, self._stream = answer.url.partition("/")
        else:
            self._elsewhere()

    def _learn(self, reply: StreamReply) -> None:
        judge = self._cluster.judge
        if not judge.was_set_back(self.entity) and (reply.reset or reply.tick < self.known):
            judge.violated("stream-went-back", f"{self.name} is told tick {reply.tick} and knows {self.known}")
        self._incarnation, self.known = reply.incarnation, reply.tick
        self.acked = max(self.acked, reply.acked)
        self.log.extend(reply.events)


class SimulatedStreamClients:
    """All of them, and what they must have in the end."""

    def __init__(self, cluster: "ServersCluster", entities: list[str]) -> None:
        self._cluster: Final = cluster
        each = range(cluster.mix.stream_clients)
        self.clients: Final = [StreamClient(cluster, one, f"client-{one[-1]}-{at}") for one in entities for at in each]

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log does nothing with streams but with other entities."""

    def unsettled(self) -> str:
        """What is not acknowledged yet, or what is wrong with what clients were told, in a sentence."""
        cluster = self._cluster
        judged = [
            one for one in self.clients if not (cluster.judge.was_set_back(one.entity) or cluster.left_out(one.entity))
        ]
        for client in judged:
            if client.acked < client.sent:
                return f"{client.name} waits for events {client.acked + 1} to {client.sent} to be acknowledged"
            mine = [event.body for event in client.log if event.body.startswith(f"{client.name} ")]
            if mine != [f"{client.name} {number}" for number in range(1, len(mine) + 1)]:
                return f"{client.name} was told of its own events: {mine}"
            if len(mine) < client.sent:
                return f"{client.name} was told of {len(mine)} of its {client.sent} events"
            first = next(one for one in judged if one.entity == client.entity)
            common = min(client.known, first.known)
            told = [[event for event in one.log if event.tick <= common] for one in (client, first)]
            if told[0] != told[1]:
                parting = next((pair for pair in zip(*told, strict=False) if pair[0] != pair[1]), "one has more")
                return f"{client.name} and {first.name} were told different histories: {parting}"
        return ""
