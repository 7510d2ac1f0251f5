"""What has been answered to whom, kept in etcd beside the tree: a command submitted twice applies once.

The same memory as `tree.machine.sessions`, with the same promises, in a form that costs little in a store of keys.
Answers are kept in *chunks*: one value holds some answers to one client and is rewritten while it is small. Forgetting
takes whole chunks, those with the lowest numbers first, and numbers up to the highest forgotten one are refused ever
after. Of the clients, the one that has not been answered for the longest goes first.

`plan` says what would have to be written; `take` is told what was. Nothing is remembered that etcd has not accepted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.etcd.keys import EtcdKeys, prefix_end
from batonpass.tree.etcd.wire import Delete, EtcdPut, Operation

__all__ = ["MAX_CHUNK_ANSWERS", "MAX_CHUNK_BYTES", "MAX_DELETES", "Answered", "Answers"]

MAX_CLIENTS: Final = 4096
# More than one client can have outstanding, so a live retry always finds its answer.
MAX_ANSWERS: Final = 1024
# Of one client, and of all: etcd keeps 2 GiB by default, with everything's past.
MAX_CLIENT_BYTES: Final = 4 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
# Rewriting a chunk writes its older answers again: worth it only while they are few and small.
MAX_CHUNK_ANSWERS: Final = 16
MAX_CHUNK_BYTES: Final = 2048
# How many operations one plan spends on forgetting; what is too much then goes with the next ones.
MAX_DELETES: Final = 16

Answered = tuple[str, int, bytes]  # client, number, encoded answer


@dataclass(slots=True)
class _Chunk:
    answers: dict[int, bytes]
    forgotten_up_to: int
    size_bytes: int

    @property
    def takes_more(self) -> bool:
        return len(self.answers) < MAX_CHUNK_ANSWERS and self.size_bytes < MAX_CHUNK_BYTES


@dataclass(slots=True)
class _EtcdClientAnswers:
    chunks: dict[int, _Chunk] = field(default_factory=dict)
    by_number: dict[int, bytes] = field(default_factory=dict)
    size_bytes: int = 0
    forgotten_up_to: int = -1
    newest: int = -1  # which chunk was written last
    used_at_revision: int = 0


class Answers:
    """The answers to all clients, as etcd has them."""

    def __init__(self, keys: EtcdKeys) -> None:
        self._keys: Final = keys
        self._clients: dict[str, _EtcdClientAnswers] = {}  # the longest unused first
        self._size_bytes = 0

    def remembered(self, client: str, number: int) -> bytes | None:
        """The answer given to this command, or None."""
        known = self._clients.get(client)
        return None if known is None else known.by_number.get(number)

    def is_forgotten(self, client: str, number: int) -> bool:
        """Whether this command may have been answered and forgotten."""
        known = self._clients.get(client)
        return known is not None and number <= known.forgotten_up_to and number not in known.by_number

    # --- writing --------------------------------------------------------------------------------------------------

    def plan(self, answered: Iterable[Answered]) -> list[Operation]:
        """What makes etcd remember these new answers, and forget what is too much.

        One put for each client, and at most `MAX_DELETES` deletes.
        """
        by_client: dict[str, dict[int, bytes]] = {}
        for client, number, answer in answered:
            by_client.setdefault(client, {})[number] = answer
        operations: list[Operation] = []
        freed_bytes = added_bytes = deleted = 0
        for client, new in by_client.items():
            added_bytes += sum(map(len, new.values()))
            put, deletes, freed = self._plan_for(client, new, MAX_DELETES - deleted)
            operations += [put, *deletes]
            deleted += len(deletes)
            freed_bytes += freed
        size_bytes = self._size_bytes + added_bytes - freed_bytes
        return operations + self._plan_clients(by_client, size_bytes, MAX_DELETES - deleted)

    def _plan_for(self, client: str, new: dict[int, bytes], max_deletes: int) -> tuple[EtcdPut, list[Delete], int]:
        known = self._clients.get(client) or _EtcdClientAnswers()
        newest = known.chunks.get(known.newest)
        together = dict(new) if newest is None or not newest.takes_more else {**newest.answers, **new}
        first = known.newest if newest is not None and newest.takes_more else min(new)
        forgotten_up_to, freed_bytes, deletes = known.forgotten_up_to, 0, list[Delete]()
        count, size_bytes = len(known.by_number) + len(new), known.size_bytes + sum(map(len, new.values()))
        for old in sorted(known.chunks):
            enough = count <= MAX_ANSWERS and size_bytes - freed_bytes <= MAX_CLIENT_BYTES
            if enough or old == first or len(deletes) >= max_deletes:
                break
            chunk = known.chunks[old]
            count -= len(chunk.answers)
            freed_bytes += chunk.size_bytes
            forgotten_up_to = max(forgotten_up_to, *chunk.answers)
            deletes.append(Delete(self._keys.answers(client, old)))
        value = encode([forgotten_up_to, [[number, answer] for number, answer in sorted(together.items())]])
        return EtcdPut(self._keys.answers(client, first), value), deletes, freed_bytes

    def _plan_clients(self, answered: Iterable[str], size_bytes: int, max_deletes: int) -> list[Operation]:
        """Forget the longest unused clients while there are too many, or too much of them."""
        used = set(answered)
        count = len(self._clients) + len(used - self._clients.keys())
        operations: list[Operation] = []
        for client, known in self._clients.items():
            if (count <= MAX_CLIENTS and size_bytes <= MAX_TOTAL_BYTES) or len(operations) >= max_deletes:
                break
            if client not in used:
                prefix = self._keys.answers_of(client)
                operations.append(Delete(prefix, prefix_end(prefix)))
                count -= 1
                size_bytes -= known.size_bytes
        return operations

    def changed_by(self, operations: Iterable[Operation]) -> list[tuple[str, int, bytes | None]]:
        """What `take_untrusted` has to be told when etcd has done what was planned: client, first number, value."""
        changed: list[tuple[str, int, bytes | None]] = []
        for operation in operations:
            if isinstance(operation, EtcdPut):
                client, first = self._keys.read_answers(operation.key) or ("", 0)
                changed.append((client, first, operation.value))
            elif operation.end is None:
                client, first = self._keys.read_answers(operation.key) or ("", 0)
                changed.append((client, first, None))
            else:
                forgotten = self._keys.read_client(operation.key)
                changed += [(forgotten, first, None) for first in self._clients[forgotten].chunks]
        return changed

    # --- what etcd accepted ---------------------------------------------------------------------------------------

    def take_untrusted(self, client: str, first: int, value: bytes | None, revision: int) -> None:
        """A chunk was written, or deleted (None), at this revision of etcd's; raises `BadData`."""
        chunk = None if value is None else _read_chunk_untrusted(value)
        known = self._clients.setdefault(client, _EtcdClientAnswers())
        self._drop(known, first)
        if chunk is not None:
            self._keep(known, first, chunk, revision)
            if revision >= known.used_at_revision:
                known.used_at_revision = revision
                self._clients[client] = self._clients.pop(client)
        if not known.chunks:
            del self._clients[client]

    def order_by_use(self) -> None:
        """Bring the clients into the order of their last use, after they were read in the order of their names."""
        self._clients = dict(sorted(self._clients.items(), key=lambda item: (item[1].used_at_revision, item[0])))

    def _keep(self, known: _EtcdClientAnswers, first: int, chunk: _Chunk, revision: int) -> None:
        known.chunks[first] = chunk
        known.by_number |= chunk.answers
        known.size_bytes += chunk.size_bytes
        self._size_bytes += chunk.size_bytes
        known.forgotten_up_to = max(known.forgotten_up_to, chunk.forgotten_up_to)
        if revision >= known.used_at_revision:
            known.newest = first

    def _drop(self, known: _EtcdClientAnswers, first: int) -> None:
        chunk = known.chunks.pop(first, None)
        if chunk is not None:
            known.size_bytes -= chunk.size_bytes
            self._size_bytes -= chunk.size_bytes
            for number in chunk.answers:
                known.by_number.pop(number, None)

    def to_data(self) -> list[object]:
        """Everything as plain data, for comparing two processes."""
        return [
            [client, known.forgotten_up_to, sorted(known.by_number.items())]
            for client, known in sorted(self._clients.items())
        ]


def _read_chunk_untrusted(value: bytes) -> _Chunk:
    match decode_untrusted(value):
        case [int(forgotten_up_to), list(rows)]:
            answers: dict[int, bytes] = {}
            for row in rows:
                match row:
                    case [int(number), bytes(answer)]:
                        answers[number] = answer
                    case _:
                        raise BadData("not an answer in a chunk of answers")
            return _Chunk(answers, forgotten_up_to, sum(map(len, answers.values())))
        case _:
            raise BadData("not a chunk of answers")
