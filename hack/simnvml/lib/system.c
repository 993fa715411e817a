/* Start, stop, versions, and finding devices: everything that needs no device handle yet. */
#define _GNU_SOURCE
#include "call.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* SIMNVML_STATE names the state file or its directory. */
static void state_file(char *out, size_t size)
{
    const char *path = getenv("SIMNVML_STATE");
    struct stat st;
    if (!path || !*path)
        path = "/run/simnvml";
    int folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(out, size, folder ? "%s/state" : "%s", path);
}

static void copy_env(char *out, size_t size, const char *name)
{
    const char *value = getenv(name);
    snprintf(out, size, "%s", value ? value : "");
}

/* Maps the file anew if it was replaced since the last start. process_mutex is held. */
static int attach(void)
{
    char file[4096];
    struct stat st;
    state_file(file, sizeof file);
    if (nvml.m && stat(file, &st) == 0 && st.st_ino == nvml.m->inode)
        return 1;
    Machine *fresh = machine_open(file);
    if (nvml.m && nvml.m->in_flight == 0)
        machine_close(nvml.m); /* else a sleeping call still uses the mapping: leave it */
    nvml.m = fresh;
    handles_forget();
    return fresh != NULL;
}

static void release(void)
{
    pthread_mutex_lock(&process_mutex);
    if (nvml.inits)
        nvml.inits--;
    pthread_mutex_unlock(&process_mutex);
}

EXPORT ret_t nvmlInitWithFlags(u32 flags)
{
    (void)flags;
    pthread_mutex_lock(&process_mutex);
    int attached = nvml.inits > 0 || attach();
    if (attached && nvml.inits++ == 0) {
        copy_env(nvml.visible, sizeof nvml.visible, "SIMNVML_VISIBLE");
        copy_env(nvml.absent, sizeof nvml.absent, "SIMNVML_ABSENT");
    }
    pthread_mutex_unlock(&process_mutex);
    if (!attached)
        return DRIVER_NOT_LOADED;

    static u32 hint;
    Call c;
    ret_t ret = enter(&c, __func__, &hint, NULL, NO_HANDLE);
    if (ret == OK)
        return leave(&c, OK);
    release();
    return ret;
}

EXPORT ret_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT ret_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

/* Takes effect whatever it answers: with the driver gone or a rule in force, a process must still
 * be able to start afresh. */
EXPORT ret_t nvmlShutdown(void)
{
    static u32 hint;
    Call c;
    ret_t ret = enter(&c, __func__, &hint, NULL, NO_HANDLE);
    if (ret == OK)
        leave(&c, OK);
    if (ret != UNINITIALIZED)
        release();
    return ret;
}

EXPORT const char *nvmlErrorString(ret_t ret)
{
    static const struct { ret_t code; const char *text; } known[] = {
        {OK, "Success"},
        {UNINITIALIZED, "Uninitialized"},
        {INVALID_ARGUMENT, "Invalid Argument"},
        {NOT_SUPPORTED, "Not Supported"},
        {NO_PERMISSION, "Insufficient Permissions"},
        {NOT_FOUND, "Not Found"},
        {INSUFFICIENT_SIZE, "Insufficient Size"},
        {DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {TIMEOUT, "Timeout"},
        {FUNCTION_NOT_FOUND, "Function Not Found"},
        {CORRUPTED_INFOROM, "Corrupted infoROM"},
        {GPU_IS_LOST, "GPU is lost"},
        {RESET_REQUIRED, "GPU requires reset"},
        {VERSION_MISMATCH_RM, "Driver/library version mismatch"},
        {IN_USE, "In use by another client"},
        {OUT_OF_MEMORY, "Insufficient Memory"},
        {INSUFFICIENT_RESOURCES, "Insufficient Resources"},
        {ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == ret)
            return known[i].text;
    return "Unknown Error";
}

#define SYSTEM_STRING(symbol, member)                                                              \
    EXPORT ret_t symbol(char *out, u32 length)                                                     \
    {                                                                                              \
        ENTER(NULL, NO_HANDLE);                                                                    \
        LEAVE(put_string(out, length, c.s->member));                                               \
    }
SYSTEM_STRING(nvmlSystemGetDriverVersion, driver)
SYSTEM_STRING(nvmlSystemGetNVMLVersion, nvml)

EXPORT ret_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = (int)c.s->cuda;
    LEAVE(OK);
}

EXPORT ret_t nvmlSystemGetCudaDriverVersion(int *out)
{
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

EXPORT ret_t nvmlSystemGetDriverBranch(DriverBranch *out, u32 length)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(DriverBranch, 1), ARGUMENT_VERSION_MISMATCH);
    LEAVE(put_string(out->branch, length < sizeof out->branch ? length : sizeof out->branch,
                     c.s->branch));
}

EXPORT ret_t nvmlSystemGetConfComputeState(ConfComputeState *out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = (ConfComputeState){.environment = c.s->conf_compute, .feature = c.s->conf_compute};
    LEAVE(OK);
}

EXPORT ret_t nvmlSystemGetConfComputeSettings(ConfComputeSettings *out)
{
    ENTER(NULL, NO_HANDLE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(ConfComputeSettings, 1), ARGUMENT_VERSION_MISMATCH);
    *out = (ConfComputeSettings){.version = out->version,
                                 .environment = c.s->conf_compute,
                                 .feature = c.s->conf_compute};
    LEAVE(OK);
}

/* ---- which devices this process may see ---- */

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
