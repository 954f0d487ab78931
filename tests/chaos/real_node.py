"""`poolnode` as the rounds start it: the program itself, signals that make its roles fail, and one that asks.

No fault from outside makes a role fail for sure, so each role of the node listens to a signal of its own and then ends
as it does when a task of it raises. SIGQUIT has the node write where each of its tasks stands, for a job that hangs.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import pool.node
from pool.errors import PoolError
from pool.policy import restarts
from pool.roles.base import Role, RoleContext

#: The signals of a node's first role and of its second.
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)

make_role = pool.node.make_role


def make_failing_role(name: str, given: RoleContext) -> Role:
    """The role, which fails when its signal comes."""
    role = make_role(name, given)
    run, number = role.run, signals.setdefault(name, SIGNALS[len(signals) % len(SIGNALS)])

    async def fail() -> None:
        raise PoolError("a fault makes it fail")

    async def run_until_told() -> None:
        loop = asyncio.get_running_loop()

        def told() -> None:
            loop.add_signal_handler(number, lambda: None)  # it fails once
            role.spawn(fail(), "fault")

        loop.add_signal_handler(number, told)
        loop.add_signal_handler(signal.SIGQUIT, show_tasks)
        await run()

    role.run = run_until_told  # type: ignore[method-assign]
    return role


def show_tasks() -> None:
    """Where each task stands, and what that awaits."""
    print("tasks of the node:", file=sys.stderr)
    for task in asyncio.all_tasks():
        print(f"  {task.get_name()}:", file=sys.stderr)
        awaited: object = task.get_coro()
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
            if frame is not None:
                print(f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}", file=sys.stderr)
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    sys.stderr.flush()


if __name__ == "__main__":
    from pool.cli.entry import main

    signals: dict[str, signal.Signals] = {}
    for number in (*SIGNALS, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # until the role is there
    # A role that fails every few seconds is started again as soon, or it would miss the rest of the faults.
    restarts.LONGEST_DELAY = 1.0
    pool.node.make_role = make_failing_role
    main()
