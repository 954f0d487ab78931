"""The directory in which a program begins: the initial directory, one of its own, or another of its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pool.classad import ClassAd
from pool.jobs.activation import Activation, activation
from pool.jobs.activation_fields import WrongStart, check
from pool.jobs.description import DescriptionError
from pool.jobs.description.check import FACTS
from tests.jobs.test_network import job as description_of

HERE = ClassAd({"FileSystemDomain": FACTS.filesystem_domain})


def job(text: str) -> ClassAd:
    """The ad of a job with these commands, as a user submits it."""
    return description_of(text, replace(FACTS, as_reference=False))


def test_it_begins_there_with_the_files_of_its_machine() -> None:
    ad = job("remote_initialdir = /home/alice\noutput = out")
    assert ad.value("ShouldTransferFiles") == "NO"
    start = activation(ad, HERE, 1, None)
    assert (start.begins_in, start.stdout) == ("/home/alice", "out")
    assert Activation.from_wire(start.to_wire()).begins_in == "/home/alice"
    assert activation(job(""), HERE, 1, None).begins_in == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("remote_initialdir = alice", "expected an absolute path"),
        ("remote_initialdir = /a\nshould_transfer_files = YES", "only where it has that machine's files"),
        ("remote_initialdir = /a\nremote_io = on", "only where it has that machine's files"),
        ("remote_initialdir = /a\ntransfer_input_files = b", "'transfer_input_files' is given"),
        ("remote_initialdir = /a\nexecutable = /bin/ls | /bin/cat", "each process of a pipe job has its own"),
    ],
)
def test_what_contradicts_it_is_refused(text: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        job(text)


@pytest.mark.parametrize("place", ["relative", 5, "/a\0b"])
def test_a_start_from_a_lying_submit_side_is_refused(place: object) -> None:
    wire = activation(job("remote_initialdir = /a"), HERE, 1, None).to_wire()
    with pytest.raises(WrongStart):
        check(wire | {"begins_in": place})
