"""The subcommands by name: each with its module, its function and one line of help.

A module is imported when its command is called, so that `poolnode q` does not pay for what `poolnode run` needs.
"""

from __future__ import annotations

#: Section -> command -> (module, function, one line of help).
COMMANDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Run jobs": {
        "run": ("pool.cli.run", "run", "Run a job description on this machine and show its results"),
        "submit": ("pool.cli.submit", "submit", "Queue the jobs of a description file, or check it"),
        "dag": ("pool.cli.dag", "dag", "Run jobs that wait for each other, from a file in DAGMan's language"),
        "wait": ("pool.cli.follow", "wait", "Wait until jobs have ended"),
        "fetch": ("pool.cli.fetching", "fetch", "Fetch the outputs of jobs that were submitted from another machine"),
        "tail": ("pool.cli.follow", "tail", "Show a job's output as it grows"),
        "compat": ("pool.cli.compat", "compat", "Put HTCondor's commands and Python modules in front"),
        "forward": ("pool.cli.forward", "forward", "Bring a port of a running job to this machine"),
        "ssh": ("pool.cli.ssh", "ssh", "Open a shell inside a running job"),
        "attach": ("pool.cli.ssh", "attach", "Show a running job's output and errors until it has ended"),
    },
    "Look": {
        "q": ("pool.cli.queue", "q", "List queued jobs"),
        "globalq": ("pool.cli.queue", "globalq", "List the queued jobs of every machine of the pool"),
        "status": ("pool.cli.status", "status", "List the pool's machines"),
        "why": ("pool.cli.why", "why", "Say why a job waits, or why a machine runs nothing"),
        "inspect": ("pool.cli.inspect", "inspect", "Say what a running job does now, and what it waits for"),
        "plan": ("pool.cli.dedicated", "plan", "Show dedicated machines over time: what runs, is planned, reserved"),
        "history": ("pool.cli.queue", "history", "List jobs that have left the queue"),
        "summary": ("pool.cli.queue", "summary", "What each user got out of the pool"),
        "checkpoints": ("pool.cli.checkpoints", "checkpoints", "List kept checkpoints of removed jobs, or delete them"),
    },
    "Change jobs": {
        "rm": ("pool.cli.act", "rm", "Remove jobs"),
        "hold": ("pool.cli.act", "hold", "Keep jobs in the queue without running them"),
        "release": ("pool.cli.act", "release", "Let held jobs run again"),
        "qedit": ("pool.cli.act", "qedit", "Change attributes of queued jobs"),
        "prio": ("pool.cli.act", "prio", "Change the priority of jobs"),
        "checkpoint": ("pool.cli.act", "checkpoint", "Save running jobs now, to go on from there"),
        "vacate": ("pool.cli.act", "vacate", "Take running jobs off their machines"),
    },
    "Manage a pool": {
        "token": ("pool.cli.admin", "token", "Make a token with which a machine or a user joins the pool"),
        "userprio": ("pool.cli.userprio", "userprio", "Show users' priorities and quotas, or change them"),
        "reserve": ("pool.cli.dedicated", "reserve", "Reserve dedicated machines, list reservations, cancel one"),
        "flock": ("pool.cli.flock", "flock", "Lend machines to other pools, and borrow theirs"),
        "drain": ("pool.cli.startds", "drain", "Take a machine out of use"),
        "undrain": ("pool.cli.startds", "undrain", "Take a machine into use again"),
        "config": ("pool.cli.admin", "config", "Show settings, their values, and where each was set"),
        "revoke": ("pool.cli.admin", "revoke", "Remove a node from the pool"),
        "reload": ("pool.cli.admin", "reload", "Have the node read its configuration again"),
        "stop": ("pool.cli.admin", "stop", "End the node; its jobs run on until it is there again"),
    },
}

COMMAND_MODULES = {name: home for section in COMMANDS.values() for name, home in section.items()}
