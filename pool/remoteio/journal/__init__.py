"""A job's changes on the submit side since its checkpoints, so that they can be undone (lifts the limit of TS 3(4)).

A job that is restored from a checkpoint, or begins again, has to find its owner's files as they were then. Otherwise it
appends a line twice, or reads bytes that it has not written yet. So each change is recorded before it is made, with the
way to undo it:

- bytes that are overwritten or cut off are copied first, once for each mark; of a file that only grew its length
  (`contents`)
- a file that is removed or replaced gets a hidden name beside it instead (UNDO...), and goes when it is not needed
  (`names`, `removed_files`)
- what was created, renamed, linked (`names`), and rights, owners, times and extended attributes that were
  changed (`settings`), are noted

A *mark* is a checkpoint's place in that order (`journal`). `commit` gives up what is older than a mark, `rollback`
(`undo`) undoes what is younger. Undoing runs backwards, checks by inode that a name still is what it was, and can be
cut short and done again.

The journal is bounded. At the bound, or where it cannot be written, the job goes on and can no longer be rolled back to
the present marks: `MarkForgotten` says so at the attempt, `why` before. From the next mark on it can again.

Notes are kept in a `book`, which lies in files (`log`) and is written out ahead of what it undoes (`ahead`). A mark
counts for nothing before the files are on the disk as they were, and the notes: `secure` (`volumes`).
"""

from pool.remoteio.journal.book import Identity
from pool.remoteio.journal.journal import ChangeJournal, MarkForgotten
from pool.remoteio.journal.undo import rollback
from pool.remoteio.journal.volumes import Flushes

__all__ = ["Flushes", "Identity", "ChangeJournal", "MarkForgotten", "rollback"]
