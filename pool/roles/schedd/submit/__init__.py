"""Users and the administrator change jobs here, and jobs run on the submit machine. Depends on `core`, `files`
and `checkpoints`.

    rules.py           the administrator's rules for submits, and for jobs in the queue
    job_actions.py     remove, hold, release, vacate, checkpoint, prioritise; periodic expressions
    editing.py         the attributes that `poolnode qedit` may change
    local_universe.py  jobs of the universes `local` and `scheduler`
    submit_methods.py  the methods that queue jobs
    action_methods.py  the methods that change jobs
"""
