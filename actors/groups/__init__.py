"""Groups of actors over nodes, and publishing to them (OTP's `pg`, Phoenix's PubSub).

Start reading with `groups` (what you use, and its guarantees) and `docs/explanation/actors.md` (an example). The rest:

=================  ================================================================================================
`membership`       who is in which group, here and as the other nodes tell it (pure)
`keeper`           the actor that speaks with its like on the other nodes
`presence`         who is where, with metadata
=================  ================================================================================================

Not here: names that mean one actor over nodes. A group may have any members, also none; who owns what is in the `tree`.
"""

from batonpass.actors.groups.groups import Groups, GroupsSpec
from batonpass.actors.groups.membership import GroupMonitor, JoinedGroup, LeftGroup
from batonpass.actors.groups.presence import Presence, PresenceDiff, Tracked

__all__ = ["GroupMonitor", "Groups", "GroupsSpec", "JoinedGroup", "LeftGroup", "Presence", "PresenceDiff", "Tracked"]
