/* Start, stop and versions: what concerns no device. */
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
