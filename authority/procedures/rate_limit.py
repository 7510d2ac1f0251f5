"""How often one requester may ask: token buckets, with time as an argument.

Two buckets stand in the way of a player who floods its home (FAILURES row 4). One is in the log, for each entity and
requester: every request that the log takes costs a token, and what is refused for another reason costs nothing, because
a refusal changes nothing. Without it, a player under the rule `allow` could take an entity back the moment another
player has it, as fast as the log goes. And it could fill a master's questions anew as fast as they are answered. The
other is for each requester over all entities, at the member that it asks (`homeserver.transfer.rate_limit`), before the
log hears of it.

Tokens come back at a steady rate, up to a burst. The buckets are as in RFC 2697, with whole requests for bytes.

The buckets in the log go by the clock of whichever member takes the request, and these may differ. A clock that is a
little behind gives nothing, until it is where the last one was. One that is behind by more than `PATIENCE_S` would keep
a requester waiting for as long as the difference. It is given one token, and the bucket is remembered by both clocks
from then on. The time that passes by one of them counts for both, so that no player has it twice.
"""

from typing import Final, NamedTuple

from batonpass.authority.errors import Reason, Refused

__all__ = ["BURST", "MAX_PACED", "PATIENCE_S", "REQUESTS_PER_S", "Pace", "Paces", "Rate", "spent", "spent_of"]

BURST: Final = 16
REQUESTS_PER_S: Final = 2.0
# Requesters of one entity that are remembered; the one that asked longest ago is forgotten first.
MAX_PACED: Final = 64
# How far a clock may be behind the last one for its requesters to wait until it is there.
PATIENCE_S: Final = 60.0


class Rate(NamedTuple):
    """How many requests may come at once, and how many a second after that."""

    burst: int
    per_s: float


Pace = list[float]
"""How many tokens a player had, and when (seconds); and when by a clock far ahead of that one, if there was one."""
Paces = dict[str, Pace]
"""Of each requester of one entity, with Unix times."""

_OF_AN_ENTITY: Final = Rate(BURST, REQUESTS_PER_S)


def spent_of(pace: Pace | None, requester: str, now_s: float, rate: Rate) -> Pace:
    """The pace of a requester after one more request; None is that of one that has not asked yet.

    Raises:
        Refused: (`too_often`) there is no token now; `retry_after_s` says when there is one.
    """
    tokens, since_s, *others = pace or (float(rate.burst), now_s)
    ahead_s = others[0] if others else since_s
    if now_s < since_s - PATIENCE_S:
        tokens, since_s = max(1.0, tokens), now_s
    passed_s = now_s - (ahead_s if now_s >= ahead_s else since_s)
    # A homeserver whose clock is a little behind gives nothing, and takes nothing back.
    since_s, ahead_s = (at_s + max(0.0, passed_s) for at_s in (since_s, ahead_s))
    tokens = min(float(rate.burst), tokens + max(0.0, passed_s) * rate.per_s)
    if tokens < 1.0:
        after_s = (1.0 - tokens) / rate.per_s + max(0.0, -passed_s)
        text = f"{requester} asked too often: again in {after_s:.1f} s"
        raise Refused(Reason.TOO_OFTEN, text, requester=requester, retry_after_s=after_s)
    return [tokens - 1.0, since_s] if since_s == ahead_s else [tokens - 1.0, since_s, ahead_s]


def spent(paces: Paces, requester: str, now_s: float) -> Paces:
    """The paces of an entity after one more request. Raises as `spent_of`."""
    paces = dict(paces)
    pace = spent_of(paces.pop(requester, None), requester, now_s, _OF_AN_ENTITY)
    if len(paces) >= MAX_PACED:
        del paces[min(paces, key=lambda name: (paces[name][1], name))]
    return {**paces, requester: pace}
