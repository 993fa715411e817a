/* Mapping and locking of the state file.
 *
 * The lock is an open-file-description lock, so that the kernel gives it back when a holder dies,
 * whatever PID namespace or libc the other users have. OFD locks do not exclude threads that share
 * the description, hence the mutex beside it, and a forked child must open its own description. */
#define _GNU_SOURCE
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static Machine *machines;
static pthread_mutex_t machines_mutex = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
    pthread_mutex_lock(&process_mutex);
    pthread_mutex_lock(&machines_mutex);
    for (Machine *m = machines; m; m = m->next)
        pthread_mutex_lock(&m->mutex);
}

static void after_fork_in_parent(void)
{
    for (Machine *m = machines; m; m = m->next)
        pthread_mutex_unlock(&m->mutex);
    pthread_mutex_unlock(&machines_mutex);
    pthread_mutex_unlock(&process_mutex);
}

static void after_fork_in_child(void)
{
    for (Machine *m = machines; m; m = m->next) {
        char self[32];
        snprintf(self, sizeof self, "/proc/self/fd/%d", m->fd);
        int own = open(self, O_RDWR | O_CLOEXEC);
        if (own >= 0) { /* without /proc the child shares the lock: it may still exec */
            close(m->fd);
            m->fd = own;
        }
        pthread_mutex_init(&m->mutex, NULL);
        m->in_flight = 0;
    }
    pthread_mutex_init(&machines_mutex, NULL);
    pthread_mutex_init(&process_mutex, NULL);
}

static void register_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static Machine *map(int fd)
{
    struct stat st;
    Machine *m = NULL;
    State *s = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof(State))
        s = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s != MAP_FAILED && (s->magic != MAGIC || s->layout != LAYOUT || s->size != sizeof(State))) {
        munmap(s, sizeof(State));
        s = MAP_FAILED;
    }
    if (s != MAP_FAILED)
        m = calloc(1, sizeof *m);
    if (!m) {
        if (s != MAP_FAILED)
            munmap(s, sizeof(State));
        close(fd);
        return NULL;
    }
    m->s = s;
    m->fd = fd;
    m->inode = st.st_ino;
    pthread_mutex_init(&m->mutex, NULL);

    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handlers);
    pthread_mutex_lock(&machines_mutex);
    m->next = machines;
    machines = m;
    pthread_mutex_unlock(&machines_mutex);
    return m;
}

Machine *machine_open(const char *file)
{
    int fd = open(file, O_RDWR | O_CLOEXEC);
    return fd < 0 ? NULL : map(fd);
}

/* A new inode each time: processes that run on keep the old machine until they initialise again. */
Machine *machine_create(const char *file)
{
    char fresh[PATH_MAX];
    if ((size_t)snprintf(fresh, sizeof fresh, "%s.%d.new", file, getpid()) >= sizeof fresh)
        return NULL;
    int fd = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return NULL;
    struct { u64 magic; u32 layout, size; } head = {MAGIC, LAYOUT, sizeof(State)};
    if (fchmod(fd, 0666) || ftruncate(fd, sizeof(State)) ||
        pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head) {
        close(fd);
        unlink(fresh);
        return NULL;
    }
    Machine *m = map(fd);
    if (m && rename(fresh, file)) {
        machine_close(m);
        m = NULL;
    }
    if (!m)
        unlink(fresh);
    return m;
}

void machine_close(Machine *m)
{
    pthread_mutex_lock(&machines_mutex);
    for (Machine **p = &machines; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    pthread_mutex_unlock(&machines_mutex);
    munmap(m->s, sizeof(State));
    close(m->fd);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

static void file_lock(Machine *m, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    while (fcntl(m->fd, F_OFD_SETLKW, &range))
        if (errno != EINTR) {
            perror("simnvml: lock of the state file");
            abort(); /* going on without the lock would corrupt every other process */
        }
}

void machine_lock(Machine *m)
{
    pthread_mutex_lock(&m->mutex);
    file_lock(m, F_WRLCK);
}

void machine_unlock(Machine *m)
{
    file_lock(m, F_UNLCK);
    pthread_mutex_unlock(&m->mutex);
}

u64 monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

u64 realtime_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (u64)t.tv_sec * 1000000u + (u64)t.tv_nsec / 1000;
}

/* Not the private flavour: the key is then the inode, so it works across namespaces. */
void futex_wake(u32 *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int futex_wait(u32 *word, u32 seen, u64 deadline_ns)
{
    struct timespec end = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &end, NULL, FUTEX_BITSET_MATCH_ANY) == 0)
        return 0;
    return errno == EAGAIN ? 0 : errno;
}

/* splitmix64 */
u64 random_next(u64 *seed)
{
    u64 z = (*seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void ring_bell(State *s)
{
    __atomic_add_fetch(&s->bell, 1, __ATOMIC_RELEASE);
    futex_wake(&s->bell);
}

void publish_event(State *s, u32 gpu, u64 type, u64 data, u32 gi, u32 ci)
{
    s->event[s->event_head % MAX_EVENT] = (Event){type, data, realtime_us(), gpu, gi, ci};
    s->event_head++;
    ring_bell(s);
}

void destroy_all_instances(Gpu *g)
{
    for (int i = 0; i < MAX_GI; i++)
        g->gi[i].used = 0;
    memset(g->process, 0, sizeof g->process);
}
