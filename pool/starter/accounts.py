"""Whom a job runs as on this machine (A13: the caller never chooses the user id; EV 2.9.1, second hazard).

The owner's name has been authenticated by the submit side's node; this machine maps it by its own rule RUN_AS:

    node     the user this node runs as; the rule of a personal pool, and the only one without root
    owner    the local account of the owner's name, where both machines share user names (UID_DOMAIN); else nobody.
             A system account only for what was submitted on this same node by the user it runs as
    nobody   a powerless account, whoever the owner is
    refuse   only what `owner` can map, nobody else gets in
"""

from __future__ import annotations

import functools
import os
import pwd

from pool.errors import PoolError
from pool.starter.place import UnixAccount

#: Accounts below this number belong to the system and never run jobs.
LOWEST_UID = 1000
NOBODY = "nobody"


class NoJobAccount(PoolError):
    """This machine runs no jobs of that owner."""


def account_for(owner: str, uid_domain: str, own_domain: str, rule: str, *, same_node: bool) -> UnixAccount:
    """The account for an owner's jobs.

    Args:
        at_home: the jobs were submitted on this same node: its own user's run as that user, root's as root.

    Raises:
        NoJobAccount: the rule refuses the owner.
    """
    me = os.geteuid()
    if rule == "node" or me != 0:
        return _own_account()
    if rule in ("owner", "refuse") and uid_domain == own_domain:
        try:
            entry = pwd.getpwnam(owner)
        except KeyError:
            entry = None
        if entry is not None and entry.pw_uid == me and same_node:
            return _own_account()
        if entry is not None and entry.pw_uid >= LOWEST_UID:
            groups = tuple(os.getgrouplist(owner, entry.pw_gid))
            return UnixAccount(entry.pw_uid, entry.pw_gid, groups, owner, entry.pw_dir, True)
    if rule == "refuse":
        raise NoJobAccount(f"this machine has no account for {owner}", hint="RUN_AS = refuse lets nobody else in")
    return _nobody_account()


@functools.cache
def _own_account() -> UnixAccount:
    entry = _entry(os.geteuid())
    name, home = (entry.pw_name, entry.pw_dir) if entry else (str(os.geteuid()), "/")
    return UnixAccount(os.geteuid(), os.getegid(), None, name, home, False)


def _nobody_account() -> UnixAccount:
    try:
        entry = pwd.getpwnam(NOBODY)
    except KeyError as error:
        raise NoJobAccount("this machine has no account named nobody", hint="set RUN_AS = owner") from error
    return UnixAccount(entry.pw_uid, entry.pw_gid, (), NOBODY, "/", True)


def _entry(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None
