/* The file server's loop: the kernel, the submit side, and the keeper, which hands it streams and asks whether all is
 * done. It is not a process of the job: it has no file descriptor of the node, opens no path (which could lead to
 * itself), and exits with the keeper, and the mounts with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fd_passing.h"
#include "remote/parts.h"

#define TURNS 256 /* before others get their turn */
#define LATE_MS 1 /* the longest that late settings and removals wait for more */

struct serving serving;

static int control, settle;
static bool ending, settling, marking;
static uint64_t mark;

static void tell_keeper(int fd, uint64_t value)
{
    struct remote_message m = {.value = value};
    while (send(fd, &m, sizeof m, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
}

/* False: the other end is gone. */
static bool hear_keeper(int fd)
{
    struct remote_message m;
    int passed;
    ssize_t n = receive_with_fd(fd, &m, sizeof m, &passed, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (n < (ssize_t)sizeof m)
        return false;
    if (m.what == REMOTE_STREAM && passed >= 0)
        link_open(passed);
    else if (passed >= 0)
        close(passed);
    if (m.what == REMOTE_END)
        ending = true;
    if (m.what == REMOTE_SETTLE) {
        settling = true;
        mark = m.value;
    }
    return true;
}

static void marked(struct request *r, int error, struct reader *answer)
{
    (void)r, (void)answer;
    settling = marking = false;
    tell_keeper(settle, (uint64_t)error);
}

/* The supervisor sends the job's last writes before it closes its sockets. */
static bool still_asked_by_supervisor(void)
{
    for (size_t i = 0; i < serving.count && serving.notified; i++)
        if (serving.trees[i].fd >= 0)
            return true;
    return false;
}

/* Called when no request is unanswered, and the kernel had none when it was asked last. */
static void when_still(void)
{
    if (settling && !marking && mark) {
        struct request *r = request_new(R_MARK, NULL, marked);
        put_number(r, mark, 8);
        marking = true;
        request_send(r);
    } else if (settling && !marking) {
        settling = false;
        tell_keeper(settle, 0);
    }
    if (ending && !link_unanswered() && !still_asked_by_supervisor()) {
        ending = false;
        tell_keeper(control, 0);
    }
}

static bool ask_kernel(void)
{
    bool any = false;
    for (size_t i = 0; i < serving.count; i++)
        any |= serving.trees[i].fd >= 0 && kernel_readable(&serving.trees[i]);
    return any;
}

/* Until there was no request twice: the caller does something else. */
static void serve_busy_thread(void)
{
    for (int turn = 0, nothing = 0; turn < TURNS && nothing < 2 && follow_waits(); turn++)
        nothing = ask_kernel() ? 0 : nothing + 1;
}

static void send_late(void)
{
    late_send();
    removals_send();
}

static _Noreturn void serve_forever(void)
{
    for (;;) {
        struct pollfd fds[5 + sizeof serving.trees / sizeof *serving.trees];
        nfds_t count = 5;
        fds[0] = (struct pollfd){.fd = control, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = settle, .events = POLLIN};
        fds[2] = (struct pollfd){.fd = link_fd(), .events = (short)(POLLIN | (link_wants_out() ? POLLOUT : 0))};
        fds[3] = (struct pollfd){.fd = refresh_fd(), .events = POLLIN};
        fds[4] = (struct pollfd){.fd = expiry_fd(), .events = POLLIN};
        for (size_t i = 0; i < serving.count; i++)
            fds[count++] = (struct pollfd){.fd = serving.trees[i].fd, .events = POLLIN};
        int ready = poll(fds, count, late_waits() || removals_wait() ? LATE_MS : -1);
        if (ready < 0)
            continue;
        if (!ready)
            send_late();
        if (fds[0].revents && !hear_keeper(control))
            _exit(0);
        if (fds[1].revents)
            hear_keeper(settle);
        if (fds[2].revents & ~POLLOUT && fds[2].fd == link_fd())
            link_readable();
        if (fds[3].revents)
            refresh_done();
        if (fds[4].revents)
            expiry_done();
        follow_wakes();
        if (ask_kernel())
            serve_busy_thread();
        follow_sleeps();
        removals_hurry();
        if (settling || ending)
            send_late();
        link_flush();
        if ((settling || ending) && !link_unanswered()) {
            when_still();
            link_flush();
        }
    }
}

static void prepare_server(void)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignored, NULL);
    prctl(PR_SET_NAME, "keeper-files");
    mallopt(M_MMAP_THRESHOLD, 64 << 20); /* keeps freed buffers of a megabyte, so that their pages are reused */
    mallopt(M_TRIM_THRESHOLD, 128 << 20);
    follow_begin();
    serving.submit_uid = serving.submit_gid = UINT32_MAX;
}

static bool whole_machine(void)
{
    char text[64] = "";
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    unsigned long first = 0, outside = 0, count = 0;
    if (fd >= 0)
        close(fd);
    return n <= 0 || (sscanf(text, "%lu %lu %lu", &first, &outside, &count) == 3 && count > 1);
}

_Noreturn void remote_serve(const struct job *job, const int devices[], const int tellers[], struct remote_control ends)
{
    serving.uid = job->start->uid;
    serving.gid = job->start->gid;
    serving.own_users = !whole_machine();
    copy_text(serving.job, sizeof serving.job, job->id);
    char *run = strrchr(serving.job, '.');
    if (run)
        *run = 0;
    for (uint32_t i = 0; i < job->start->remotes; i++)
        serving.trees[serving.count++] = (struct tree){.fd = devices[i],
                                                       .teller = tellers ? tellers[i] : -1,
                                                       .path = job->remote[i],
                                                       .without_open = tellers && job->start->static_remotes >> i & 1};
    serving.notified = !tellers;
    for (int place = UP; place < FIRST_FREE; place++)
        if (place != ends.control && place != ends.settle)
            close(place);
    control = ends.control;
    settle = ends.settle;
    prepare_server();
    serve_forever();
}
