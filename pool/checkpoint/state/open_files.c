/* Saves file descriptors: the kind of each, which of them share an open file, and contents that exist only in the
 * kernel. A table maps the names in /proc/PID/fd to kinds; other kinds are refused by name. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

void add_unsupported(struct dump *d, const char *format, ...)
{
    char line[400];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    size_t used = strlen(d->reasons);
    d->reason_count++;
    if (used + strlen(line) + 2 < sizeof d->reasons)
        snprintf(d->reasons + used, sizeof d->reasons - used, "%s\n", line);
}

/* Checksum of the first page: in an executable or a library it holds the build id. */
uint64_t file_sum(int fd)
{
    static char page[PAGE];
    ssize_t n = pread(fd, page, sizeof page, 0);
    return n > 0 ? checksum(page, (size_t)n) : 0;
}

bool file_other_name(const char *name, const struct stat *wanted, char *other, size_t size)
{
    copy_text(other, size, name);
    char *slash = strrchr(other, '/');
    size_t length = slash ? (size_t)(slash - other) + 1 : 0;
    bool found = false;
    struct stat st;
    if (slash)
        slash[slash == other] = 0;
    DIR *dir = slash ? opendir(other) : NULL;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        found = e->d_ino == wanted->st_ino && fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                st.st_ino == wanted->st_ino && st.st_dev == wanted->st_dev;
        if (found)
            snprintf(other, size, "%.*s%s", (int)length, name, e->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* The row of a mapped file; NOBODY if its name belongs to another file by now. */
uint32_t file_mapped(struct dump *d, pid_t pid, const char *path, uint64_t device, uint64_t inode)
{
    EACH(&d->image, files, file, f)
        if (f->kind == FILE_MAPPED && f->device == device && f->inode == inode &&
            strcmp(image_string(&d->image, f->path), path) == 0)
            return (uint32_t)(f - (struct file *)d->image.files.rows);
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool same = fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == inode;
    if (same) {
        struct span text = image_text(&d->image, path);
        struct file *f = table_add(&d->image.files);
        *(struct sample *)table_add(&d->samples) = (struct sample){.pid = pid, .fd = -1};
        *f = (struct file){.kind = FILE_MAPPED,
                           .peer = NOBODY,
                           .path = text,
                           .device = device,
                           .inode = inode,
                           .size = (uint64_t)st.st_size,
                           .mode = st.st_mode,
                           .sum = file_sum(fd),
                           .times = {(uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec,
                                     (uint64_t)st.st_ctim.tv_sec * 1000000000 + (uint64_t)st.st_ctim.tv_nsec}};
    }
    if (fd >= 0)
        close(fd);
    return same ? d->image.files.count - 1 : NOBODY;
}

static const struct {
    const char *name;
    enum kind kind;
} kinds[] = {
    {"/memfd:", FILE_MEMORY},
    {"pipe:[", FILE_PIPE},
    {"anon_inode:[eventfd]", FILE_EVENT},
    {"anon_inode:[timerfd]", FILE_TIMER},
    {"anon_inode:[eventpoll]", FILE_EPOLL},
    {"anon_inode:[signalfd]", FILE_SIGNAL},
    {"anon_inode:inotify", FILE_INOTIFY},
    {"anon_inode:[inotify]", FILE_INOTIFY},
    {"anon_inode:[pidfd]", FILE_PIDFD},
};
static const struct {
    const char *name, *what;
} never[] = {
    {"anon_inode:[io_uring]", "an io_uring"},
    {"anon_inode:[fanotify]", "a fanotify watch"},
    {"anon_inode:[userfaultfd]", "a userfaultfd"},
    {"anon_inode:[perf_event]", "a performance counter"},
    {"anon_inode:bpf", "a BPF object"},
    {"mnt:", "a namespace"},
    {"net:", "a namespace"},
    {"pid:", "a namespace"},
    {"user:", "a namespace"},
};
static const char *const harmless[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* Finds an internet socket in /proc/PID/net by its inode. */
static bool is_internet(pid_t pid, unsigned long inode, char *text, size_t size)
{
    static const struct {
        const char *file, *what;
        bool wide;
    } tables[] = {
        {"net/tcp", "TCP", false}, {"net/tcp6", "TCP", true}, {"net/udp", "UDP", false}, {"net/udp6", "UDP", true}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char path[64], line[512], here[40], there[40], name[INET6_ADDRSTRLEN];
        unsigned port, own_port, state;
        unsigned long found;
        snprintf(path, sizeof path, "/proc/%d/%s", pid, tables[i].file);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, " %*d: %39[0-9A-F]:%x %39[0-9A-F]:%x %x %*s %*s %*s %*u %*u %lu", here, &own_port, there,
                       &port, &state, &found) != 6 ||
                found != inode)
                continue;
            uint32_t words[4] = {0};
            const char *address = state == 10 ? here : there; /* TCP_LISTEN */
            for (size_t w = 0; w < strlen(address) / 8 && w < 4; w++)
                sscanf(address + w * 8, "%8x", &words[w]);
            bool mapped = tables[i].wide && !words[0] && !words[1] && words[2] == htonl(0xffff);
            inet_ntop(tables[i].wide && !mapped ? AF_INET6 : AF_INET, mapped ? &words[3] : words, name, sizeof name);
            if (state == 10)
                snprintf(text, size, "a %s socket listening on port %u", tables[i].what, own_port);
            else if (port)
                snprintf(text, size, "a %s connection to %s:%u", tables[i].what, name, port);
            else
                snprintf(text, size, "a %s socket", tables[i].what);
            fclose(f);
            return true;
        }
        if (f)
            fclose(f);
    }
    return false;
}

static void refuse_socket(struct dump *d, pid_t pid, int number, unsigned long inode)
{
    char text[128] = "a socket", path[64], line[512];
    if (!is_internet(pid, inode, text, sizeof text)) {
        snprintf(path, sizeof path, "/proc/%d/net/unix", pid);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f)) {
            unsigned long found;
            char name[110] = "";
            if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %109s", &found, name) >= 1 && found == inode)
                snprintf(text, sizeof text, *name ? "a unix socket (%.100s)" : "a unix socket", name);
        }
        if (f)
            fclose(f);
    }
    add_unsupported(d, "descriptor %d of process %d is %s", number, pid, text);
}

/* Finds an open file among the rows met so far. The kernel has an order of open files, and compares two of them (kcmp);
 * `place` becomes the row's position in that order, or the position at which it would be inserted. `compare` and `what`
 * are kcmp's: KCMP_FILE and a descriptor number, or KCMP_EPOLL_TFD and an epoll's slot. */
bool file_place(const struct dump *d, pid_t pid, int compare, uintptr_t what, uint32_t *place)
{
    const uint32_t *order = d->order.rows;
    uint32_t low = 0, high = d->order.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sample *sample = (struct sample *)d->samples.rows + order[middle];
        long is = syscall(SYS_kcmp, sample->pid, pid, compare, sample->fd, what);
        if (is == 0) {
            *place = middle;
            return true;
        }
        if (is == 1)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    return false;
}

static void put_at(struct dump *d, uint32_t place, uint32_t row)
{
    table_add(&d->order);
    uint32_t *order = d->order.rows;
    memmove(order + place + 1, order + place, (d->order.count - 1 - place) * sizeof *order);
    order[place] = row;
}

/* A value in fdinfo. */
static uint64_t fdinfo_value(const char *text, const char *field, int base)
{
    const char *at = strstr(text, field);
    return at ? strtoull(at + strlen(field), NULL, base) : 0;
}

static void save_particulars(const struct dump *d, struct file *f, pid_t pid, int number, const char *text)
{
    switch (f->kind) {
    case FILE_EVENT:
        f->number = fdinfo_value(text, "eventfd-count:", 16);
        f->size = fdinfo_value(text, "eventfd-semaphore:", 10);
        break;
    case FILE_SIGNAL:
        f->number = fdinfo_value(text, "sigmask:", 16);
        break;
    case FILE_TIMER:
        timerfd_save(f, pid, number, text);
        f->times[1] += f->times[1] ? since_clocks(d) : 0;
        break;
    case FILE_PIDFD:
        f->number = pidfd_process(text);
        break;
    default:
        break;
    }
}

/* A file whose name was removed: memory, a pipe, a removed directory, or a file with another name. */
static bool removed_kind(struct dump *d, struct file *f, pid_t pid, int number, const char *name, const struct stat *st)
{
    if (!st->st_nlink) {
        if (S_ISREG(st->st_mode) || S_ISFIFO(st->st_mode)) {
            f->kind = S_ISREG(st->st_mode) ? FILE_MEMORY : FILE_PIPE; /* a named pipe without its name is a pipe */
            return true;
        }
        if (removed_save(d, f, pid, number, name))
            return true;
        add_unsupported(
            d, "descriptor %d of process %d is a removed file that cannot be made again: %.200s (close it first)",
            number, pid, name);
        return false;
    }
    char other[4200];
    if (!file_other_name(name, st, other, sizeof other)) {
        add_unsupported(
            d, "descriptor %d of process %d has lost its name %.200s and has others elsewhere (open it by one of them)",
            number, pid, name);
        return false;
    }
    f->path = image_text(&d->image, other);
    return true;
}

static bool known_kind(struct dump *d, struct file *f, pid_t pid, int number, const char *name, const struct stat *st)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (starts(name, kinds[i].name)) {
            f->kind = kinds[i].kind;
            return true;
        }
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (starts(name, never[i].name)) {
            add_unsupported(d, "descriptor %d of process %d is %s", number, pid, never[i].what);
            return false;
        }
    if (starts(name, "socket:[")) {
        bool told, known = inet_save(d, f, pid, number, &told);
        if (!known && !told)
            known = socket_save(d, f, pid, number, st->st_ino, &told);
        if (!known && !told)
            refuse_socket(d, pid, number, st->st_ino);
        return known;
    }
    f->kind = FILE_PLAIN;
    if (S_ISCHR(st->st_mode)) {
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            if (strcmp(name, harmless[i]) == 0)
                return true;
        bool known;
        if (!(f->flags & O_PATH) && pty_save(d, f, pid, number, name, st->st_rdev, &known))
            return known;
    }
    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode) || name[0] != '/') {
        add_unsupported(d, "descriptor %d of process %d is the device %.200s (close it first)", number, pid, name);
        return false;
    }
    unsigned ended;
    if (sscanf(name, "/proc/%u", &ended) == 1 && access(name, F_OK) < 0 && errno == ENOENT) {
        add_unsupported(
            d, "descriptor %d of process %d is a /proc file of process %u, which has exited: %.200s (close it first)",
            number, pid, ended, name);
        return false;
    }
    size_t n = strlen(name);
    return n > 10 && strcmp(name + n - 10, " (deleted)") == 0 ? removed_kind(d, f, pid, number, name, st) : true;
}

char *proc_whole(pid_t pid, const char *name)
{
    static char *text;
    static size_t room;
    char path[96];
    size_t got = 0;
    snprintf(path, sizeof path, "/proc/%d/%.64s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n = 1; fd >= 0 && n > 0; got += n > 0 ? (size_t)n : 0) {
        if (room - got < PAGE) {
            char *more = realloc(text, room ? room * 2 : 16 * PAGE);
            if (!more)
                break;
            text = more;
            room = room ? room * 2 : 16 * PAGE;
        }
        n = read(fd, text + got, room - got - 1);
    }
    if (fd >= 0)
        close(fd);
    if (got)
        text[got] = 0;
    return got ? text : NULL;
}

/* For each descriptor number the process in which it was last met, and the row: most processes have the files that they
 * inherited. */
static struct last {
    pid_t pid;
    uint32_t row;
} *lasts;
static int last_count;

static bool is_as_last(pid_t pid, int number)
{
    return number < last_count && lasts[number].pid &&
           syscall(SYS_kcmp, lasts[number].pid, pid, KCMP_FILE, number, number) == 0;
}

static void note_last(pid_t pid, int number, uint32_t row)
{
    if (number >= last_count) {
        int count = number + 256;
        struct last *more = realloc(lasts, (size_t)count * sizeof *lasts);
        if (!more)
            return;
        memset(more + last_count, 0, (size_t)(count - last_count) * sizeof *more);
        lasts = more;
        last_count = count;
    }
    lasts[number] = (struct last){pid, row};
}

static int read_flags(struct dump *d, pid_t pid, int number, struct met *met)
{
    char name[64];
    snprintf(name, sizeof name, "fdinfo/%d", number);
    if (!(met->text = proc_whole(pid, name)))
        return set_failure(&d->failure, "read", name);
    met->flags = (uint32_t)fdinfo_value(met->text, "flags:", 8);
    return 0;
}

int file_met(struct dump *d, pid_t pid, int number, struct met *met)
{
    char link[64], name[4200];
    struct stat st;
    *met = (struct met){.row = NOBODY};
    if (is_as_last(pid, number)) {
        met->row = lasts[number].row;
        return read_flags(d, pid, number, met);
    }
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, number);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0 || stat(link, &st) < 0)
        return set_failure(&d->failure, "read", link);
    name[n] = 0;
    if (read_flags(d, pid, number, met))
        return -1;
    const char *text = met->text;
    uint32_t place;
    if (file_place(d, pid, KCMP_FILE, (uintptr_t)number, &place)) {
        met->row = ((uint32_t *)d->order.rows)[place];
        note_last(pid, number, met->row);
        return 0;
    }
    met->fresh = true;
    struct file f = {.flags = met->flags & ~(uint32_t)O_CLOEXEC,
                     .mode = st.st_mode,
                     .peer = NOBODY,
                     .device = st.st_dev,
                     .inode = st.st_ino,
                     .size = (uint64_t)st.st_size,
                     .position = (int64_t)fdinfo_value(text, "pos:", 10)};
    if (!known_kind(d, &f, pid, number, name, &st))
        return 0;
    if (!f.path.size)
        f.path = image_text(&d->image, f.kind == FILE_MEMORY && starts(name, "/memfd:") ? name + 7 : name);
    if (f.kind == FILE_PIPE)
        f.number = st.st_ino;
    if (f.kind == FILE_MEMORY) {
        f.times[0] = (uint64_t)st.st_atim.tv_sec * 1000000000 + (uint64_t)st.st_atim.tv_nsec;
        f.times[1] = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
    }
    save_particulars(d, &f, pid, number, text);
    met->row = d->image.files.count;
    *(struct file *)table_add(&d->image.files) = f;
    *(struct sample *)table_add(&d->samples) = (struct sample){.pid = pid, .fd = number};
    put_at(d, place, met->row);
    note_last(pid, number, met->row);
    if (f.kind == FILE_EPOLL)
        epoll_save(d, met->row, text);
    return 0;
}

static int save_one(struct dump *d, struct dumped_process *s, int number)
{
    struct met met;
    if (file_met(d, s->pid, number, &met))
        return -1;
    if (met.row == NOBODY)
        return 0;
    locks_save(d, s, met.row, number, met.text, met.fresh);
    bool on_exec = met.flags & O_CLOEXEC;
    if (on_exec && s->room && ((struct file *)d->image.files.rows)[met.row].kind == FILE_TERMINAL)
        on_exec = CALL(&s->threads[0], SYS_fcntl, number, F_GETFD) &
                  FD_CLOEXEC; /* TIOCGPTPEER sets O_CLOEXEC in the flags of the open file */
    struct descriptor *e = table_add(&d->image.descriptors);
    *e = (struct descriptor){.owner = s->row, .file = met.row, .number = number, .close_on_exec = on_exec};
    return 0;
}

int descriptors_save(struct dump *d, struct dumped_process *s)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", s->pid);
    DIR *dir = opendir(path);
    if (!dir)
        return set_failure(&d->failure, "open", path);
    int done = 0;
    for (struct dirent *e; !done && (e = readdir(dir));)
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            done = save_one(d, s, atoi(e->d_name));
    closedir(dir);
    return done;
}

/* A copy of a process's own file descriptor, not a new open file; -1: before Linux 5.6. */
int descriptor_borrow(const struct sample *sample)
{
    int of = (int)syscall(SYS_pidfd_open, sample->pid, 0),
        fd = of < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, of, sample->fd, 0);
    if (of >= 0)
        close(of);
    return fd;
}

static int open_through(const struct sample *sample, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", sample->pid, sample->fd);
    return open(path, flags | O_CLOEXEC | O_NONBLOCK);
}

/* Whether the job has a read end of the pipe. */
static bool is_read(const struct dump *d, uint32_t row)
{
    const struct file *files = d->image.files.rows;
    for (uint32_t i = 0; i < d->image.files.count; i++)
        if ((i == row || files[i].peer == row) && (files[i].flags & O_ACCMODE) != O_WRONLY)
            return true;
    return false;
}

/* Copies the contents with tee(), so that the pipe is unchanged. */
static int pipe_contents(struct dump *d, uint32_t row)
{
    static char buffer[1 << 20];
    int ends[2], waiting = 0;
    struct file *f = (struct file *)d->image.files.rows + row;
    if (is_fifo(f) && !is_read(d, row))
        return 0; /* the reader is not in the job, or has not opened it yet */
    int from = open_through((struct sample *)d->samples.rows + row, O_RDONLY);
    if (from < 0 || ioctl(from, FIONREAD, &waiting) < 0 || pipe2(ends, O_CLOEXEC) < 0) {
        if (from >= 0)
            close(from);
        return set_failure(&d->failure, "open", "a pipe of the job");
    }
    f->size = (uint64_t)fcntl(from, F_GETPIPE_SZ);
    fcntl(ends[1], F_SETPIPE_SZ, (int)f->size);
    ssize_t n = 0;
    if (waiting > 0) {
        n = tee(from, ends[1], sizeof buffer, SPLICE_F_NONBLOCK);
        if (n > 0)
            n = read(ends[0], buffer, sizeof buffer);
    }
    int done = waiting > 0 && n != waiting ? set_failure(&d->failure, "tee", "a pipe of the job") : 0;
    if (!done && n > 0) {
        struct span contents = image_put(&d->image, buffer, (size_t)n);
        ((struct file *)d->image.files.rows)[row].contents = contents;
    }
    close(ends[0]);
    close(ends[1]);
    close(from);
    return done;
}

static int memory_contents(struct dump *d, uint32_t row)
{
    static char buffer[1 << 20];
    int fd = open_through((struct sample *)d->samples.rows + row, O_RDONLY), done = 0;
    if (fd < 0)
        return set_failure(&d->failure, "open", "a memory file or deleted file of the job");
    for (off_t at = 0; !done && (at = lseek(fd, at, SEEK_DATA)) >= 0;) {
        off_t end = lseek(fd, at, SEEK_HOLE);
        at &= ~(off_t)(PAGE - 1);
        while (at < end && !done) {
            size_t wanted =
                (size_t)(end - at) < sizeof buffer ? (size_t)(end - at) : sizeof buffer; /* holes are skipped */
            ssize_t n = pread(fd, buffer, wanted, at);
            if (n <= 0)
                break;
            size_t whole = ((size_t)n + PAGE - 1) & ~(PAGE - 1);
            memset(buffer + n, 0, whole - (size_t)n);
            done = writer_put(&d->out, 0, row, (uint64_t)at, buffer, whole, &d->failure);
            at += (off_t)whole;
        }
    }
    close(fd);
    return done;
}

/* Rows with the same inode refer to the first of them as their peer. A row with a file descriptor, which knows the
 * size, comes before one that is only mapped. */
void files_peers(struct dump *d)
{
    struct file *files = d->image.files.rows;
    struct sample *samples = d->samples.rows;
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        struct file *f = &files[i];
        bool dead = f->kind == FILE_PIDFD && !f->number;
        if (f->kind != FILE_PIPE && f->kind != FILE_MEMORY && f->kind != FILE_REMOVED && !dead && !is_fifo(f))
            continue;
        uint32_t first = i;
        for (uint32_t j = 0; j < d->image.files.count; j++) {
            bool same = files[j].kind == f->kind && files[j].device == f->device && files[j].inode == f->inode;
            bool better = (samples[j].fd >= 0) != (samples[first].fd >= 0) ? samples[j].fd >= 0 : j < first;
            if (same && better)
                first = j;
        }
        f->peer = first == i ? NOBODY : first;
    }
}

/* Saves contents once for each pipe and each memory file. */
int files_contents(struct dump *d)
{
    for (uint32_t i = 0; i < d->image.files.count; i++) {
        struct file *files = d->image.files.rows, *f = &files[i];
        if (((f->kind == FILE_PAIR || f->kind == FILE_NAMED) && socket_contents(d, i)) ||
            (f->kind == FILE_TERMINAL && pty_contents(d, i)))
            return -1;
        if (f->kind != FILE_PIPE && f->kind != FILE_MEMORY && !is_fifo(f))
            continue;
        if (f->peer != NOBODY || ((struct sample *)d->samples.rows)[i].fd < 0)
            continue;
        if (f->kind == FILE_MEMORY ? memory_contents(d, i) : pipe_contents(d, i))
            return -1;
    }
    return inet_contents(d);
}
