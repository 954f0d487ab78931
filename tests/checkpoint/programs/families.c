/* Processes in sessions and groups whose leaders have ended, or were joined before they led: says "ready", waits for `go`, and looks
 * whether each has its parent, group and session as before. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 32
struct relations {
    int parent, group, session;
    char state;
};
static struct {
    int count;
    pid_t pids[MOST];
} *known;
static int hold[2]; /* all wait for its end */

static struct relations look(pid_t pid)
{
    struct relations r = {0};
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f && fgets(text, sizeof text, f))
        sscanf(strrchr(text, ')'), ") %c %d %d %d", &r.state, &r.parent, &r.group, &r.session);
    if (f)
        fclose(f);
    if (r.state == 'R' || r.state == 'D')
        r.state = 'S';
    return r;
}

static void be_there(void)
{
    char end;
    known->pids[__atomic_fetch_add(&known->count, 1, __ATOMIC_ACQ_REL)] = getpid();
    close(hold[1]);
    while (read(hold[0], &end, 1) < 0)
        ;
    _exit(0);
}

static pid_t sibling(void) { return (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0); }

static void session_without_leader(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            if (fork() == 0)
                be_there(); /* below one of it */
            be_there();
        }
        if (fork() == 0) {
            setpgid(0, 0);
            be_there(); /* a group of its own */
        }
        _exit(0);
    }
    wait(NULL);
}

static void group_without_leader(void)
{
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        for (int i = 0; i < 2; i++)
            if (sibling() == 0)
                be_there();
        if (sibling() == 0)
            _exit(3); /* and one that nobody waits for */
        _exit(0);
    }
    waitpid(leader, NULL, 0);
}

static void led_later(void)
{
    if (fork() == 0) {
        if (fork() == 0) { /* in the first session, as its own child will be */
            if (fork() == 0)
                be_there();
            while (known->count < 6)
                usleep(1000);
            setsid();
            be_there();
        }
        while (known->count < 7)
            usleep(1000);
        setsid();
        be_there();
    }
}

static void adopted(void)
{
    if (fork() == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                if (fork() == 0)
                    be_there(); /* goes to whom adopts, in the session of one that lives */
                _exit(0);
            }
            wait(NULL);
            be_there();
        }
        be_there();
    }
}

int main(void)
{
    struct relations before[MOST], after;
    int wrong = 0;
    known = mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pipe(hold) < 0)
        return 1;
    session_without_leader();
    while (known->count < 3)
        usleep(1000);
    group_without_leader();
    while (known->count < 5)
        usleep(1000);
    led_later();
    while (known->count < 8)
        usleep(1000);
    adopted();
    while (known->count < 11)
        usleep(1000);
    siginfo_t ended;
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0)
        known->pids[known->count++] = ended.si_pid;
    for (int i = 0; i < known->count; i++)
        before[i] = look(known->pids[i]);
    puts("ready");
    fflush(stdout);
    while (access("go", F_OK) < 0)
        usleep(10000);
    for (int i = 0; i < known->count; i++) {
        after = look(known->pids[i]);
        if (memcmp(&after, &before[i], sizeof after) == 0)
            continue;
        printf("%d: parent %d %d, group %d %d, session %d %d, state %c %c\n", i, before[i].parent, after.parent, before[i].group,
               after.group, before[i].session, after.session, before[i].state, after.state);
        wrong++;
    }
    printf("%d of %d wrong\n", wrong, known->count);
    return wrong;
}
