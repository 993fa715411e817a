/* The gate of every call: is CUDA up, whom does it concern, which fault applies; and the log. */
#define _GNU_SOURCE
#include "call.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

Cuda cuda;
__thread Context *current;

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

/* The process stays locked while a rule delays it, as one real call blocks another; the machine
 * does not. */
static CUresult apply_rule(Call *c, int narrowed)
{
    Rule *r = first_rule(c->s, c->symbol, c->gpu, narrowed);
    if (!r)
        return CUDA_SUCCESS;
    r->hits++;
    int ret = r->ret;
    u32 delay_ms = r->delay_ms;
    if (ret == RULE_CORRUPT) {
        c->corrupt = 1;
        c->corrupt_seed = random_next(&r->seed);
        ret = CUDA_SUCCESS;
    }
    if (r->left && --r->left == 0)
        r->id = 0;
    if (ret == RULE_CRASH)
        abort();
    if (delay_ms) {
        let_go();
        struct timespec rest = {delay_ms / 1000, (long)(delay_ms % 1000) * 1000000};
        while (nanosleep(&rest, &rest))
            ; /* a signal that the process survives must not shorten a hung call */
        take_back();
    }
    return ret;
}

static int is_sticky(CUresult ret)
{
    return ret == CUDA_ERROR_ECC_UNCORRECTABLE || ret == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
           (ret >= CUDA_ERROR_ILLEGAL_ADDRESS && ret <= CUDA_ERROR_LAUNCH_FAILED) ||
           ret == CUDA_ERROR_UNKNOWN;
}

/* A GPU that fell off the bus, a driver that went, an instance that was destroyed below us. */
static CUresult condition(const State *s, const Device *d)
{
    const Gpu *g = &s->gpu[d->gpu];
    if (!s->driver_loaded || g->lost || !g->present || (d->mig && !instance_of(s, d)))
        return CUDA_ERROR_UNKNOWN;
    return CUDA_SUCCESS;
}

void begin(Call *c, const char *symbol, u32 *hint)
{
    *c = (Call){.symbol = symbol, .s = cuda.m->s, .gpu = -1};
    machine_lock(cuda.m);
    c->slot = count_call(c->s, symbol, hint);
    announce(c->s);
}

CUresult enter(Call *c, const char *symbol, u32 *hint, Subject subject, CUdevice ordinal)
{
    pthread_mutex_lock(&process_mutex);
    if (!cuda.initialised) {
        pthread_mutex_unlock(&process_mutex);
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    begin(c, symbol, hint);
    if (subject == ON_DEVICE) {
        if (ordinal < 0 || (u32)ordinal >= cuda.count)
            return leave(c, CUDA_ERROR_INVALID_DEVICE);
        c->d = &cuda.device[ordinal];
    }
    if (subject == ON_CURRENT) {
        if (!current || !current->used)
            return leave(c, CUDA_ERROR_INVALID_CONTEXT);
        c->context = current;
        c->d = &cuda.device[current->device];
        if (current->sticky)
            return leave(c, current->sticky);
    }
    if (c->d)
        c->gpu = (int)c->d->gpu;
    CUresult ret = apply_rule(c, 0);
    if (!ret && c->d)
        ret = condition(c->s, c->d);
    return ret ? leave(c, ret) : CUDA_SUCCESS;
}

CUresult obey_rules(Call *c)
{
    return apply_rule(c, 0);
}

CUresult narrow(Call *c, u32 gpu)
{
    c->gpu = (int)gpu;
    return apply_rule(c, 1);
}

CUresult leave(Call *c, CUresult ret)
{
    State *s = c->s;
    if (c->context && is_sticky(ret))
        c->context->sticky = ret;
    s->call[s->call_head % MAX_CALL] = (CallRecord){.at_ns = monotonic_ns(),
                                                    .symbol = c->slot,
                                                    .pid = (u32)getpid(),
                                                    .gpu = c->gpu,
                                                    .ret = ret};
    s->call_head++;
    announce(s);
    machine_unlock(cuda.m);
    pthread_mutex_unlock(&process_mutex);
    return ret;
}

void let_go(void)
{
    machine_unlock(cuda.m);
}

void take_back(void)
{
    machine_lock(cuda.m);
}
