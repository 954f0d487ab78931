"""How accounts are written for people."""

from __future__ import annotations

from pool.policy.account_names import without_domain, written_accounts


def test_an_account_is_written_without_its_domain() -> None:
    names = ["alice@lab.example", "physics/alice@lab.example", "nice-user/bob@lab.example", "root", ""]
    written = written_accounts(names)
    assert [written[name] for name in names] == ["alice", "physics/alice", "nice-user/bob", "root", ""]


def test_accounts_of_one_name_are_written_whole() -> None:
    assert written_accounts(["alice@one", "alice@two", "bob@two"]) == {
        "alice@one": "alice@one",
        "alice@two": "alice@two",
        "bob@two": "bob",
    }
    assert written_accounts(["alice", "alice@two"]) == {"alice": "alice", "alice@two": "alice@two"}


def test_the_same_account_twice_is_one() -> None:
    assert written_accounts(["alice@one", "alice@one"]) == {"alice@one": "alice"}


def test_only_the_last_sign_begins_the_domain() -> None:
    assert without_domain("a@b@lab") == "a@b"


def test_accounts_of_other_domains_are_written_whole_where_the_own_one_is_known() -> None:
    """A user of another pool is not taken for a local one of the same name, also where that one has no account yet."""
    names = ["bob@lab", "nice-user/root@physics", "root", "alice@physics"]
    written = written_accounts(names, "lab")
    assert [written[name] for name in names] == ["bob", "nice-user/root@physics", "root", "alice@physics"]
