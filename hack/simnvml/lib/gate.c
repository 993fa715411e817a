/* The gate of every call: is the library up, who is asked, does it answer. */
#define _GNU_SOURCE
#include "call.h"
#include <fnmatch.h>
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
    Due due = fault_due(c->s, c->symbol, c->gpu, narrowed);
    if (due.delay_ms) {
        pause_call(c);
        hang_for(due.delay_ms);
        if (!resume_call(c))
            return UNINITIALIZED;
    }
    return due.ret;
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
    c->slot = call_begins(c->s, symbol, hint);

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
    call_ended(c->s, c->slot, c->gpu, ret);
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
