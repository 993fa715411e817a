/* Which devices there are for this process, and finding one by index, UUID, address or serial. */
#define _GNU_SOURCE
#include "call.h"
#include <stdio.h>

static int restricted(void)
{
    return nvml.visible[0] && strcmp(nvml.visible, "all") != 0;
}

int ci_is_visible(const Gpu *g, const Ci *ci)
{
    return !restricted() || strstr(nvml.visible, ci->uuid) || strstr(nvml.visible, g->uuid);
}

/* As with the device cgroup: who was given a partition also sees its parent. */
int gpu_is_visible(const Gpu *g)
{
    if (!g->present)
        return 0;
    if (!restricted() || strstr(nvml.visible, g->uuid))
        return 1;
    for (int i = 0; i < MAX_GI; i++)
        for (int k = 0; g->gi[i].used && k < MAX_CI; k++)
            if (g->gi[i].ci[k].used && strstr(nvml.visible, g->gi[i].ci[k].uuid))
                return 1;
    return 0;
}

/* ---- enumeration ---- */

EXPORT ret_t nvmlDeviceGetCount_v2(u32 *out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = 0;
    for (int i = 0; i < MAX_GPU; i++)
        *out += (u32)gpu_is_visible(&c.s->gpu[i]);
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetIndex(void *device, u32 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = 0;
    for (int i = 0; i < c.gpu; i++)
        *out += (u32)gpu_is_visible(&c.s->gpu[i]);
    LEAVE(OK);
}

static ret_t give_gpu(Call *c, u32 gpu, void **out)
{
    ret_t ret = narrow(c, gpu);
    if (ret == OK)
        *out = handle_of_gpu(gpu);
    return leave(c, ret);
}

EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(u32 index, void **out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    for (u32 i = 0, seen = 0; i < MAX_GPU; i++)
        if (gpu_is_visible(&c.s->gpu[i]) && seen++ == index)
            return give_gpu(&c, i, out);
    LEAVE(INVALID_ARGUMENT);
}

static ret_t by_uuid(Call *c, const char *uuid, void **out)
{
    for (u32 i = 0; i < MAX_GPU; i++) {
        Gpu *g = &c->s->gpu[i];
        if (!gpu_is_visible(g))
            continue;
        if (!strcmp(g->uuid, uuid))
            return give_gpu(c, i, out);
        for (u32 k = 0; k < MAX_GI; k++)
            for (u32 n = 0; g->gi[k].used && n < MAX_CI; n++) {
                const Ci *ci = &g->gi[k].ci[n];
                if (!ci->used || strcmp(ci->uuid, uuid) || !ci_is_visible(g, ci))
                    continue;
                ret_t ret = narrow(c, i);
                if (ret == OK && !ci->used)
                    ret = NOT_FOUND; /* gone while a rule delayed us */
                if (ret == OK)
                    *out = handle_of(H_MIG, c->s, i, k, n);
                return leave(c, ret);
            }
    }
    return leave(c, NOT_FOUND);
}

EXPORT ret_t nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!uuid || !out, INVALID_ARGUMENT);
    return by_uuid(&c, uuid, out);
}

EXPORT ret_t nvmlDeviceGetHandleByUUIDV(const Uuid *uuid, void **out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!uuid || !out || uuid->type != 1 /* ASCII */, INVALID_ARGUMENT);
    REFUSE_IF(uuid->version != VERSION(Uuid, 1), ARGUMENT_VERSION_MISMATCH);
    char text[sizeof uuid->value.text + 1] = {0};
    memcpy(text, uuid->value.text, sizeof uuid->value.text);
    return by_uuid(&c, text, out);
}

EXPORT ret_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out)
{
    ENTER(NULL, NO_HANDLE);
    u32 domain, bus, device;
    REFUSE_IF(!id || !out || sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3,
              INVALID_ARGUMENT);
    for (u32 i = 0; i < MAX_GPU; i++) {
        const Gpu *g = &c.s->gpu[i];
        if (gpu_is_visible(g) && g->domain == domain && g->bus == bus && g->device == device)
            return give_gpu(&c, i, out);
    }
    LEAVE(NOT_FOUND);
}

EXPORT ret_t nvmlDeviceGetHandleBySerial(const char *serial, void **out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!serial || !out, INVALID_ARGUMENT);
    for (u32 i = 0; i < MAX_GPU; i++) {
        const Gpu *g = &c.s->gpu[i];
        if (gpu_is_visible(g) && !HIDDEN(g, serial) && !strcmp(g->serial, serial))
            return give_gpu(&c, i, out);
    }
    LEAVE(NOT_FOUND);
}
