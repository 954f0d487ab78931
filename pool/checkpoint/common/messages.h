/* The messages between node, fork server and keepers, and the contents of a cell.
 *
 * Everything is local to one machine and one version of the package: host byte order, natural alignment. The Python
 * side of it is pool/starter/messages.py; numbers and layouts of both come from pool/checkpoint/messages_table.py.
 *
 * A message is one datagram: `head`, then what its verb says. The node and the nursery share one SEQPACKET pair;
 * each keeper inherits the nursery's end and answers the node directly, so the node has one descriptor to read however
 * many keepers there are. Towards a keeper the node writes to the datagram socket of its cell.
 *
 * A keeper whose job has ended and left nothing says WAITING with the end: the node may send it the next START, for a
 * job that sees and may do the same, or RETIRE.
 */
#ifndef POOL_WIRE_H
#define POOL_WIRE_H

#include "common/messages_layout.h"

/* After struct start: struct member_head[members], struct pipe_head[pipes], uint32_t groups[groups], then these
 * strings, each ended by a NUL: id, claim, program, cwd, stdin, stdout, stderr, scratch, root (a directory of this
 * machine that is the root of a job of `full`; empty: the system's own tree), then `hides` times a directory that the
 * job may not look into, `devices` times a device that a job of `full` sees beside the harmless ones, `remotes` times a
 * directory of the submit machine that it sees there, `binds` times a directory of this machine and where it sees it,
 * argc times an argument, envc times NAME=value; for each member name, program, cwd, stdin, stdout, stderr, its
 * arguments, its environment; for each pipe the file at the writer's end and the one at the reader's.
 *
 * Without members the job is one process, as the fixed strings say; else they are those of its first and argv counts
 * for nothing. The file at a pipe's end is '' for stdout or stdin, /dev/fd/N for a descriptor that the process is born
 * with, anything else a name that the process opens, mapped to the pipe (mapped_files/mapped_files.c). Several pipes
 * may begin at one file. */

/* A cell: one file for one keeper at a time, used again and again. The keeper holds a lock (flock) on it while its job
 * has processes. The page at its head is written once at the start and once at the end, so that the end can be noted on
 * a full disk, and the lease's end whenever it changes; the start message follows at CELL_SPEC for whoever finds the
 * keeper again. */
_Static_assert(CELL_REPORT + sizeof(struct report) + MEMBERS_MOST * sizeof(struct member_end) <= CELL_SPEC,
               "ends fit the page");

#endif
