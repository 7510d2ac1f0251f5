"""How often one requester may ask: token buckets, with time as an argument.

Two buckets stand in the way of a player who floods its home (FAILURES row 4). One is in the log, for each entity and
requester: every request that the log takes costs a token, and what is refused for another reason costs nothing, because
a refusal changes nothing. Without it, a player under the rule `allow` could take an entity back the moment somebody
else has it, as fast as the log goes, and fill a master's questions anew as fast as they are answered. The other is for
each requester over all entities, at the member that it asks (`homeserver.request_gate`), before the log hears of it.

Tokens come back at a steady rate, up to a burst. The buckets are as in RFC 2697, with whole requests for bytes.
"""

from typing import Final, NamedTuple

from authority.errors import Reason, Refused

__all__ = ["BURST", "MAX_PACED", "REQUESTS_PER_S", "Pace", "Paces", "Rate", "spent", "spent_of"]

BURST: Final = 16
REQUESTS_PER_S: Final = 2.0
# Requesters of one entity that are remembered; the one who asked longest ago is forgotten first.
MAX_PACED: Final = 64


class Rate(NamedTuple):
    """How many requests may come at once, and how many a second after that."""

    burst: int
    per_s: float


Pace = list[float]
"""How many tokens somebody had, and when (seconds)."""
Paces = dict[str, Pace]
"""Of each requester of one entity, with Unix times."""

_OF_AN_ENTITY: Final = Rate(BURST, REQUESTS_PER_S)


def spent_of(pace: Pace | None, requester: str, now_s: float, rate: Rate) -> Pace:
    """The pace of a requester after one more request; None is that of one who has not asked yet.

    Raises:
        Refused: (`too_often`) there is no token now; `retry_after_s` says when there is one.
    """
    tokens, since_s = pace or (float(rate.burst), now_s)
    # A homeserver whose clock is behind gives nothing, and takes nothing back.
    tokens = min(float(rate.burst), tokens + max(0.0, now_s - since_s) * rate.per_s)
    if tokens < 1.0:
        after_s = (1.0 - tokens) / rate.per_s
        text = f"{requester} asked too often: again in {after_s:.1f} s"
        raise Refused(Reason.TOO_OFTEN, text, requester=requester, retry_after_s=after_s)
    return [tokens - 1.0, max(now_s, since_s)]


def spent(paces: Paces, requester: str, now_s: float) -> Paces:
    """The paces of an entity after one more request. Raises as `spent_of`."""
    paces = dict(paces)
    pace = spent_of(paces.pop(requester, None), requester, now_s, _OF_AN_ENTITY)
    if len(paces) >= MAX_PACED:
        del paces[min(paces, key=lambda name: (paces[name][1], name))]
    return {**paces, requester: pace}
