"""The named steps of a hand-over: where a test may hold a server still (`actors.base.breakpoints`).

All of them, whichever server passes them. `BreakpointReached` takes no others, so that this is the list of what there
is: for each of them there is a trial between real processes, or a written reason why there is none
(`scenarios.chaos.ways`).
"""

from collections.abc import Callable
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from batonpass.authority.machines import source as outgoing

__all__ = ["BREAKPOINT_OF", "Breakpoint", "BreakpointReached"]


class Breakpoint(StrEnum):
    """A moment of a hand-over, between two instructions of a server."""

    # --- the old authority: an event has come, and nothing has followed from it ---
    STAGED = "staged"
    STAGE_REFUSED = "stage_refused"
    OVER_BUDGET = "over_budget"
    COMMITTED = "committed"
    REFUSAL = "refusal"
    LOST = "lost"
    PEER_ACTIVE = "peer_active"
    SUPERSEDED = "superseded"

    # --- the old authority: it has done this ---
    FROZEN = "frozen"
    SEND_STAGE = "send_stage"
    SEND_STATE = "send_state"
    ASK_HOME = "ask_home"
    SEND_DIRECT = "send_direct"
    SEND_ACTIVATE = "send_activate"
    FORWARD_JOURNAL = "forward_journal"
    RETIRE = "retire"
    REPORT = "report"
    ASK_ABORT = "ask_abort"
    SEND_DISCARD = "send_discard"
    RESUME = "resume"
    STEP_DOWN = "step_down"

    # --- the new authority ---
    STAGING = "staging"
    """It has a state in memory that is to be on its disk, in staged mode."""
    KEPT = "kept"
    """That state is on its disk, and it has not said so."""
    OFFERED = "offered"
    """It holds the state, in eager mode."""
    PERMITTED = "permitted"
    """It has a certificate, and has not acted on it."""
    ACTIVATED = "activated"
    ANSWERED = "answered"

    # --- a homeserver: about to put something to the log; the log has decided, and no other knows ---
    DECIDING = "deciding"
    DECIDED = "decided"
    GIVING_UP = "giving_up"
    GIVEN_UP = "given_up"
    REPORTING = "reporting"
    REPORTED = "reported"


BreakpointReached = Callable[[Breakpoint, str], None]
"""Told of a step and of the transfer whose it is."""


BREAKPOINT_OF: Final = MappingProxyType[type[outgoing.Event | outgoing.Effect], Breakpoint](
    {
        outgoing.StateStaged: Breakpoint.STAGED,
        outgoing.StageRefused: Breakpoint.STAGE_REFUSED,
        outgoing.OverBudget: Breakpoint.OVER_BUDGET,
        outgoing.TransferCommitted: Breakpoint.COMMITTED,
        outgoing.TransferRefused: Breakpoint.REFUSAL,
        outgoing.Lost: Breakpoint.LOST,
        outgoing.PeerActive: Breakpoint.PEER_ACTIVE,
        outgoing.Superseded: Breakpoint.SUPERSEDED,
        outgoing.SendStage: Breakpoint.SEND_STAGE,
        outgoing.SendState: Breakpoint.SEND_STATE,
        outgoing.AskHome: Breakpoint.ASK_HOME,
        outgoing.SendDirect: Breakpoint.SEND_DIRECT,
        outgoing.SendActivate: Breakpoint.SEND_ACTIVATE,
        outgoing.ForwardJournal: Breakpoint.FORWARD_JOURNAL,
        outgoing.Retire: Breakpoint.RETIRE,
        outgoing.ReportTransfer: Breakpoint.REPORT,
        outgoing.AskAbort: Breakpoint.ASK_ABORT,
        outgoing.SendDiscard: Breakpoint.SEND_DISCARD,
        outgoing.Resume: Breakpoint.RESUME,
        outgoing.StepDown: Breakpoint.STEP_DOWN,
    }
)
"""The step at which an event has come to the old authority's machine, or an effect of it has been performed.

`Tick` has none: time passes all the time.
"""
