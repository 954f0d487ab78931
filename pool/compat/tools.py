"""The drop-ins: each command's module. A module's `main(words)` takes the arguments and returns the exit status."""

from __future__ import annotations

#: Command -> (module, function).
TOOLS: dict[str, tuple[str, str]] = {
    "condor_config_val": ("pool.compat.settings", "config_val"),
    "condor_drain": ("pool.compat.machines", "drain"),
    "condor_history": ("pool.compat.history", "history"),
    "condor_hold": ("pool.compat.actions", "hold"),
    "condor_prio": ("pool.compat.actions", "prio"),
    "condor_q": ("pool.compat.queue", "queue"),
    "condor_qedit": ("pool.compat.actions", "qedit"),
    "condor_release": ("pool.compat.actions", "release"),
    "condor_rm": ("pool.compat.actions", "remove"),
    "condor_ssh_to_job": ("pool.compat.shell", "ssh_to_job"),
    "condor_status": ("pool.compat.status", "status"),
    "condor_submit": ("pool.compat.submit", "submit"),
    "condor_submit_dag": ("pool.compat.submit_dag", "submit_dag"),
    "condor_tail": ("pool.compat.outputs", "tail"),
    "condor_transfer_data": ("pool.compat.outputs", "transfer_data"),
    "condor_userprio": ("pool.compat.userprio", "userprio"),
    "condor_vacate_job": ("pool.compat.actions", "vacate_job"),
    "condor_version": ("pool.compat.settings", "version"),
    "condor_wait": ("pool.compat.waiting", "wait"),
    "condor_who": ("pool.compat.machines", "who"),
}
