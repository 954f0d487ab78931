"""Why a job is held, lost its machine, or was refused: data, put into words by whoever shows it.

A reason has a kind (what programs look at), a text (what exactly happened to this job), a hint (the way
out) and whether it heals by itself. Kinds of holds carry HTCondor's HoldReasonCode as their number, so that
scripts and policy expressions (`HoldReasonCode == 6`) mean the same here; kinds it does not have are
numbered from 2000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any


class Hold(IntEnum):
    """Why a job is held."""

    UNSPECIFIED = 0
    USER_REQUEST = 1
    JOB_POLICY = 3
    JOB_POLICY_UNDEFINED = 5
    START_FAILED = 6
    OUTPUT_FILE = 7
    INPUT_FILE = 8
    TRANSFER_OUTPUT = 12
    TRANSFER_INPUT = 13
    INITIAL_DIRECTORY = 14
    SUBMITTED_ON_HOLD = 15
    SPOOLING_INPUT = 16
    USER_LOG = 22
    NO_ACCOUNT = 23
    SYSTEM_POLICY = 26
    MISSED_DEFERRED_TIME = 28
    INPUT_TOO_LARGE = 32
    OUTPUT_TOO_LARGE = 33
    OUT_OF_RESOURCES = 34
    CHECKPOINT_FAILED = 36
    TIME_EXCEEDED = 46
    EXECUTION_TIME_EXCEEDED = 47
    TOO_MANY_STARTS = 2000
    MAPPED_FILE = 2001


#: Subcodes of OUT_OF_RESOURCES: those of HTCondor's own policies about memory and disk.
MEMORY_EXCEEDED, DISK_EXCEEDED = 102, 104


class Evict(StrEnum):
    """Why a job lost its machine before it ended."""

    OWNER_RETURNED = "owner_returned"
    BETTER_JOB = "better_job"
    USER_PRIORITY = "user_priority"
    URGENT_JOB = "urgent_job"
    VACATED = "vacated"
    DRAINED = "drained"
    MOVED = "moved"
    REQUEUED = "requeued"
    LEASE_ENDED = "lease_ended"
    MACHINE_LOST = "machine_lost"
    START_REFUSED = "start_refused"
    SHADOW_FAILED = "shadow_failed"


class Refuse(StrEnum):
    """Why a request was not carried out."""

    NO_RIGHT = "no_right"
    NOT_OWNER = "not_owner"
    NO_SUCH_JOB = "no_such_job"
    WRONG_STATE = "wrong_state"
    NO_GRANT = "no_grant"
    GRANT_USED = "grant_used"
    NO_MATCH = "no_match"
    SLOT_BUSY = "slot_busy"
    NO_ACCOUNT = "no_account"
    STORE_FULL = "store_full"


Kind = Hold | Evict | Refuse

# The advice for each kind, and whether it passes by itself. A kind that is missing here is a defect (and a test's).
_ADVICE: dict[Kind, tuple[str, bool]] = {
    Hold.UNSPECIFIED: ("release the job when the cause is gone", False),
    Hold.USER_REQUEST: ("release the job when it may run", False),
    Hold.JOB_POLICY: ("look at the job's hold expression, then release it", False),
    Hold.JOB_POLICY_UNDEFINED: ("the job's policy names an attribute it does not have: correct it", False),
    Hold.START_FAILED: ("mend what the reason names: the program must be there, runnable, and fit the machine", False),
    Hold.OUTPUT_FILE: ("check that the output's directory exists and may be written", False),
    Hold.INPUT_FILE: ("check that the input exists and may be read", False),
    Hold.TRANSFER_OUTPUT: ("check the space and the rights where the output goes, then release", False),
    Hold.TRANSFER_INPUT: ("check that the executable and every input can be read, then release", False),
    Hold.INITIAL_DIRECTORY: ("check that the initial directory exists and may be entered", False),
    Hold.SUBMITTED_ON_HOLD: ("release the job when it may run", False),
    Hold.SPOOLING_INPUT: ("it runs when all its files have come; remove it where its submit was broken off", False),
    Hold.USER_LOG: ("name a plain file that may be written as the log, then release", False),
    Hold.NO_ACCOUNT: ("ask the administrator whom you are mapped to on the machines", False),
    Hold.SYSTEM_POLICY: ("ask the administrator which rule of the pool the job meets", False),
    Hold.MISSED_DEFERRED_TIME: ("give it a later deferral_time or a larger deferral_window and submit it again", False),
    Hold.INPUT_TOO_LARGE: ("raise max_transfer_input_mb or send less", False),
    Hold.OUTPUT_TOO_LARGE: ("raise max_transfer_output_mb or write less", False),
    Hold.OUT_OF_RESOURCES: ("raise request_memory or request_disk, then release", False),
    Hold.CHECKPOINT_FAILED: ("mend what the reason names, or let the job do without checkpoints, then release", False),
    Hold.TIME_EXCEEDED: ("raise the allowed duration, then release", False),
    Hold.EXECUTION_TIME_EXCEEDED: ("raise the allowed execution time, then release", False),
    Hold.TOO_MANY_STARTS: ("mend what the last machine reported, then release", False),
    Hold.MAPPED_FILE: ("map only files that are read or written once, from the beginning to the end", False),
    Evict.OWNER_RETURNED: ("", True),
    Evict.BETTER_JOB: ("", True),
    Evict.USER_PRIORITY: ("", True),
    Evict.URGENT_JOB: ("", True),
    Evict.VACATED: ("", True),
    Evict.DRAINED: ("", True),
    Evict.MOVED: ("", True),
    Evict.REQUEUED: ("", True),
    Evict.LEASE_ENDED: ("", True),
    Evict.MACHINE_LOST: ("", True),
    Evict.START_REFUSED: ("", True),
    Evict.SHADOW_FAILED: ("look at the schedd's log if it happens again", True),
    Refuse.NO_RIGHT: ("ask the pool's administrator for a token with that right", False),
    Refuse.NOT_OWNER: ("only the job's owner and administrators may do that", False),
    Refuse.NO_SUCH_JOB: ("list the queue, or the history if it has ended", False),
    Refuse.WRONG_STATE: ("look at the job's state", False),
    Refuse.NO_GRANT: ("", True),
    Refuse.GRANT_USED: ("", True),
    Refuse.NO_MATCH: ("", True),
    Refuse.SLOT_BUSY: ("", True),
    Refuse.NO_ACCOUNT: ("ask the administrator of that machine to map you", False),
    Refuse.STORE_FULL: ("free some space on the schedd's disk", True),
}


# Better advice, where a hold's subcode says more.
_BY_SUBCODE: dict[tuple[Kind, int], str] = {
    (Hold.OUT_OF_RESOURCES, MEMORY_EXCEEDED): "raise request_memory, then release",
    (Hold.OUT_OF_RESOURCES, DISK_EXCEEDED): "raise request_disk or write less, then release",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why.

    Attributes:
        kind: what programs look at.
        text: what happened, naming the thing; without a full stop.
        subcode: for holds, mostly an errno or what the user's expression gave.
        own_hint: a better way out than the kind's usual one.
    """

    kind: Kind
    text: str
    subcode: int = 0
    own_hint: str = ""

    @property
    def hint(self) -> str:
        """The way out; empty where nothing needs to be done."""
        return self.own_hint or _BY_SUBCODE.get((self.kind, self.subcode)) or _ADVICE[self.kind][0]

    @property
    def heals(self) -> bool:
        """Whether the job goes on by itself."""
        return _ADVICE[self.kind][1]

    @property
    def code(self) -> int:
        """HTCondor's number for a hold; 0 for the others."""
        return int(self.kind) if isinstance(self.kind, Hold) else 0

    def __str__(self) -> str:
        return f"{self.text} ({self.hint})" if self.hint else self.text

    def to_wire(self) -> dict[str, Any]:
        """As plain values."""
        kind = self.kind.value if isinstance(self.kind, StrEnum) else int(self.kind)
        wire: dict[str, Any] = {"family": type(self.kind).__name__, "kind": kind, "text": self.text}
        if self.subcode:
            wire["subcode"] = self.subcode
        if self.own_hint:
            wire["hint"] = self.own_hint
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Reason:
        """The reverse of `to_wire`; a kind from a newer program becomes the family's most general one."""
        kind: Kind
        family, given = wire.get("family"), wire.get("kind")
        if family == "Evict":
            kind = next((e for e in Evict if e.value == given), Evict.MACHINE_LOST)
        elif family == "Refuse":
            kind = next((r for r in Refuse if r.value == given), Refuse.WRONG_STATE)
        else:
            kind = next((h for h in Hold if h.value == given), Hold.UNSPECIFIED)
        return cls(kind, str(wire.get("text", "")), int(wire.get("subcode", 0)), str(wire.get("hint", "")))


def hold_attributes(reason: Reason) -> dict[str, Any]:
    """The attributes of a held job's ad about the hold, by HTCondor's names."""
    return {"HoldReason": reason.text, "HoldReasonCode": reason.code, "HoldReasonSubCode": reason.subcode}
