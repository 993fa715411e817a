/* Event sets: each keeps its own cursor into the shared ring, so every set of every process gets
 * every event it registered for. A reader more than a ring behind loses the oldest. */
#define _GNU_SOURCE
#include "call.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct EventSet {
    struct EventSet *next;
    u64 types[MAX_GPU];
    u64 machine_inode; /* a set belongs to the machine it was made on */
    u32 cursor;
    u32 waiters;
} EventSet;

static EventSet *sets; /* guarded by process_mutex, which every call holds */

static EventSet *find(const Call *c, const void *pointer)
{
    for (EventSet *e = sets; e; e = e->next)
        if (e == pointer)
            return e->machine_inode == c->m->inode ? e : NULL;
    return NULL;
}

EXPORT ret_t nvmlEventSetCreate(void **out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    EventSet *e = calloc(1, sizeof *e);
    REFUSE_IF(!e, OUT_OF_MEMORY);
    e->cursor = c.s->event_head;
    e->machine_inode = c.m->inode;
    e->next = sets;
    *out = sets = e;
    LEAVE(OK);
}

EXPORT ret_t nvmlEventSetFree(void *set)
{
    ENTER(NULL, NO_HANDLE);
    for (EventSet **p = &sets; *p; p = &(*p)->next)
        if (*p == set) {
            EventSet *e = *p;
            REFUSE_IF(e->waiters, IN_USE);
            *p = e->next;
            free(e);
            LEAVE(OK);
        }
    LEAVE(INVALID_ARGUMENT);
}

EXPORT ret_t nvmlDeviceGetSupportedEventTypes(void *device, u64 *out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = c.g->event_types;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceRegisterEvents(void *device, u64 types, void *set)
{
    ENTER(device, ON_GPU);
    EventSet *e = find(&c, set);
    REFUSE_IF(!e, INVALID_ARGUMENT);
    REFUSE_IF(types & ~c.g->event_types, NOT_SUPPORTED);
    e->types[c.gpu] |= types;
    LEAVE(OK);
}

static int take_event(const Call *c, EventSet *e, Event *out)
{
    const State *s = c->s;
    if (s->event_head - e->cursor > MAX_EVENT)
        e->cursor = s->event_head - MAX_EVENT;
    while (e->cursor != s->event_head) {
        *out = s->event[e->cursor++ % MAX_EVENT];
        if (out->gpu < MAX_GPU && e->types[out->gpu] & out->type)
            return 1;
    }
    return 0;
}

static int watches_a_lost_gpu(const Call *c, const EventSet *e)
{
    for (int i = 0; i < MAX_GPU; i++)
        if (e->types[i] && (c->s->gpu[i].lost || !c->s->gpu[i].present))
            return 1;
    return 0;
}

/* Called and left with the lock held, unless the library was shut down meanwhile. */
static ret_t wait_event(Call *c, EventSet *e, u32 timeout_ms, Event *out)
{
    u64 deadline = monotonic_ns() + (u64)timeout_ms * 1000000u;
    for (;;) {
        u32 seen = c->s->bell; /* read before looking: what comes after rings it again */
        if (take_event(c, e, out))
            return OK;
        if (watches_a_lost_gpu(c, e))
            return GPU_IS_LOST;
        if (monotonic_ns() >= deadline)
            return TIMEOUT;
        e->waiters++;
        u32 *bell = &c->s->bell;
        pause_call(c);
        int why = futex_wait(bell, seen, deadline);
        if (!resume_call(c)) {
            pthread_mutex_lock(&process_mutex);
            e->waiters--;
            pthread_mutex_unlock(&process_mutex);
            return UNINITIALIZED;
        }
        e->waiters--;
        if (why == EINTR)
            return TIMEOUT; /* as the real one: a signal ends the wait */
    }
}

EXPORT ret_t nvmlEventSetWait_v2(void *set, EventData *out, u32 timeout_ms)
{
    ENTER(NULL, NO_HANDLE);
    EventSet *e = find(&c, set);
    REFUSE_IF(!e || !out, INVALID_ARGUMENT);
    Event v;
    ret_t ret = wait_event(&c, e, timeout_ms, &v);
    if (ret == OK)
        *out = (EventData){handle_of_gpu(v.gpu), v.type, v.data, v.gi, v.ci};
    LEAVE(ret);
}

EXPORT ret_t nvmlEventSetWait(void *set, EventData *out, u32 timeout_ms)
{
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}

EXPORT ret_t nvmlEventSetWait_v3(void *set, EventWaitV3 *io)
{
    ENTER(NULL, NO_HANDLE);
    EventSet *e = find(&c, set);
    REFUSE_IF(!e || !io, INVALID_ARGUMENT);
    Event v;
    u32 timeout_ms = io->timeout_ms;
    ret_t ret = wait_event(&c, e, timeout_ms, &v);
    if (ret == OK) {
        *io = (EventWaitV3){.timeout_ms = timeout_ms, .type = v.type, .data = v.data,
                            .timestamp_us = v.at_us, .trace_id = e->cursor, .gi = v.gi, .ci = v.ci};
        snprintf(io->uuid, sizeof io->uuid, "%s", c.s->gpu[v.gpu].uuid);
    }
    LEAVE(ret);
}
