/* The messages between node, fork server and keepers, and the contents of a cell. All of this is local to one machine
 * and one version of the package: host byte order, natural alignment. The Python side is pool/starter/messages.py.
 * Numbers and layouts of both sides come from pool/checkpoint/messages_table.py.
 *
 * A message is one datagram: `head`, then the fields of its verb. The node and the fork server share a SEQPACKET socket
 * pair. Each keeper inherits the fork server's end and answers the node directly, so the node reads one file descriptor
 * however many keepers there are. The node writes to a keeper through the datagram socket of its cell.
 *
 * A keeper whose job has ended and left nothing reports WAITING with the end. The node may then send it RETIRE, or the
 * next START, if that job sees the same files and has the same rights. */
#ifndef POOL_MESSAGES_H
#define POOL_MESSAGES_H

#include "common/messages_layout.h"

/* After struct start: struct member_head[members], struct pipe_head[pipes], uint32_t groups[groups], then these
 * strings, each ended by a NUL: id, claim, program, cwd, stdin, stdout, stderr, scratch, root (a directory of this
 * machine that is the root of a job of `full`; empty: the system's own tree), then `hides` directories that the job may
 * not read, `devices` devices that a job of `full` sees in addition to the harmless ones, `remotes` directories of the
 * submit machine that it sees there, `binds` pairs of a directory of this machine and its path in the job, argc
 * arguments, envc times NAME=value. Then for each member: name, program, cwd, stdin, stdout, stderr, its arguments, its
 * environment. Then for each pipe: the file at the writer's end and the file at the reader's end.
 *
 * Without members the job is one process, which the fixed strings describe. With members, the fixed strings are those
 * of the first member, and argv is ignored.
 *
 * The file at a pipe's end is '' for stdout or stdin, and /dev/fd/N for a file descriptor that the process inherits.
 * Any other value is a name that the process opens, which is mapped to the pipe (mapped_files/mapped_files.c). Several
 * pipes may begin at one file. */

/* A cell: a file that one keeper at a time uses, and that is reused. The keeper holds a lock (flock) on it while its
 * job has processes. Its first page is written once at the start and once at the end, so that the end can be recorded
 * on a full disk; the end of the lease is written whenever it changes. The start message follows at CELL_SPEC, for a
 * node that reconnects to the keeper. */
_Static_assert(CELL_REPORT + sizeof(struct report) + MEMBERS_MOST * sizeof(struct member_end) <= CELL_SPEC,
               "ends fit the page");

#endif
