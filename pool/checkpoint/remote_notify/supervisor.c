/* The supervisor's loop: a question of the kernel's, its answer, and each second what was written meanwhile.
 *
 * One thread, so that an answer is given on a state that nobody changes meanwhile: whoever waits for home keeps the
 * others waiting with their names, not with their reads and writes. It ends when all processes of the job have, and
 * with it the file server's work. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define PAUSE_MS 1000 /* between two looks at what was written */

struct notifier *notifier;

static uint32_t listeners;

/* A process of the job, before it opens anything, sends the descriptor at which it is asked about. False: all have. */
static bool greet(int members)
{
    uint32_t member;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } extra;
    struct iovec part = {&member, sizeof member};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &extra, .msg_controllen = sizeof extra};
    ssize_t n = recvmsg(members, &m, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR)
        return true;
    struct cmsghdr *held = n == sizeof member ? CMSG_FIRSTHDR(&m) : NULL;
    if (!held || listeners == MEMBERS_MOST)
        return false;
    memcpy(&notifier->listeners[listeners], CMSG_DATA(held), sizeof(int));
    question_listen(notifier->listeners[listeners++]);
    return true;
}

/* False when nobody is left who could ask. */
static bool hear(int listener, short events)
{
    struct question q;
    if (!(events & POLLIN))
        return !(events & (POLLHUP | POLLERR));
    if (question_hear(&q, listener, 0)) {
        names_forget();
        handle_call(&q);
        question_answer(&q);
    }
    return true;
}

static _Noreturn void finish(void)
{
    stands_home();
    stands_sweep(true);
    _exit(0);
}

static _Noreturn void loop(int members)
{
    while (members >= 0 || listeners) {
        struct pollfd fds[1 + MEMBERS_MOST] = {{.fd = members, .events = POLLIN}};
        uint32_t count = listeners;
        for (uint32_t i = 0; i < count; i++)
            fds[1 + i] = (struct pollfd){.fd = notifier->listeners[i], .events = POLLIN};
        int ready = poll(fds, 1 + count, notifier->stands ? PAUSE_MS : -1);
        if (ready == 0) {
            stands_home();
            stands_sweep(false);
        }
        for (uint32_t i = count; ready > 0 && i-- > 0;)
            if (fds[1 + i].revents && !hear(notifier->listeners[i], fds[1 + i].revents)) {
                close(notifier->listeners[i]);
                notifier->listeners[i] = notifier->listeners[--listeners];
            }
        if (ready > 0 && fds[0].revents && !greet(members)) {
            close(members);
            members = -1;
        }
    }
    finish();
}

_Noreturn void notify_serve(struct notifier *n, int members)
{
    struct stat st;
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignored, NULL);
    sigaction(SIGIO, &ignored, NULL); /* a lease that somebody breaks while it is tried */
    notifier = n;
    prctl(PR_SET_NAME, "keeper-names");
    rights_of_job(n->job);
    if (fstat(n->tops[0], &st) < 0)
        _exit(1);
    n->device = st.st_dev;
    loop(members);
}
