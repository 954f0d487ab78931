/* Pseudo-terminals with both ends in the job: settings, window size, unread data in either direction, and the processes
 * whose controlling terminal they are. A terminal whose other end is outside the job is refused by name.
 *
 * The kernel has no way to peek unread terminal data, so it is read while the job is frozen, and written again. It is
 * written under settings that do not change it (`bare`): lines stay lines, an end of file stays one, and the start of a
 * line stays without an end. */
#define _GNU_SOURCE
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "state/state.h"

#define PTS_MAJOR 136
#define TTYAUX_MAJOR 5
#define LINE_MOST 4096 /* the kernel's limit of a terminal's input */
#define STOP_BYTE 0x13
#define PATIENCE_US 5000000

enum { END_MASTER = 1, END_SLAVE, END_HUNG_UP }; /* END_*: `size` of a row; `number`: the terminal's number */
enum { PTY_LOCKED = 1, PTY_PACKETS = 2, PTY_EXCLUSIVE = 4, PTY_STOPPED = 8, PTY_NEVER_OPENED = 16 };
struct terminal { /* at the start of the master row's contents; then its output, then pieces of input */
    struct termios2 settings;
    uint32_t flags, output;
    struct winsize window;
    int32_t foreground;
    uint32_t slave_mode;
};
enum { PIECE_OPEN, PIECE_LINE, PIECE_EOF };
struct piece {
    uint32_t size, end; /* PIECE_*: ends without a delimiter, with its last byte, with an end of file */
};

static uint32_t minor_of(unsigned device) { return (device & 0xff) | (device >> 12 & 0xfff00); }

/* False: it is not a terminal. True with `known` false: it is refused. */
bool pty_save(struct dump *d, struct file *f, pid_t pid, int number, const char *name, dev_t device, bool *known)
{
    const struct sample sample = {pid, number};
    bool master = device == makedev(TTYAUX_MAJOR, 2),
         slave = major(device) == PTS_MAJOR || device == makedev(TTYAUX_MAJOR, 0);
    unsigned which = 0;
    *known = false;
    if (!master && !slave)
        return false;
    int fd = descriptor_borrow(&sample), asked = fd < 0 ? -1 : ioctl(fd, master ? TIOCGPTN : TIOCGDEV, &which);
    bool hung_up = slave && fd >= 0 && asked < 0 && errno == EIO;
    if (fd >= 0)
        close(fd);
    if (asked < 0 && !hung_up) {
        add_unsupported(d, "descriptor %d of process %d is the terminal %.200s (close it first)", number, pid, name);
        return true;
    }
    f->kind = FILE_TERMINAL;
    f->size = master ? END_MASTER : hung_up ? END_HUNG_UP : END_SLAVE;
    f->number = master ? which : hung_up ? minor(device) : minor_of(which);
    *known = true;
    return true;
}

static uint32_t master_of(const struct image *image, uint64_t number)
{
    const struct file *files = image->files.rows;
    for (uint32_t i = 0; i < image->files.count; i++)
        if (files[i].kind == FILE_TERMINAL && files[i].size == END_MASTER && files[i].number == number)
            return i;
    return NOBODY;
}

/* The first row among those that are hung up with it; NOBODY: this row is the first. */
static uint32_t first_of(const struct file *files, uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (files[i].kind == FILE_TERMINAL && files[i].size == END_HUNG_UP && files[i].number == files[row].number)
            return i;
    return NOBODY;
}

/* Called when all file descriptors are known. */
void pty_join(struct dump *d)
{
    struct file *files = d->image.files.rows;
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        if (files[i].kind == FILE_TERMINAL && files[i].size == END_HUNG_UP)
            files[i].peer = first_of(files, i);
        if (files[i].kind != FILE_TERMINAL || files[i].size != END_SLAVE)
            continue;
        const struct sample *sample = (struct sample *)d->samples.rows + i;
        if ((files[i].peer = master_of(&d->image, files[i].number)) == NOBODY)
            add_unsupported(d,
                            "descriptor %d of process %d is the terminal %.200s, whose other end is outside the job "
                            "(close it first)",
                            sample->fd, sample->pid, image_string(&d->image, files[i].path));
    }
    EACH(&d->image, processes, process, p) {
        uint32_t master = p->terminal ? master_of(&d->image, minor_of(p->terminal)) : NOBODY;
        if (p->terminal && master == NOBODY)
            add_unsupported(d, "the controlling terminal of process %d is outside the job (start it with setsid)",
                            p->pid);
        p->terminal = master == NOBODY ? 0 : master + 1;
    }
}

/* Settings under which input is not changed. `stop`: the byte that stops output; its effect shows that all bytes before
 * it were processed. */
static struct termios2 bare(const struct termios2 *t, unsigned char end, unsigned char stop)
{
    struct termios2 b = *t;
    b.c_iflag = stop ? IXON : 0;
    b.c_oflag = 0;
    b.c_lflag = t->c_lflag & ICANON;
    memset(b.c_cc, 0, sizeof b.c_cc);
    b.c_cc[VSTOP] = stop;
    if (b.c_lflag & ICANON)
        b.c_cc[VEOF] = end;
    else
        b.c_cc[VMIN] = 1;
    return b;
}

/* Finds two bytes that the input does not contain; false: there are none. */
static bool unused_bytes(const char *data, size_t size, unsigned char two[2])
{
    bool used[256] = {[0] = true, ['\n'] = true};
    int found = 0;
    for (size_t i = 0; i < size; i++)
        used[(unsigned char)data[i]] = true;
    for (int c = 1; c < 256 && found < 2; c++)
        if (!used[c])
            two[found++] = (unsigned char)c;
    return found == 2;
}

static bool takes_output(int slave)
{
    struct pollfd p = {.fd = slave, .events = POLLOUT};
    return poll(&p, 1, 0) > 0 && p.revents & POLLOUT;
}

static void start_output(int slave)
{
    ioctl(slave, TCXONC, TCOOFF);
    ioctl(slave, TCXONC, TCOON);
}

static bool write_all(int fd, const char *data, size_t size)
{
    for (uint64_t end = boot_us() + PATIENCE_US; size;) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n <= 0 && (boot_us() > end || usleep(100)))
            return false;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Sends the stop byte. When the output stops, the kernel has processed all input before it. */
static bool stop_output(int master, int slave, unsigned char stop)
{
    if (!write_all(master, (char *)&stop, 1))
        return false;
    for (uint64_t end = boot_us() + PATIENCE_US; takes_output(slave); usleep(100))
        if (boot_us() > end)
            return false;
    return true;
}

/* Without line mode the bytes are counted. Bytes that do not fit into the terminal wait in its buffer, and go in as it
 * is read. */
static bool await_bytes(int slave, size_t total)
{
    int waiting = 0;
    size_t wanted = total < LINE_MOST - 1 ? total : LINE_MOST - 1;
    for (uint64_t end = boot_us() + PATIENCE_US; ioctl(slave, FIONREAD, &waiting) == 0 && (size_t)waiting < wanted;
         usleep(100))
        if (boot_us() > end)
            return false;
    return true;
}

static bool put_line(int master, int slave, const struct termios2 *t, const char *data, const struct piece *p)
{
    unsigned char two[2];
    if (!unused_bytes(data, p->size, two))
        return false;
    struct termios2 b = bare(t, two[0], two[1]);
    if (p->end == PIECE_LINE && data[p->size - 1] != '\n') /* the line ends with another byte */
        b.c_cc[VEOL] = (unsigned char)data[p->size - 1];
    bool done = ioctl(master, TCSETS2, &b) == 0 && write_all(master, data, p->size) &&
                (p->end != PIECE_EOF || write_all(master, (char *)&two[0], 1)) && stop_output(master, slave, two[1]);
    start_output(slave);
    return done;
}

/* Writes input before output, since output can be stopped visibly only while there is none. Both ends have
 * O_NONBLOCK. */
static bool fill_terminal(int master, int slave, const struct terminal *t, const char *output, const char *input,
                          size_t size)
{
    struct termios2 b = bare(&t->settings, 0, 0);
    size_t total = 0;
    bool done = ioctl(master, TCSETS2, &b) == 0;
    start_output(slave);
    for (size_t at = 0; done && size - at >= sizeof(struct piece);) {
        struct piece p;
        memcpy(&p, input + at, sizeof p);
        at += sizeof p;
        if (p.size > size - at || (p.end == PIECE_LINE && !p.size))
            return false;
        total += p.size;
        done = b.c_lflag & ICANON ? put_line(master, slave, &t->settings, input + at, &p)
                                  : write_all(master, input + at, p.size) && await_bytes(slave, total);
        at += p.size;
    }
    done = done && ioctl(master, TCSETS2, &b) == 0 && write_all(slave, output, t->output);
    if (done && t->flags & PTY_STOPPED) { /* stopped through the master, so that it can be started from there */
        b.c_iflag = IXON;
        b.c_cc[VSTOP] = STOP_BYTE;
        done = ioctl(master, TCSETS2, &b) == 0 && stop_output(master, slave, STOP_BYTE);
    }
    return ioctl(master, TCSETS2, &t->settings) == 0 && done;
}

static void put_piece(struct dump *d, struct span *all, const char *data, size_t size, uint32_t end)
{
    struct piece p = {(uint32_t)size, end};
    all->size += image_put(&d->image, &p, sizeof p).size;
    all->size += image_put(&d->image, data, size).size;
}

/* Reads complete lines one by one, then an incomplete one. */
static void take_input(struct dump *d, struct span *all, int slave, const struct termios2 *t)
{
    char buffer[LINE_MOST];
    ssize_t n;
    struct termios2 open_end = *t;
    if (t->c_lflag & ICANON) {
        for (int count = 0; count < 2 * LINE_MOST && (n = read(slave, buffer, sizeof buffer)) >= 0; count++) {
            const unsigned char last = n ? (unsigned char)buffer[n - 1] : 0;
            bool line = n && (last == '\n' || (last && (last == t->c_cc[VEOL] || last == t->c_cc[VEOL2])));
            put_piece(d, all, buffer, (size_t)n, line ? PIECE_LINE : PIECE_EOF);
        }
        open_end.c_lflag &= ~(tcflag_t)ICANON;
        open_end.c_cc[VMIN] = 1;
        open_end.c_cc[VTIME] = 0;
        ioctl(slave, TCSETS2, &open_end);
    }
    while ((n = read(slave, buffer, sizeof buffer)) > 0)
        put_piece(d, all, buffer, (size_t)n, PIECE_OPEN);
}

/* Opens the other end, even if it is locked. */
static int open_slave(int master, int flags)
{
    int locked = 0, no = 0;
    if (ioctl(master, TIOCGPTLCK, &locked) == 0 && locked)
        ioctl(master, TIOCSPTLCK, &no);
    /* Without O_CLOEXEC, which would remain in the open file's flags and show in every descriptor. */
    int fd = ioctl(master, TIOCGPTPEER, flags | O_NOCTTY | O_NONBLOCK), err = errno;
    if (fd >= 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (locked)
        ioctl(master, TIOCSPTLCK, &locked);
    errno = err;
    return fd;
}

static const struct file *a_slave(const struct image *image, uint32_t master)
{
    EACH(image, files, file, f)
        if (f->kind == FILE_TERMINAL && f->peer == master)
            return f;
    return NULL;
}

/* The exclusive flag, which prevents further opens. */
static bool exclusive(struct dump *d, const struct file *slave, int set)
{
    int fd = slave ? descriptor_borrow((struct sample *)d->samples.rows + (slave - (struct file *)d->image.files.rows))
                   : -1,
        is = 0;
    if (fd >= 0 && ioctl(fd, TIOCGEXCL, &is) == 0 && set >= 0)
        ioctl(fd, set ? TIOCEXCL : TIOCNXCL);
    if (fd >= 0)
        close(fd);
    return is;
}

static int take_contents(struct dump *d, uint32_t row, int master, struct terminal *t, struct span *all)
{
    const struct file *slave_row = a_slave(&d->image, row);
    char buffer[LINE_MOST];
    int slave = -1, locked = 0, done = 0;
    ssize_t n;
    struct span header = image_put(&d->image, t, sizeof *t);
    *all = header;
    while ((n = read(master, buffer, sizeof buffer)) > 0) {
        t->output += (uint32_t)n;
        all->size += image_put(&d->image, buffer, (size_t)n).size;
    }
    if (!slave_row && n < 0 && errno == EAGAIN)
        t->flags |= PTY_NEVER_OPENED; /* the master would notice an open */
    if (slave_row)
        t->slave_mode = slave_row->mode;
    if (exclusive(d, slave_row, 0))
        t->flags |= PTY_EXCLUSIVE;
    if (ioctl(master, TIOCGPTLCK, &locked) == 0 && locked)
        t->flags |= PTY_LOCKED;
    if (!(t->flags & PTY_NEVER_OPENED) && (slave = open_slave(master, O_RDWR)) < 0)
        done = set_failure(&d->failure, "open", "a terminal of the job");
    if (slave >= 0) {
        t->flags |= takes_output(slave) ? 0 : PTY_STOPPED;
        take_input(d, all, slave, &t->settings);
        const char *data = (const char *)image_bytes(&d->image, header) + sizeof *t;
        if (!fill_terminal(master, slave, t, data, data + t->output, all->size - sizeof *t - t->output))
            done = set_failure(&d->failure, "write", "what waited in a terminal of the job");
        close(slave);
    }
    if (t->flags & PTY_EXCLUSIVE)
        exclusive(d, slave_row, 1);
    memcpy((char *)d->image.bytes.rows + header.at, t, sizeof *t);
    return done;
}

/* Saves a master's contents, while everything is frozen. */
int pty_contents(struct dump *d, uint32_t row)
{
    if (((struct file *)d->image.files.rows)[row].size != END_MASTER)
        return 0;
    const struct sample *sample = (struct sample *)d->samples.rows + row;
    int master = descriptor_borrow(sample), packets = 0, none = 0;
    struct pollfd told = {.fd = master, .events = POLLPRI};
    struct terminal t = {0};
    struct span all = {0};
    if (master < 0 || ioctl(master, TCGETS2, &t.settings) < 0 || ioctl(master, TIOCGWINSZ, &t.window) < 0) {
        if (master >= 0)
            close(master);
        return set_failure(&d->failure, "open", "a terminal of the job");
    }
    int flags = fcntl(master, F_GETFL), done = 0;
    ioctl(master, TIOCGPGRP, &t.foreground);
    if (ioctl(master, TIOCGPKT, &packets) == 0 && packets)
        t.flags |= PTY_PACKETS;
    if (packets && poll(&told, 1, 0) > 0 && told.revents & POLLPRI) {
        add_unsupported(
            d,
            "descriptor %d of process %d is a pseudo-terminal with an unread change of state, TIOCPKT (read it first)",
            sample->fd, sample->pid);
    } else {
        fcntl(master, F_SETFL, flags | O_NONBLOCK);
        if (packets)
            ioctl(master, TIOCPKT, &none);
        done = take_contents(d, row, master, &t, &all);
        if (packets)
            ioctl(master, TIOCPKT, &packets);
        fcntl(master, F_SETFL, flags);
        ((struct file *)d->image.files.rows)[row].contents = all;
    }
    close(master);
    return done;
}

/* Opens the master with that number; lower numbers are held open in the meantime, so that it is the next. */
static int open_master(uint64_t number)
{
    int passed[1024], count = 0, found = -1;
    unsigned which;
    errno = EBUSY;
    while (found < 0 && count < (int)(sizeof passed / sizeof *passed)) {
        int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || ioctl(fd, TIOCGPTN, &which) < 0 || which > number) {
            if (fd >= 0)
                close(fd);
            errno = fd < 0 ? errno : EBUSY; /* it is in use */
            break;
        }
        if (which == number)
            found = fd;
        else
            passed[count++] = fd;
    }
    int err = errno;
    while (count)
        close(passed[--count]);
    errno = err;
    return found;
}

static int master_end(struct restoring *r, uint32_t at, const struct file *row, int fd, struct failure *f)
{
    struct terminal t;
    errno = EBADMSG;
    if (row->contents.size < sizeof t)
        return set_failure(f, "read", "a terminal");
    const char *data = image_bytes(r->image, row->contents);
    memcpy(&t, data, sizeof t);
    data += sizeof t;
    if (t.output > row->contents.size - sizeof t)
        return set_failure(f, "read", "a terminal");
    int packets = (t.flags & PTY_PACKETS) != 0, slave = t.flags & PTY_NEVER_OPENED ? -1 : open_slave(fd, O_RDWR);
    r->spare[at] = slave;
    if (!(t.flags & PTY_NEVER_OPENED) && slave < 0)
        return set_failure(f, "open", "a terminal");
    bool done = slave < 0
                    ? ioctl(fd, TCSETS2, &t.settings) == 0
                    : fill_terminal(fd, slave, &t, data, data + t.output, row->contents.size - sizeof t - t.output);
    ioctl(fd, TIOCSWINSZ, &t.window);
    if (slave >= 0 && t.slave_mode)
        fchmod(slave, t.slave_mode & 07777);
    if (packets)
        ioctl(fd, TIOCPKT, &packets);
    return done ? 0 : set_failure(f, "write", "what waited in a terminal");
}

int pty_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f)
{
    if (row->peer != NOBODY) {
        int master = row->size == END_HUNG_UP ? r->spare[row->peer] : r->opened[row->peer],
            fd = open_slave(master, (int)(row->flags & O_ACCMODE));
        return fd < 0 ? set_failure(f, "reopen", image_string(r->image, row->path)) : fd;
    }
    char name[64];
    int fd = open_master(row->number);
    snprintf(name, sizeof name, "/dev/pts/%u", (unsigned)row->number);
    if (fd < 0)
        return set_failure(f, "reopen", name);
    if (row->size == END_MASTER)
        return master_end(r, at, row, fd, f) ? (close(fd), -1) : fd;
    int slave = open_slave(fd, (int)(row->flags & O_ACCMODE));
    r->spare[at] = fd; /* closed later, which hangs the slave up */
    return slave < 0 ? set_failure(f, "reopen", name) : slave;
}

/* Sets the exclusive flag and the lock, when all ends are open. */
void pty_shut(struct restoring *r)
{
    int yes = 1;
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        struct terminal t;
        if (row->kind != FILE_TERMINAL || row->size != END_MASTER || row->contents.size < sizeof t)
            continue;
        memcpy(&t, image_bytes(r->image, row->contents), sizeof t);
        if (t.flags & PTY_EXCLUSIVE && r->spare[i] >= 0)
            ioctl(r->spare[i], TIOCEXCL);
        yes = (t.flags & PTY_LOCKED) != 0;
        ioctl(r->opened[i], TIOCSPTLCK, &yes);
    }
}

/* A file descriptor of the controlling terminal, a readable one if possible, since the kernel requires that. If no
 * process has one, it is a new one, which the caller closes (`own`). */
static int terminal_of(const struct restoring *r, const struct process *p, int *own)
{
    int found = -1;
    *own = -1;
    for (uint32_t i = 0; p->terminal && i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        if (row->kind == FILE_TERMINAL && row->peer == p->terminal - 1 &&
            (found < 0 || (row->flags & O_ACCMODE) != O_WRONLY))
            found = r->opened[i];
    }
    if (p->terminal && found < 0)
        found = *own = open_slave(r->opened[p->terminal - 1], O_RDWR);
    return found;
}

/* Called by a session leader before it forks the members of its session. */
int pty_control(const struct restoring *r, const struct process *p)
{
    int own, fd = p->session == p->pid ? terminal_of(r, p, &own) : -1;
    if (fd < 0)
        return 0;
    int done = ioctl(fd, TIOCSCTTY, 0), err = errno;
    if (own >= 0)
        close(own);
    errno = err;
    return done;
}

static bool has_group(const struct image *image, pid_t group)
{
    EACH(image, processes, process, p)
        if (p->group == group)
            return true;
    return false;
}

static int set_foreground(const struct restoring *r, const struct process *p, int fd)
{
    const struct file *master = (struct file *)r->image->files.rows + p->terminal - 1;
    struct terminal t;
    errno = EBADMSG;
    if (master->contents.size < sizeof t)
        return -1;
    memcpy(&t, image_bytes(r->image, master->contents), sizeof t);
    if (!has_group(r->image, t.foreground))
        return 0;
    for (int tries = 0; ioctl(fd, TIOCSPGRP, &t.foreground) < 0; tries++) {
        if (tries == 5000)
            return -1;
        usleep(200);
    }
    return 0;
}

/* Called when the process is in its group. Retries, since the foreground group may not have its processes yet. */
int pty_foreground(const struct restoring *r, const struct process *p)
{
    const struct process *leader = NULL;
    EACH(r->image, processes, process, other)
        if (other->pid == p->session)
            leader = other;
    if (!leader)
        return 0;
    /* or it was in the session before the terminal became the controlling one */
    bool given_up = leader->terminal && !p->terminal && leader != p;
    int own = -1, done = 0, fd = given_up || leader == p ? terminal_of(r, leader, &own) : -1;
    if (fd >= 0 && given_up)
        ioctl(fd, TIOCNOTTY);
    else if (fd >= 0)
        done = set_foreground(r, p, fd);
    int err = errno;
    if (own >= 0)
        close(own);
    errno = err;
    return done;
}
