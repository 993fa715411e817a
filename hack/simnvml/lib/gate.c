/* The gate of every call: is the library up, who is asked, what is counted, which fault applies. */
#define _GNU_SOURCE
#include "call.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

Nvml nvml;

static void lock_both(Machine *m)
{
    pthread_mutex_lock(&process_mutex);
    machine_lock(m);
}

static void unlock_both(Machine *m)
{
    machine_unlock(m);
    pthread_mutex_unlock(&process_mutex);
}

static void announce(State *s)
{
    __atomic_add_fetch(&s->activity, 1, __ATOMIC_RELEASE);
    if (s->activity_waiters)
        futex_wake(&s->activity);
}

static u32 count_call(State *s, const char *symbol, u32 *hint)
{
    u32 i = *hint;
    if (i >= MAX_SYMBOL || strcmp(s->symbol[i].name, symbol))
        for (i = 0; i < MAX_SYMBOL - 1; i++)
            if (!s->symbol[i].name[0] || !strcmp(s->symbol[i].name, symbol))
                break;
    if (!s->symbol[i].name[0])
        strncpy(s->symbol[i].name, symbol, SYMBOL_LEN - 1);
    s->symbol[i].calls++;
    return *hint = i;
}

/* `list` holds globs separated by commas or spaces. */
static int listed(const char *list, const char *symbol)
{
    char glob[SYMBOL_LEN];
    while (*list) {
        size_t n = strcspn(list, ", ");
        if (n > 0 && n < sizeof glob) {
            memcpy(glob, list, n);
            glob[n] = 0;
            if (!fnmatch(glob, symbol, 0))
                return 1;
        }
        list += n + (list[n] != 0);
    }
    return 0;
}

/* `narrowed`: the call passed once without a GPU, so only the rules of this GPU are left. */
static Rule *first_rule(State *s, const char *symbol, int gpu, int narrowed)
{
    for (int i = 0; i < MAX_RULE; i++) {
        Rule *r = &s->rule[i];
        if (!r->id || (r->gpu >= 0 ? r->gpu != gpu : narrowed) || fnmatch(r->symbol, symbol, 0))
            continue;
        if (r->after) {
            r->after--;
            continue;
        }
        if (r->per_million < 1000000 && random_next(&r->seed) % 1000000 >= r->per_million)
            continue;
        return r;
    }
    return NULL;
}

/* Finds what the handle means now; the instance may be gone since it was given out. */
static ret_t resolve(Call *c, const Handle *h, u32 kinds)
{
    c->g = &c->s->gpu[h->gpu];
    if (h->kind == H_GPU)
        return OK;
    ret_t stale = h->kind == H_MIG ? NOT_FOUND : INVALID_ARGUMENT;
    c->gi = &c->g->gi[h->gi];
    c->gi_id = h->gi;
    if (!c->gi->used || (h->kind == H_GI && c->gi->generation != h->generation))
        return stale;
    if (h->kind == H_GI)
        return OK;
    c->ci = &c->gi->ci[h->ci];
    c->ci_id = h->ci;
    if (!c->ci->used || c->ci->generation != h->generation)
        return stale;
    return kinds & MIG_UNSUPPORTED ? NOT_SUPPORTED : OK;
}

static ret_t system_condition(const State *s, const char *symbol)
{
    if (listed(nvml.absent, symbol) || listed(s->absent, symbol))
        return FUNCTION_NOT_FOUND;
    if (!s->driver_loaded)
        return DRIVER_NOT_LOADED;
    return s->version_mismatch ? VERSION_MISMATCH_RM : OK;
}

static ret_t apply_rule(Call *c, int narrowed)
{
    Rule *r = first_rule(c->s, c->symbol, c->gpu, narrowed);
    if (!r)
        return OK;
    r->hits++;
    ret_t ret = r->ret;
    u32 delay_ms = r->delay_ms;
    if (r->left && --r->left == 0)
        r->id = 0;
    if (ret == RULE_CRASH)
        abort();
    if (delay_ms) {
        pause_call(c);
        struct timespec rest = {delay_ms / 1000, (long)(delay_ms % 1000) * 1000000};
        while (nanosleep(&rest, &rest))
            ; /* a signal must not shorten a hung call */
        if (!resume_call(c))
            return UNINITIALIZED;
    }
    return ret;
}

static ret_t gone(const Gpu *g)
{
    return g->lost || !g->present ? GPU_IS_LOST : OK;
}

ret_t enter(Call *c, const char *symbol, u32 *hint, void *handle, u32 kinds)
{
    pthread_mutex_lock(&process_mutex);
    if (!nvml.m || !nvml.inits) {
        pthread_mutex_unlock(&process_mutex);
        return UNINITIALIZED;
    }
    *c = (Call){.symbol = symbol, .m = nvml.m, .s = nvml.m->s, .gpu = -1};
    machine_lock(c->m);
    c->slot = count_call(c->s, symbol, hint);
    announce(c->s);

    const Handle *found = NULL;
    Handle h = {0};
    if (kinds) {
        found = handle_find(handle);
        u32 accepted = kinds & MIG_UNSUPPORTED ? kinds | ON_MIG : kinds;
        if (!found || !(accepted >> found->kind & 1))
            return leave(c, INVALID_ARGUMENT);
        h = *found; /* the slot may be given to another instance while a rule delays us */
        c->gpu = (int)h.gpu;
        c->kind = h.kind;
    }
    ret_t ret = system_condition(c->s, symbol);
    if (ret != OK)
        return leave(c, ret);
    ret = apply_rule(c, 0);
    if (ret == OK && found)
        ret = gone(&c->s->gpu[h.gpu]);
    if (ret == OK && found)
        ret = resolve(c, &h, kinds);
    return ret == OK ? OK : leave(c, ret);
}

ret_t narrow(Call *c, u32 gpu)
{
    c->gpu = (int)gpu;
    ret_t ret = apply_rule(c, 1);
    return ret == OK ? gone(&c->s->gpu[gpu]) : ret;
}

ret_t leave(Call *c, ret_t ret)
{
    if (!c->m)
        return ret;
    State *s = c->s;
    s->call[s->call_head % MAX_CALL] = (CallRecord){
        .at_ns = monotonic_ns(),
        .symbol = c->slot,
        .pid = (u32)getpid(),
        .gpu = c->gpu,
        .ret = ret};
    s->call_head++;
    announce(s);
    unlock_both(c->m);
    return ret;
}

void pause_call(Call *c)
{
    c->m->in_flight++;
    unlock_both(c->m);
}

int resume_call(Call *c)
{
    lock_both(c->m);
    c->m->in_flight--;
    if (nvml.m == c->m && nvml.inits)
        return 1;
    unlock_both(c->m);
    c->m = NULL;
    return 0;
}

int caller_is_allowed(const State *s)
{
    return s->require_root == 0 || (s->require_root == 1 && geteuid() == 0);
}
