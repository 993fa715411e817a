/* MIG devices: what a compute instance is to an application, and who runs on it. */
#define _GNU_SOURCE
#include "call.h"
#include "mig.h"

EXPORT ret_t nvmlDeviceIsMigDeviceHandle(void *device, u32 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = c.kind == H_MIG;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetMigDeviceHandleByIndex(void *device, u32 index, void **out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out || index >= c.g->gi_slices, INVALID_ARGUMENT);
    REFUSE_IF(!c.g->mig_capable || !c.g->mig_current, NOT_SUPPORTED);
    for (u32 i = 0; i < MAX_GI; i++)
        for (u32 k = 0; c.g->gi[i].used && k < MAX_CI; k++) {
            const Ci *ci = &c.g->gi[i].ci[k];
            if (ci->used && ci->mig_index == index && ci_is_visible(c.g, ci)) {
                *out = handle_of(H_MIG, c.s, (u32)c.gpu, i, k);
                LEAVE(OK);
            }
        }
    LEAVE(NOT_FOUND);
}

EXPORT ret_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **out)
{
    ENTER(device, ON_MIG);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = handle_of_gpu((u32)c.gpu);
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetGpuInstanceId(void *device, u32 *out)
{
    ENTER(device, ON_MIG);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = c.gi_id;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetComputeInstanceId(void *device, u32 *out)
{
    ENTER(device, ON_MIG);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = c.ci_id;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetAttributes_v2(void *device, Attributes *out)
{
    ENTER(device, ON_MIG);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    const Profile *p = &c.g->profile[c.gi->profile];
    CiProfileV2 info = {0};
    ret_t ret = describe_compute(c.g, c.gi, c.ci->profile, &info);
    *out = (Attributes){.sm = info.sm, .ce = p->ce, .dec = p->dec, .enc = p->enc, .jpeg = p->jpeg,
                        .ofa = p->ofa, .gi_slices = p->slices, .ci_slices = info.slices,
                        .memory_mib = p->memory_mib};
    LEAVE(ret);
}

EXPORT ret_t nvmlDeviceGetAttributes(void *device, Attributes *out)
{
    return nvmlDeviceGetAttributes_v2(device, out);
}

/* ---- processes ---- */

EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v3(void *device, u32 *count, ProcessInfo *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!count, INVALID_ARGUMENT);
    u32 room = out ? *count : 0, found = 0;
    for (int i = 0; i < MAX_PROCESS; i++) {
        const Process *p = &c.g->process[i];
        if (!p->used || (c.kind == H_MIG && (p->gi != c.gi_id || p->ci != c.ci_id)))
            continue;
        if (found < room)
            out[found] = (ProcessInfo){p->pid, p->memory, p->gi, p->ci};
        found++;
    }
    *count = found;
    LEAVE(found > room ? INSUFFICIENT_SIZE : OK);
}

/* Everything that runs here computes. */
EXPORT ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, u32 *count, ProcessInfo *out)
{
    (void)out;
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!count, INVALID_ARGUMENT);
    *count = 0;
    LEAVE(OK);
}
