/* What the kernels that Tessera embeds compute, by name; each is the twin of a PTX text. */
#define _GNU_SOURCE
#include "call.h"

/* Word i of the array becomes what `rounds` rounds of integer mixing make of it. */
static CUresult probe(const Launch *l, u64 corrupt_seed)
{
    CUdeviceptr at = *(const CUdeviceptr *)l->parameters[0];
    u32 rounds = *(const u32 *)l->parameters[1];
    size_t count = (size_t)l->blocks * l->threads;
    u32 *words = memory_at(l->context, at, count * sizeof *words);
    if (!words)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (size_t i = 0; i < count; i++) {
        u32 x = words[i];
        for (u32 r = 0; r < rounds; r++) {
            x ^= x >> 16;
            x *= 0x7feb352du;
            x ^= x >> 15;
            x *= 0x846ca68bu;
            x ^= x >> 16;
            x += r;
        }
        words[i] = x;
    }
    if (corrupt_seed)
        words[corrupt_seed % count] ^= 1u << (corrupt_seed >> 32) % 32;
    return CUDA_SUCCESS;
}

static const struct { const char *name; CUresult (*run)(const Launch *, u64); } known[] = {
    {"tessera_probe", probe},
};

CUresult run_kernel(const char *name, const Launch *launch, u64 corrupt_seed)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].run(launch, corrupt_seed);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The fault of a kernel shows when the context is next asked, not at the launch. */
EXPORT CUresult cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared, void *stream, void **parameters, void **extra)
{
    ENTER(ON_CURRENT, 0);
    (void)shared, (void)stream;
    const char *name = function_name(function, c.context);
    REFUSE_IF(!name, CUDA_ERROR_INVALID_HANDLE);
    u64 blocks = (u64)grid_x * grid_y * grid_z, threads = (u64)block_x * block_y * block_z;
    REFUSE_IF(!blocks || blocks > 0x7fffffff || !threads || threads > 1024 || !parameters || extra,
              CUDA_ERROR_INVALID_VALUE);
    Launch launch = {(u32)blocks, (u32)threads, parameters, c.context};
    let_go();
    CUresult ret = run_kernel(name, &launch, c.corrupt ? c.corrupt_seed | 1 : 0);
    take_back();
    if (ret == CUDA_ERROR_ILLEGAL_ADDRESS) {
        c.context->sticky = ret;
        ret = CUDA_SUCCESS;
    }
    LEAVE(ret);
}
