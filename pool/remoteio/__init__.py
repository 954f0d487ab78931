"""Remote system calls: a job sees its owner's files wherever it runs (B1 to B5; TS 5, EV 2.2).

This is its submit side. A job's file system on the execute machine asks in frames (`frames`), which both nodes only
carry (`relay`). A `file_server` answers them: a process that became the job's owner for good. `path_lookup` finds the
file of a path without ever leaving what the owner may see, `file_operations` does what is asked, and `journal` records
how to undo it when the job is rolled back to a checkpoint. `direct` finds out which trees both machines see anyhow.
"""
