/* Checkpoints as the keeper's loop sees them: it forks a dumper, which works by itself, and reports the outcome when
 * the dumper exits. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "dump/dump.h"
#include "keeper/keeper.h"

static struct outcome *outcome; /* in memory shared with the dumper */
static pid_t dumper;
static struct dirty_state dirty = {.handover = -1};
static int received = -1; /* the socket on which the dumper hands it over */
static uint64_t asked;
static bool examines, told;
static uint64_t spent[2];

bool checkpoint_running(void) { return dumper > 0; }

bool checkpoint_holds(void) { return dumper > 0 && !__atomic_load_n(&outcome->let_go, __ATOMIC_ACQUIRE); }

pid_t checkpoint_dumper(void) { return dumper; }

/* Called when the job itself is no longer frozen. A copy that has exited since it was listed has no tracer any more. */
bool checkpoint_makes(pid_t pid, pid_t parent)
{
    struct stat_line line;
    if (!dumper || checkpoint_holds())
        return false;
    return pid == dumper || parent == dumper || proc_field(pid, "status", "TracerPid", 10) == (uint64_t)dumper ||
           !stat_read(pid, &line) || line.state == 'Z';
}

bool checkpoint_made(void) { return outcome && outcome->done == 1; }

static void report_outcome(uint16_t verb, const struct outcome *o, uint64_t number, uint32_t cell)
{
    struct report r;
    char text[TEXT];
    report_init(&r, verb, number, cell);
    r.sequence = asked;
    r.code = (int32_t)o->done;
    r.processes = o->processes;
    r.user_us = o->standstill_us;
    r.system_us = o->bytes;
    r.wall_us = o->took_us;
    r.err = o->failure.err;
    copy_text(r.call, sizeof r.call, o->failure.call);
    bool whole = o->done == 1 || verb == LET_GO;
    copy_text(text, sizeof text, whole ? o->held : o->done == 2 ? o->reasons : o->failure.text);
    report_send(&r, text);
}

static void dirty_end(uint64_t id)
{
    dirty_state_take(&dirty, received, id);
    if (received >= 0)
        close(received);
    received = -1;
}

void checkpoint_forget(void) { dirty_end(0); }

void checkpoint_begin(int directory, uint64_t how, uint64_t sequence, const struct job *job, uint32_t cell)
{
    struct outcome now = {.done = 3};
    uint64_t number = job->start->head.number, before = asked;
    if (!outcome && (outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                    0)) == MAP_FAILED)
        outcome = NULL;
    asked = sequence;
    errno = !(settings.able & ABLE_CHECKPOINT)             ? EOPNOTSUPP
            : directory < 0 && !(how & CHECKPOINT_EXAMINE) ? EBADF
            : dumper || shells_open()                      ? EBUSY
                                                           : 0;
    if (errno || !outcome) {
        set_failure(&now.failure, "checkpoint",
                    dumper          ? "another one is being made"
                    : shells_open() ? "a shell is open in the job (poolnode ssh): it is saved when that has ended"
                                    : "");
        report_outcome(CHECKPOINTED, &now, number, cell);
        asked = dumper ? before : asked;
        return;
    }
    told = false;
    memset(outcome, 0, sizeof *outcome);
    outcome->done = 3;
    outcome->failure =
        (struct failure){.err = EINTR, .call = "dump", .text = "its process was killed, or the job ended first"};
    int ends[2] = {-1, -1};
    if (!(how & CHECKPOINT_EXAMINE) && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        ends[0] = ends[1] = -1; /* then nothing is tracked, and the next image is a full one */
    dirty.handover = ends[1];
    dumper = fork();
    if (dumper == 0) {
        dump_job(directory, how, job, &dirty, outcome);
        _exit(0);
    }
    if (ends[1] >= 0)
        close(ends[1]);
    received = ends[0];
    examines = how & CHECKPOINT_EXAMINE;
    if (dumper < 0) {
        dumper = 0;
        checkpoint_forget();
        set_failure(&now.failure, "fork", "a process that dumps");
        report_outcome(CHECKPOINTED, &now, number, cell);
    }
}

/* Reports that the job runs again, if its image is still being written. */
void checkpoint_look(uint64_t number, uint32_t cell)
{
    if (!dumper || told || checkpoint_holds())
        return;
    told = true;
    report_outcome(LET_GO, outcome, number, cell);
}

void checkpoint_spent(uint64_t us[2])
{
    us[0] += spent[0];
    us[1] += spent[1];
    memset(spent, 0, sizeof spent);
}

/* True: the process was the dumper; its outcome is reported. */
bool checkpoint_reaped(pid_t pid, uint64_t number, uint32_t cell)
{
    if (!dumper || pid != dumper)
        return false;
    dumper = 0;
    memcpy(spent, outcome->spent_us, sizeof spent);
    if (!examines)
        dirty_end(outcome->id);
    report_outcome(CHECKPOINTED, outcome, number, cell);
    return true;
}
