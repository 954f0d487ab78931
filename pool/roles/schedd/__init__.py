"""The schedd: keeps the queue, claims slots for its users and looks after their running jobs (A3, EV 3.3).

    core/         the ledger of the queue, the claims, submits, the end of a run
    checkpoints/  checkpoints on the submit side, and the server that keeps them
    files/        other files of jobs on the submit side
    parallel/     jobs on several machines
    placement/    from an idle job to a running one, and back
    submit/       actions of people and of the administrator; jobs on the submit machine
    notices/      users' logs and mail
    views/        listings and explanations
    role.py       joins the rooms

A room imports only from rooms of lower floors (docs/architecture.md). A part of a room is given the calls and the data
that it needs: no part holds the placement or the role (tests/floors.py).
"""

from pool.roles.schedd.role import Schedd

__all__ = ["Schedd"]
