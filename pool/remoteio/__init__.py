"""Remote system calls: a job sees its owner's files wherever it runs (B1 to B5; TS 5, EV 2.2).

The submit side of it. A job's file system on the execute machine asks in frames (`frames`), which both nodes only carry
(`relay`). They are answered by `home`, a process that became the job's owner for good; `places` finds what a path
means there without ever leaving what the owner may see, `work` does what is asked, `journal` keeps what undoes it when
the job is rolled back to a checkpoint. `direct` finds out which trees both machines see anyhow.
"""
