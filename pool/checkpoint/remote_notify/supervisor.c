/* The supervisor's loop: a notification of the kernel, its answer, and every second the sending of written data. It has
 * one thread, so that no state changes during an answer: a call that waits for the submit side delays other calls with
 * names, but not reads and writes. It exits when all processes of the job have exited, and the file server's work ends
 * with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote_notify/parts.h"

#define PAUSE_MS 1000 /* between two checks for written data */

struct notifier *notifier;

static uint32_t listeners;

/* Receives the listener of a process of the job, before that opens any file. False: all have sent theirs. */
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
    notification_listen(notifier->listeners[listeners++]);
    return true;
}

/* False: no process is left that has this filter. */
static bool hear_call(int listener, short events)
{
    struct notification q;
    if (!(events & POLLIN))
        return !(events & (POLLHUP | POLLERR));
    if (notification_receive(&q, listener, 0)) {
        names_forget();
        handle_call(&q);
        notification_answer(&q);
    }
    return true;
}

static _Noreturn void finish_job(void)
{
    stands_send();
    stands_sweep(true);
    _exit(0);
}

static _Noreturn void serve_forever(int members)
{
    while (members >= 0 || listeners) {
        struct pollfd fds[1 + MEMBERS_MOST] = {{.fd = members, .events = POLLIN}};
        uint32_t count = listeners;
        for (uint32_t i = 0; i < count; i++)
            fds[1 + i] = (struct pollfd){.fd = notifier->listeners[i], .events = POLLIN};
        int ready = poll(fds, 1 + count, notifier->stands ? PAUSE_MS : -1);
        if (ready == 0) {
            stands_send();
            stands_sweep(false);
        }
        for (uint32_t i = count; ready > 0 && i-- > 0;)
            if (fds[1 + i].revents && !hear_call(notifier->listeners[i], fds[1 + i].revents)) {
                close(notifier->listeners[i]);
                notifier->listeners[i] = notifier->listeners[--listeners];
            }
        if (ready > 0 && fds[0].revents && !greet(members)) {
            close(members);
            members = -1;
        }
    }
    finish_job();
}

_Noreturn void notify_serve(struct notifier *n, int members)
{
    struct stat st;
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignored, NULL);
    sigaction(SIGIO, &ignored, NULL); /* sent if a lease is broken while it is tested */
    notifier = n;
    prctl(PR_SET_NAME, "keeper-names");
    rights_of_job(n->job);
    if (fstat(n->tops[0], &st) < 0)
        _exit(1);
    n->device = st.st_dev;
    serve_forever(members);
}
