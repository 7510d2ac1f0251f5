"""Which inputs an entity takes, what becomes of those that come while it is frozen, and what their sources are told.

The owner by the log gives inputs, under the revision of the ownership. An input that comes while the entity is frozen
waits in the journal, because its snapshot has been taken. It goes along with the entity, or is judged when that
resumes. So does word of another owner.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import UNTOLD, InputVerdict, Ownership, judge_input
from batonpass.authority.wire.transfer import InputAck, InputItem, NotOwner
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.inputs import EntityInbox, FreezeJournal, InputAdmission
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["InputAcceptance"]


class _Recipient(Protocol):
    """What of an entity its inputs have to do with."""

    id: str
    fence: Fence
    frozen: bool
    over: bool
    inbox: EntityInbox

    @property
    def tick(self) -> int:
        """How many ticks it has had."""

    @property
    def quarantine_reason(self) -> str:
        """Why it is not simulated; empty if it is."""

    def applied(self, source: str) -> int | None:
        """How many inputs of a source were applied; None if it is not known."""

    def wake(self) -> None:
        """It takes part in the next round."""

    def has(self, change: EntityChange) -> None:
        """Something but a tick has changed it."""


class InputAcceptance:
    """Of one entity, which each method is given, on this server."""

    __slots__ = ("_env", "_journal", "durable", "next_ownership", "ownership")

    def __init__(self, environment: EntityEnvironment, ownership: Ownership) -> None:
        self._env: Final = environment
        self.ownership = ownership
        self.next_ownership = UNTOLD
        """What was heard of its owner since the freeze, if that is news."""
        self.durable: Final[dict[str, int]] = {}
        """Up to which number the inputs of each source are in a copy."""
        self._journal: FreezeJournal | None = None

    # --- inputs ----------------------------------------------------------------------------------------------------

    def take(
        self, entity: _Recipient, source: str, owner_rev: int, seq: int, data: bytes, base: int = 0, floor: int = 0
    ) -> None:
        """An input arrived: it waits for the next tick, or in the journal; or it is counted and forgotten.

        Whether its source owns the entity is decided when it leaves the journal: the owner may change until then.
        """
        if entity.frozen:
            item = InputItem(source=source, owner_rev=owner_rev, seq=seq, data=data, base=base, floor=floor)
            self._journal = self._journal or FreezeJournal()
            if not self._journal.keep(item):
                self._env.count("input_journal_full")
            return
        verdict = judge_input(self.ownership, source, owner_rev)
        if verdict is not InputVerdict.ADMITTED:
            self._refuse(entity, source, seq, verdict)
            return
        admission = entity.inbox.offer(source, seq, data, base, floor)
        if entity.quarantine_reason or self.ownership.suspended:
            # Else a tick is to come, which says so.
            entity.has(EntityChange.ALTERED)
        if admission is InputAdmission.ACCEPTED:
            entity.wake()
            return
        self._env.count(f"input_{admission}")
        if admission in (InputAdmission.DUPLICATE, InputAdmission.GAP):
            # Its acknowledgement may have been lost, with the session of a server that is gone or with an actor. Or
            # inputs were lost with the last authority; then this number says from where on to give them again.
            self.acknowledge(entity, source, entity.applied(source) or 0)

    def _refuse(self, entity: _Recipient, source: str, seq: int, verdict: InputVerdict) -> None:
        self._env.count(f"input_{verdict}")
        applied = entity.applied(source)
        if applied is not None and seq <= applied:
            # A former owner asks whether what it gave will stay so.
            self.acknowledge(entity, source, applied)
        self._correct(entity, source, verdict)
        if verdict is InputVerdict.UNHEARD_OWNERSHIP:
            self._env.wants_word_of_owner(entity.id)

    def take_own(self, entity: _Recipient, data: bytes) -> int:
        """An input of the server that simulates the entity: its number, or 0 if the entity takes none at this moment.

        It needs no owner's leave, because the authority may change the entity anyway. It waits for the next tick, and
        moves along with a hand-over, as all inputs do; the commit feed has it, and `OwnInputAcks`. The numbers are the
        entity's: they continue wherever it goes, and fall back with it if a failover resumes an earlier state.
        """
        if entity.frozen or entity.over or entity.quarantine_reason or self.ownership.suspended:
            return 0
        cursor = entity.inbox.cursors.get(OWN_SOURCE)
        seq = 1 if cursor is None else cursor.accepted + 1
        admission = entity.inbox.offer(OWN_SOURCE, seq, data, base=seq - 1)
        if admission is not InputAdmission.ACCEPTED:
            self._env.count(f"input_{admission}")
            return 0
        entity.wake()
        return seq

    def take_all(self, entity: _Recipient, items: Iterable[InputItem]) -> None:
        """Several inputs arrived, in this order."""
        for item in items:
            self.take(entity, item.source, item.owner_rev, item.seq, item.data, item.base, item.floor)

    def take_journal(self) -> list[InputItem]:
        """The inputs that arrived since the freeze (or since the last `take_journal`)."""
        return [] if self._journal is None else self._journal.take()

    @property
    def waiting(self) -> Iterable[InputItem]:
        """Those that are in the journal."""
        return self._journal or ()

    def passed_over(self, entity: _Recipient, discarded: Iterable[PendingInput]) -> None:
        """These count as applied, in a tick of their own, in which the world did nothing."""
        for source, applied in entity.inbox.sources_of(discarded).items():
            self._env.count("input_discarded")
            self.acknowledge(entity, source, applied)

    # --- what sources are told -------------------------------------------------------------------------------------

    def acknowledge(self, entity: _Recipient, source: str, applied: int) -> None:
        """Tell a source how far it has been applied, and how much of that is durable."""
        durable = min(self.durable.get(source, 0), applied) if self._env.keeps_copies() else applied
        ack = InputAck(
            entity=entity.id,
            applied=applied,
            durable=durable,
            tick=entity.tick,
            epoch=entity.fence.epoch,
            sub=entity.fence.sub,
        )
        if source == OWN_SOURCE:
            self._env.own_inputs.tell(ack)
        else:
            self._env.acknowledge(source, ack)

    def made_durable(self, entity: _Recipient, applied: Mapping[str, int]) -> None:
        """A copy with the inputs `applied`, by source, is kept; sources for which that is news are told."""
        for source, upto in applied.items():
            done = entity.applied(source)
            if done is None:
                self.durable.pop(source, None)
            elif upto > self.durable.get(source, 0):
                self.durable[source] = upto
                self.acknowledge(entity, source, done)

    def _correct(self, entity: _Recipient, source: str, verdict: InputVerdict) -> None:
        """Tell a source that its inputs are refused, who owns the entity, and how far its own were applied."""
        correction = NotOwner(
            entity=entity.id,
            reason=verdict.value,
            owner=self.ownership.owner,
            owner_rev=self.ownership.rev,
            applied=entity.applied(source) or 0,
            epoch=entity.fence.epoch,
            sub=entity.fence.sub,
        )
        self._env.correct(source, correction)

    # --- who owns it -----------------------------------------------------------------------------------------------

    def owned(self, entity: _Recipient, ownership: Ownership) -> None:
        """The log's word of who owns it; what it says of an earlier revision than the known one is of the past.

        Inputs given under an earlier revision that no tick has applied are refused, so that none is applied after this.
        Those of a frozen entity are refused once it resumes, because its snapshot has been taken. Also those of who
        owned it before and owns it again. Perhaps they were refused in between by an authority that has died since, and
        these numbers mean other inputs by now.
        """
        if entity.over or not (ownership.succeeds(self.ownership) and ownership.succeeds(self.next_ownership)):
            return
        if ownership.is_half_told:
            # So do certificates and grants.
            self._env.wants_word_of_owner(entity.id)
        if entity.frozen:
            # Its snapshot has been taken, and is what it ends with here.
            self.next_ownership = ownership
        else:
            self._change_hands(entity, ownership)

    def hinted(self, entity: _Recipient, owner_rev: int) -> None:
        """Another server says that the log has another owner by this revision: home is asked, if that is news."""
        known = self.next_ownership if self.next_ownership.succeeds(self.ownership) else self.ownership
        if not entity.over and (owner_rev > known.rev or (owner_rev == known.rev and known.is_half_told)):
            self._env.wants_word_of_owner(entity.id)

    @property
    def unsaid_owner_rev(self) -> int:
        """By which revision its owner has changed since the freeze, so that its snapshot does not say it; or 0."""
        return self.next_ownership.rev if self.next_ownership.succeeds(self.ownership) else 0

    def resumed(self, entity: _Recipient) -> None:
        """It is not frozen any more: what has come since the freeze counts now."""
        if self.next_ownership.succeeds(self.ownership):
            self._change_hands(entity, self.next_ownership)
        journal, self._journal = self.take_journal(), None
        self.take_all(entity, journal)

    def _change_hands(self, entity: _Recipient, ownership: Ownership) -> None:
        self.ownership = ownership
        entity.wake()
        # What the server gave needs no owner's leave.
        for source in entity.inbox.withdraw(stays=OWN_SOURCE):
            is_owner = source == ownership.owner
            verdict = InputVerdict.STALE_OWNERSHIP if is_owner else InputVerdict.NOT_OWNER
            self._env.count(f"input_{verdict}")
            self._correct(entity, source, verdict)
        entity.has(EntityChange.ALTERED)
