"""Clusters: what processes cost, how they differ, and the cluster's number that comes later."""

from __future__ import annotations

import pytest

from pool.jobs.description import PROVISIONAL_CLUSTER, bind_cluster
from tests.jobs.description.support import attributes, read

EXECUTABLE = "executable = /bin/true\n"


def test_a_uniform_cluster_costs_nothing_per_process() -> None:
    draft = read(EXECUTABLE + "queue 100000\n").clusters[0]
    assert draft.uniform
    assert draft.count == 100000
    assert draft.delta(99999) == {}
    assert draft.wire_deltas() is None


def test_only_what_differs_is_in_a_delta() -> None:
    draft = read(EXECUTABLE + "arguments = $(Process)\noutput = out.$(Process)\nqueue 3\n").clusters[0]
    assert list(draft.deltas()) == [{}, {"Args": "1", "Out": "out.1"}, {"Args": "2", "Out": "out.2"}]
    assert draft.wire_deltas() == [None, {"Args": "1", "Out": "out.1"}, {"Args": "2", "Out": "out.2"}]
    assert "ProcId" not in draft.attributes
    with pytest.raises(IndexError):
        draft.delta(3)


def test_the_common_ad_is_a_classad() -> None:
    assert read(EXECUTABLE + "request_cpus = 3\nqueue\n").clusters[0].ad.eval("RequestCpus") == 3


def test_later_statements_differ_from_the_first_process() -> None:
    draft = read(EXECUTABLE + "queue 2\narguments = z\nqueue 2\n").clusters[0]
    assert list(draft.deltas()) == [{}, {}, {"Arguments": "z"}, {"Arguments": "z"}]


def test_requirements_follow_urls_of_single_processes() -> None:
    text = EXECUTABLE + "u = a,http://b/c,d\ntransfer_input_files = $CHOICE(Process,u)\nqueue 3\n"
    draft = read(text).clusters[0]
    assert draft.delta(1)["WantTransferPluginMethods"] == "http"
    assert "Requirements" in draft.delta(1)
    assert set(draft.delta(2)) == {"TransferInput"}


def test_the_clusters_number_is_bound_later() -> None:
    text = EXECUTABLE + "log = $(Cluster).log\n+Group = $(ClusterId)\n+Rule = x > $(Cluster)\nqueue\n"
    draft = read(text).clusters[0]
    assert draft.uses_cluster
    assert draft.cluster == PROVISIONAL_CLUSTER
    bound = bind_cluster(draft.attributes, 12)
    assert (bound["UserLog"], bound["Group"], bound["Rule"]) == ("/submit/here/12.log", 12, ["x > 12"])
    assert not read(EXECUTABLE + "queue\n").clusters[0].uses_cluster


def test_a_known_cluster_is_used_at_once() -> None:
    assert attributes(EXECUTABLE + "log = $(Cluster)\nqueue\n", cluster=7)["UserLog"] == "/submit/here/7"


def test_a_new_choice_is_made_for_each_process() -> None:
    draft = read(EXECUTABLE + "arguments = $RANDOM_INTEGER(0,999999)\nqueue 20\n").clusters[0]
    assert len({delta.get("Args") for delta in draft.deltas()}) > 10


def test_a_value_that_completes_a_name_is_expanded_for_each_process() -> None:
    text = EXECUTABLE + "a0 = zero\na1 = one\narguments = $(a$(Process))\nqueue 2\n"
    assert attributes(text)["Args"] == "zero"
    assert attributes(text, 1)["Args"] == "one"
