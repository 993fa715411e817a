/* sim_*: fault rules, and what was called. */
#define _GNU_SOURCE
#include "call.h"
#include "control.h"
#include <errno.h>
#include <fnmatch.h>

/* ---- rules ---- */

EXPORT int sim_rule(void *machine, const Rule *rule)
{
    Machine *m = machine;
    int id = NO_ROOM;
    machine_lock(m);
    for (int i = 0; i < MAX_RULE && id < 0; i++)
        if (!m->s->rule[i].id) {
            m->s->rule[i] = *rule;
            m->s->rule[i].hits = 0;
            m->s->rule[i].symbol[SYMBOL_LEN - 1] = 0;
            id = (int)(m->s->rule[i].id = ++m->s->rule_seq);
        }
    machine_unlock(m);
    return id;
}

/* 0: all */
EXPORT void sim_rule_clear(void *machine, u32 id)
{
    Machine *m = machine;
    machine_lock(m);
    for (int i = 0; i < MAX_RULE; i++)
        if (!id || m->s->rule[i].id == id)
            m->s->rule[i].id = 0;
    machine_unlock(m);
}

EXPORT u32 sim_rules(void *machine, Rule *out, u32 room)
{
    Machine *m = machine;
    u32 n = 0;
    machine_lock(m);
    for (int i = 0; i < MAX_RULE && n < room; i++)
        if (m->s->rule[i].id)
            out[n++] = m->s->rule[i];
    machine_unlock(m);
    return n;
}

/* ---- calls ---- */

static u64 count_matching(const State *s, const char *glob)
{
    u64 n = 0;
    for (int i = 0; i < MAX_SYMBOL && s->symbol[i].name[0]; i++)
        if (!fnmatch(glob, s->symbol[i].name, 0))
            n += s->symbol[i].calls;
    return n;
}

EXPORT u64 sim_calls(void *machine, const char *glob)
{
    Machine *m = machine;
    machine_lock(m);
    u64 n = count_matching(m->s, glob);
    machine_unlock(m);
    return n;
}

/* The last calls, oldest first. */
EXPORT u32 sim_call_log(void *machine, CallRow *out, u32 room)
{
    Machine *m = machine;
    State *s = m->s;
    u32 n = 0;
    machine_lock(m);
    u64 kept = s->call_head < MAX_CALL ? s->call_head : MAX_CALL;
    u64 from = s->call_head - (kept < room ? kept : room);
    for (u64 i = from; i < s->call_head; i++) {
        const CallRecord *r = &s->call[i % MAX_CALL];
        out[n] = (CallRow){.at_ns = r->at_ns, .pid = r->pid, .gpu = r->gpu, .ret = r->ret};
        memcpy(out[n++].symbol, s->symbol[r->symbol].name, SYMBOL_LEN);
    }
    machine_unlock(m);
    return n;
}

/* Blocks until the calls that match were counted `at_least` times. 0: yes; 1: timed out. */
EXPORT int sim_wait_calls(void *machine, const char *glob, u64 at_least, u32 timeout_ms)
{
    Machine *m = machine;
    u64 deadline = monotonic_ns() + (u64)timeout_ms * 1000000u;
    int why = 0;
    machine_lock(m);
    m->s->activity_waiters++;
    u32 seen = m->s->activity;
    while (count_matching(m->s, glob) < at_least && why != ETIMEDOUT) {
        machine_unlock(m);
        why = futex_wait(&m->s->activity, seen, deadline);
        machine_lock(m);
        seen = m->s->activity;
    }
    int short_of = count_matching(m->s, glob) < at_least;
    m->s->activity_waiters--;
    machine_unlock(m);
    return short_of;
}
