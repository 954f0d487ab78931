/* Messages between the ranker and the PMIx server of its part (pool/mpi/pmix_server), and between rankers: a length of
 * four bytes (least first), a kind, and so many bytes less one.
 */
#ifndef FRAMES_H
#define FRAMES_H

enum { HEAD = 5, CHUNK_MOST = 65536 };

enum kind {
    PUT = 'p', /* key, zero, value, zero */
    GATHER = 'g', /* a piece of what the ranks give each other in a fence of PMIx */
    BARRIER =
        'b', /* nothing: all ranks of a part are in the barrier or fence; and the answer, that all of the job are */
    END = 'e', /* how, code, whether none of its ranks is left, eight bytes of when (us since 1970), text, zero: the job
                  ends */
    LAUNCH = 'l', /* the part's number in four bytes, and what it is to run, zero; goes down only */
    DONE = 'd', /* a byte: whether its ranks have called MPI_Init. All have ended well; nothing follows. */
    /* From the PMIx server only. A rank is four bytes: its place among those of the part. */
    VARIABLES = 'v', /* a rank, then each of its environment variables with a zero: NAME=VALUE */
    READY = 'r', /* nothing: the ranks may be started */
    CANNOT = 'x', /* text, zero: why there is no PMIx here */
    CONNECTED = 'c', /* a rank: it has called MPI_Init */
    FINALIZED_RANK = 'z', /* a rank: it has called MPI_Finalize */
    ABORTED = 'a', /* a rank, four bytes of the code, text, zero */
    SPAWNS = 's', /* a rank: it has called MPI_Comm_spawn, which was refused */
    REFUSED = 'n', /* text, zero: another call that was refused, for the user to read */
};

#endif
