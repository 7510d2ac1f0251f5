"""How each kind of fault is done to an instance, and how it is healed: the table.

Each is an asynchronous context: entering it strikes and yields a few words that say whom, leaving it heals. A fault
calls `Stage.strike` at the moment from which the instance has to do without. The time to the next accepted write is
counted from there.
"""

from collections.abc import Mapping
from typing import Final

from batonpass.scenarios.chaos import changing, cutting, killing, spoiling
from batonpass.scenarios.chaos.plan import FaultKind
from batonpass.scenarios.chaos.stage import Fault

__all__ = ["FAULTS", "Fault"]

FAULTS: Final[Mapping[FaultKind, Fault]] = {
    FaultKind.KILL_LEADER: killing.kill_leader,
    FaultKind.KILL_FOLLOWER: killing.kill_follower,
    FaultKind.KILL_MAJORITY: killing.kill_majority,
    FaultKind.KILL_ALL: killing.kill_all,
    FaultKind.STOP_LEADER: killing.stop_leader,
    FaultKind.STOP_FOLLOWER: killing.stop_follower,
    FaultKind.ISOLATE_LEADER: cutting.isolate_leader,
    FaultKind.ISOLATE_FOLLOWER: cutting.isolate_follower,
    FaultKind.SPLIT: cutting.split,
    FaultKind.CUT_PAIR: cutting.cut_pair,
    FaultKind.CUT_ONE_WAY: cutting.cut_one_way,
    FaultKind.TEAR_JOURNAL: spoiling.tear_journal,
    FaultKind.CORRUPT_JOURNAL: spoiling.corrupt_journal,
    FaultKind.POWER_CUT: spoiling.power_cut,
    FaultKind.POWER_CUT_ALL: spoiling.power_cut_all,
    FaultKind.DISK_FULL: spoiling.disk_full,
    FaultKind.TRANSFER_LEADERSHIP: changing.transfer_leadership,
    FaultKind.REPLACE_MEMBER: changing.replace_member,
    FaultKind.REPLACE_AND_KILL: changing.replace_and_kill,
    FaultKind.ADD_AND_REMOVE: changing.add_and_remove,
}
