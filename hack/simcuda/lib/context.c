/* Contexts: the primary one of each device, and further ones. */
#define _GNU_SOURCE
#include "call.h"

enum { COMPUTE_PROHIBITED = 2, COMPUTE_EXCLUSIVE_PROCESS = 3 };

static Context table[MAX_CONTEXT];

static Context *find(const void *handle)
{
    for (int i = 0; i < MAX_CONTEXT; i++)
        if (handle == &table[i])
            return table[i].used ? &table[i] : NULL;
    return NULL;
}

static Context *primary_of(u32 device)
{
    for (int i = 0; i < MAX_CONTEXT; i++)
        if (table[i].used && table[i].primary && table[i].device == device)
            return &table[i];
    return NULL;
}

/* Others on the device matter only where it is exclusive; our own processes are not in the list. */
static CUresult admitted(const State *s, const Device *d)
{
    const Gpu *g = &s->gpu[d->gpu];
    if (g->reset_required)
        return CUDA_ERROR_UNKNOWN;
    if (g->compute_mode == COMPUTE_PROHIBITED)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    for (int i = 0; g->compute_mode == COMPUTE_EXCLUSIVE_PROCESS && i < MAX_PROCESS; i++)
        if (g->process[i].used)
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return CUDA_SUCCESS;
}

static CUresult make(Call *c, u32 device, u32 primary, Context **out)
{
    CUresult ret = admitted(c->s, c->d);
    for (int i = 0; !ret && i < MAX_CONTEXT; i++)
        if (!table[i].used) {
            table[i] = (Context){.used = 1, .primary = primary, .device = device};
            *out = &table[i];
            return CUDA_SUCCESS;
        }
    return ret ? ret : CUDA_ERROR_OUT_OF_MEMORY;
}

static void end(Context *context)
{
    unload_modules_of(context);
    free_memory_of(context);
    context->used = 0;
    if (current == context)
        current = NULL;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void **out, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    Context *primary = primary_of((u32)device);
    if (!primary) {
        CUresult ret = make(&c, (u32)device, 1, &primary);
        REFUSE_IF(ret, ret);
    }
    primary->retains++;
    *out = primary;
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(ON_DEVICE, device);
    Context *primary = primary_of((u32)device);
    REFUSE_IF(!primary, CUDA_ERROR_INVALID_CONTEXT);
    if (--primary->retains == 0)
        end(primary);
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxCreate_v2(void **out, unsigned flags, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    (void)flags;
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    Context *made = NULL;
    CUresult ret = make(&c, (u32)device, 0, &made);
    REFUSE_IF(ret, ret);
    *out = current = made;
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxDestroy_v2(void *context)
{
    ENTER(ON_NOTHING, 0);
    Context *found = find(context);
    REFUSE_IF(!found || found->primary, CUDA_ERROR_INVALID_CONTEXT);
    end(found);
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSetCurrent(void *context)
{
    ENTER(ON_NOTHING, 0);
    REFUSE_IF(context && !find(context), CUDA_ERROR_INVALID_CONTEXT);
    current = context;
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(void **out)
{
    ENTER(ON_NOTHING, 0);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    *out = current;
    LEAVE(CUDA_SUCCESS);
}

/* Kernels ran when they were launched; what is left is to say how that went. */
EXPORT CUresult cuCtxSynchronize(void)
{
    ENTER(ON_CURRENT, 0);
    LEAVE(CUDA_SUCCESS);
}

void forget_contexts(void)
{
    memset(table, 0, sizeof table);
    current = NULL;
}
