/* The supervisor: answers the kernel's notifications, pumps the logs, and ends a job that does something impossible. It
 * has one thread, so that no state changes during an answer. It has the job's rights over files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mapped_files/parts.h"

struct supervisor *over;

static bool is_taken(pid_t pid, int number)
{
    char path[64], text[8];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    return readlink(path, text, sizeof text) >= 0;
}

/* Gives the process a file descriptor, whose number is the call's result: a high number, unless a standard one (0 to 2)
 * is free, which any open would get. */
bool answer_descriptor(struct notification *q, int fd, int at_least, bool on_exec_closed)
{
    int number = -1;
    bool low = !at_least && (!is_taken(q->tgid, 0) || !is_taken(q->tgid, 1) || !is_taken(q->tgid, 2));
    for (int i = at_least > over->first ? at_least : over->first; i < over->first + SLOTS && number < 0 && !low; i++)
        if (!is_taken(q->tgid, i))
            number = i;
    int got = notification_add_fd(q, fd, number, SECCOMP_ADDFD_FLAG_SEND, on_exec_closed);
    if (got < 0 && number >= 0) /* its limit of file descriptors is lower now */
        got = notification_add_fd(q, fd, -1, SECCOMP_ADDFD_FLAG_SEND, on_exec_closed);
    q->answer->val = got;
    return q->answered = got >= 0;
}

bool replace_descriptor(struct notification *q, int fd, int number)
{
    return notification_add_fd(q, fd, number, 0, false) >= 0;
}

/* Reports to the keeper why the job ends, and which member is at fault, if any. */
void accuse(uint32_t member, const char *text)
{
    struct accusation a = {.member = member};
    copy_text(a.text, sizeof a.text, text);
    if (!over->misused && send(over->keeper, &a, offsetof(struct accusation, text) + strlen(a.text), MSG_NOSIGNAL) < 0)
        _exit(1);
    over->misused = true;
}

/* Ends the job for a call that cannot be served. The call gets no answer, so its process does not continue. */
void misuse(struct notification *q, const struct end *e, const char *format, ...)
{
    char text[TEXT], what[400], whom[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    uint32_t member = q ? q->member : e->member;
    const char *name = over->job->members[member].name;
    if (e)
        snprintf(text, sizeof text, "process %.100s: %.200s (%s): %s", name, e->name, partner(e, whom, sizeof whom),
                 what);
    else
        snprintf(text, sizeof text, "process %.100s: %s", name, what);
    accuse(member, text);
    if (q)
        q->answered = true;
}

static void answer_call(int listener, uint32_t member)
{
    struct notification q;
    if (!notification_receive(&q, listener, member))
        return;
    handle(&q);
    notification_answer(&q);
}

void watch_fd(int fd, enum source source, uint32_t which, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)source << 32 | which};
    epoll_ctl(over->poll, EPOLL_CTL_ADD, fd, &e);
}

static void listen_at(int fd, uint32_t member)
{
    struct listener *more = realloc(over->listeners, (over->listener_count + 1) * sizeof *more);
    if (!more)
        _exit(1);
    over->listeners = more;
    more[over->listener_count] = (struct listener){fd, member};
    notification_listen(fd);
    watch_fd(fd, FROM_LISTENER, over->listener_count++, EPOLLIN);
}

static void place_end(const struct hello *h)
{
    for (struct end *e = over->ends; e < over->ends + over->end_count; e++)
        if (e->mapped && e->conduit == h->conduit && e->way == h->way && e->member == h->member) {
            e->device = h->device;
            e->directory = h->directory;
        }
}

/* Handles a first message. A member that is about to run its program sends its listener; a dumper sends a socket. */
static void greet(int members)
{
    struct hello hello;
    int fd = -1;
    bool taken_up = hello_take(members, &hello, &fd);
    if (taken_up && hello.what == HELLO_OVER) {
        unread_judge_all();
        _exit(0);
    }
    if (!taken_up || (hello.what != HELLO_DUMPER && hello.member >= over->job->count)) {
        epoll_ctl(over->poll, EPOLL_CTL_DEL, members, NULL);
        return;
    }
    if (hello.what == HELLO_DUMPER && fd >= 0)
        return settle(fd);
    if (hello.what == HELLO_END)
        return place_end(&hello);
    if (hello.what == HELLO_MEMBER)
        over->pids[hello.member] = hello.pid;
    if (fd >= 0)
        listen_at(fd, hello.member);
}

/* The most active listener is polled directly, not through epoll. With poll the kernel wakes this process while the
 * caller yields its CPU to it; an epoll in between would prevent that. */
static int hot = -1;

static void heat(uint32_t which)
{
    if (hot >= 0)
        watch_fd(over->listeners[hot].fd, FROM_LISTENER, (uint32_t)hot, EPOLLIN);
    hot = (int)which;
    epoll_ctl(over->poll, EPOLL_CTL_DEL, over->listeners[which].fd, NULL);
}

static void member_event(uint32_t which, uint32_t events)
{
    struct listener *l = &over->listeners[which];
    if (events & EPOLLIN) {
        if (hot != (int)which)
            heat(which);
        answer_call(l->fd, l->member);
    } else if (events & (EPOLLHUP | EPOLLERR)) {
        epoll_ctl(over->poll, EPOLL_CTL_DEL, l->fd, NULL);
        close(l->fd);
        l->fd = -1;
        if (hot == (int)which)
            hot = -1;
        for (uint32_t i = 0; i < over->listener_count; i++)
            if (over->listeners[i].member == l->member && over->listeners[i].fd >= 0)
                return;
        links_member_gone(over, l->member);
    }
}

static void want(int fd, enum source source, uint32_t which, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)source << 32 | which};
    if (epoll_ctl(over->poll, EPOLL_CTL_MOD, fd, &e) < 0 && errno == ENOENT)
        epoll_ctl(over->poll, EPOLL_CTL_ADD, fd, &e);
}

/* Watches only events that matter: room at a reader's end while there are bytes for it, and its close. The writer's
 * close would be reported again and again while there is no room for the rest. */
static void watch_log(uint32_t which)
{
    struct log *l = &over->logs[which];
    if (l->fd >= 0 && log_full(l))
        epoll_ctl(over->poll, EPOLL_CTL_DEL, l->fd, NULL);
    else if (l->fd >= 0)
        want(l->fd, FROM_LOG, which, EPOLLIN);
    for (uint32_t i = 0; i < l->count; i++)
        if (l->outlets[i].fd >= 0)
            want(l->outlets[i].fd, FROM_OUTLET, which << 16 | i, l->outlets[i].sent < l->end ? EPOLLOUT : 0);
}

static void pump(uint32_t which)
{
    log_pump(&over->logs[which]);
    watch_log(which);
}

static void outlet_event(uint32_t which, uint32_t events)
{
    if (events & (EPOLLERR | EPOLLHUP))
        log_gone(&over->logs[which >> 16], which & 0xffff);
    pump(which >> 16);
}

static int sooner(int pause, int other) { return pause < 0 || (other >= 0 && other < pause) ? other : pause; }

/* Waits until all processes are restored: before that, their file descriptors are incomplete. */
static void await_all(int gate, int members)
{
    struct pollfd fds[2] = {{.fd = gate, .events = POLLIN}, {.fd = members, .events = POLLIN}};
    while (!fds[0].revents)
        if (poll(fds, 2, -1) > 0 && fds[1].revents)
            greet(members);
    close(gate);
}

_Noreturn void mapping_serve(struct supervisor *s, int members, int gate)
{
    struct epoll_event events[16];
    struct stat st;
    over = s;
    prctl(PR_SET_NAME, "mapping");
    rights_of_job(s->job);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after a change of user id, which clears it */
    s->poll = epoll_create1(EPOLL_CLOEXEC);
    if (!s->started)
        s->started = (int64_t)time(NULL);
    if (stat("/", &st) == 0) {
        s->root_device = st.st_dev;
        s->root_inode = st.st_ino;
    }
    if (gate >= 0)
        await_all(gate, members);
    watch_fd(members, FROM_MEMBERS, 0, EPOLLIN);
    readers_begin();
    unread_begin();
    for (uint32_t i = 0; i < s->log_count; i++)
        watch_log(i);
    while (true) {
        int pause = sooner(stuck_look(s), readers_look());
        if (displaced_count) {
            displaced_look();
            pause = sooner(pause, 20);
        }
        if (ahead_any()) {
            ahead_look();
            pause = sooner(pause, 50);
        }
        struct pollfd fds[2] = {{.fd = s->poll, .events = POLLIN},
                                {.fd = hot < 0 ? -1 : s->listeners[hot].fd, .events = POLLIN}};
        int any = poll(fds, 2, pause);
        if (any > 0 && fds[1].revents)
            member_event((uint32_t)hot, (uint32_t)fds[1].revents);
        int n = any > 0 && fds[0].revents ? epoll_wait(s->poll, events, sizeof events / sizeof *events, 0) : 0;
        for (int i = 0; i < n; i++) {
            uint32_t which = (uint32_t)events[i].data.u64;
            switch ((enum source)(events[i].data.u64 >> 32)) {
            case FROM_MEMBERS:
                greet(members);
                break;
            case FROM_LISTENER:
                member_event(which, events[i].events);
                break;
            case FROM_LOG:
                pump(which);
                break;
            case FROM_OUTLET:
                outlet_event(which, events[i].events);
                break;
            case FROM_READER:
            case FROM_HOLDER:
                readers_event(which, (events[i].data.u64 >> 32) == FROM_HOLDER);
                break;
            case FROM_UNREAD:
                unread_event(which);
                break;
            case FROM_AHEAD: /* all are checked in each round */
                break;
            }
        }
        if (any <= 0) /* a log that was full may have grown */
            for (uint32_t i = 0; i < s->log_count; i++)
                pump(i);
    }
}
