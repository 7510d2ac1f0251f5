"""How each kind of fault is done to an instance, and how it is healed: the table.

Each is an asynchronous context: entering it strikes and yields a few words that say whom, leaving it heals. A fault
calls `Stage.strike` at the moment from which the instance has to do without; the time to the next accepted write is
counted from there.
"""

from collections.abc import Mapping
from typing import Final

from batonpass.scenarios.chaos import changing, cutting, killing, spoiling
from batonpass.scenarios.chaos.plan import Kind
from batonpass.scenarios.chaos.stage import Fault

__all__ = ["FAULTS", "Fault"]

FAULTS: Final[Mapping[Kind, Fault]] = {
    Kind.KILL_LEADER: killing.kill_leader,
    Kind.KILL_FOLLOWER: killing.kill_follower,
    Kind.KILL_MAJORITY: killing.kill_majority,
    Kind.KILL_ALL: killing.kill_all,
    Kind.STOP_LEADER: killing.stop_leader,
    Kind.STOP_FOLLOWER: killing.stop_follower,
    Kind.ISOLATE_LEADER: cutting.isolate_leader,
    Kind.ISOLATE_FOLLOWER: cutting.isolate_follower,
    Kind.SPLIT: cutting.split,
    Kind.CUT_PAIR: cutting.cut_pair,
    Kind.CUT_ONE_WAY: cutting.cut_one_way,
    Kind.TEAR_JOURNAL: spoiling.tear_journal,
    Kind.CORRUPT_JOURNAL: spoiling.corrupt_journal,
    Kind.POWER_CUT: spoiling.power_cut,
    Kind.POWER_CUT_ALL: spoiling.power_cut_all,
    Kind.DISK_FULL: spoiling.disk_full,
    Kind.TRANSFER_LEADERSHIP: changing.transfer_leadership,
    Kind.REPLACE_MEMBER: changing.replace_member,
    Kind.REPLACE_AND_KILL: changing.replace_and_kill,
    Kind.ADD_AND_REMOVE: changing.add_and_remove,
}
