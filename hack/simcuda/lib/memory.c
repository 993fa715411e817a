/* Device memory, which is host memory with bounds that are checked. Fresh memory is not zero. */
#define _GNU_SOURCE
#include "call.h"
#include <stdlib.h>

enum { ALIGNMENT = 512, GARBAGE = 0xA5 };

typedef struct { void *data; size_t size; Context *owner; } Allocation;
static Allocation table[MAX_ALLOCATION];

static Allocation *at_start(CUdeviceptr at)
{
    for (int i = 0; at && i < MAX_ALLOCATION; i++)
        if ((uintptr_t)table[i].data == at)
            return &table[i];
    return NULL;
}

static void release(Allocation *a)
{
    a->owner->allocated -= a->size;
    free(a->data);
    *a = (Allocation){0};
}

void free_memory_of(const Context *context)
{
    for (int i = 0; i < MAX_ALLOCATION; i++)
        if (table[i].data && (!context || table[i].owner == context))
            release(&table[i]);
}

void *memory_at(const Context *context, CUdeviceptr at, size_t size)
{
    for (int i = 0; i < MAX_ALLOCATION; i++) {
        const Allocation *a = &table[i];
        uintptr_t start = (uintptr_t)a->data;
        if (a->data && a->owner == context && at >= start && at - start <= a->size &&
            size <= a->size - (at - start))
            return (void *)(uintptr_t)at;
    }
    return NULL;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    ENTER(ON_CURRENT, 0);
    REFUSE_IF(!out || !size, CUDA_ERROR_INVALID_VALUE);
    u64 room = memory_of(c.s, c.d);
    REFUSE_IF(c.context->allocated > room || size > room - c.context->allocated,
              CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < MAX_ALLOCATION; i++) {
        Allocation *a = &table[i];
        if (a->data)
            continue;
        size_t whole = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        REFUSE_IF(!(a->data = aligned_alloc(ALIGNMENT, whole)), CUDA_ERROR_OUT_OF_MEMORY);
        memset(a->data, GARBAGE, whole);
        a->size = size;
        a->owner = c.context;
        c.context->allocated += size;
        *out = (CUdeviceptr)(uintptr_t)a->data;
        LEAVE(CUDA_SUCCESS);
    }
    LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at)
{
    ENTER(ON_CURRENT, 0);
    Allocation *a = at_start(at);
    REFUSE_IF(!a, CUDA_ERROR_INVALID_VALUE);
    release(a);
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_out, size_t *total_out)
{
    ENTER(ON_CURRENT, 0);
    REFUSE_IF(!free_out || !total_out, CUDA_ERROR_INVALID_VALUE);
    u64 room = memory_of(c.s, c.d);
    *total_out = c.d->mig ? room : c.s->gpu[c.d->gpu].mem_total;
    *free_out = room > c.context->allocated ? room - c.context->allocated : 0;
    LEAVE(CUDA_SUCCESS);
}

static void spoil(const Call *c, unsigned char *data, size_t size)
{
    if (c->corrupt && size)
        data[c->corrupt_seed % size] ^= (unsigned char)(1u << (c->corrupt_seed >> 32) % 8);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    ENTER(ON_CURRENT, 0);
    void *target = memory_at(c.context, to, size);
    REFUSE_IF(!target || (!from && size), CUDA_ERROR_INVALID_VALUE);
    memcpy(target, from, size);
    spoil(&c, target, size);
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    ENTER(ON_CURRENT, 0);
    const void *source = memory_at(c.context, from, size);
    REFUSE_IF(!source || (!to && size), CUDA_ERROR_INVALID_VALUE);
    memcpy(to, source, size);
    spoil(&c, to, size);
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t size)
{
    ENTER(ON_CURRENT, 0);
    void *target = memory_at(c.context, to, size);
    REFUSE_IF(!target, CUDA_ERROR_INVALID_VALUE);
    memset(target, value, size);
    spoil(&c, target, size);
    LEAVE(CUDA_SUCCESS);
}
