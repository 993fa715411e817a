/* The gate of every call: is CUDA up, whom does it concern, does it answer. */
#include "call.h"

Cuda cuda;
__thread Context *current;

/* The process stays locked while a rule delays it, as one real call blocks another; the machine
 * does not. */
static CUresult apply_rule(Call *c, int narrowed)
{
    Due due = fault_due(c->s, c->symbol, c->gpu, narrowed);
    if (due.delay_ms) {
        let_go();
        hang_for(due.delay_ms);
        take_back();
    }
    if (due.ret != RULE_CORRUPT)
        return due.ret;
    c->corrupt = 1;
    c->corrupt_seed = due.corrupt_seed;
    return CUDA_SUCCESS;
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
    c->slot = call_begins(c->s, symbol, hint);
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
    if (c->context && is_sticky(ret))
        c->context->sticky = ret;
    call_ended(c->s, c->slot, c->gpu, ret);
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
