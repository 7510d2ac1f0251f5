"""What can be wrong with something a stranger sent, one class each.

The first line of every docstring is the sentence a user reads; the message of a raised error adds the
offender and the remedy. All of them mean: drop it, count it, do not answer (an answer would be an oracle for
an attacker).
"""


class CryptoError(Exception):
    """Something could not be trusted."""


class Malformed(CryptoError):
    """This is not in the form batonpass writes; it was damaged, cut off, or made by something else."""


class Tampered(CryptoError):
    """The signature or the seal does not fit the contents: they were changed, or the key is not the sender's."""


class WrongReceiver(CryptoError):
    """This was sealed for another receiver; it may not be opened or acted on here."""


class UnknownSender(CryptoError):
    """The key this claims to be made with is not the key known for that sender; fetch the sender's keys
    again."""


class Expired(CryptoError):
    """This was valid once, and its time is over; ask the sender for a new one."""


class Replayed(CryptoError):
    """This has been opened here before; whatever it asks for has been done."""


class SeenFull(CryptoError):
    """Too many messages that are still valid were opened here to tell whether this one is new. Try again when some have
    expired, or raise the capacity.
    """


class Revoked(CryptoError):
    """The key this was made with, or for, has been revoked by its owner: its user may have stolen it."""


class KeyConflict(CryptoError):
    """The keys now shown for this server do not follow from those known for it. It has lost its keys, or a server in
    between lies.
    """


class KeyFileError(CryptoError):
    """The key files of this server cannot be used as they are."""
