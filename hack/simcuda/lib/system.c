/* Start and versions: what concerns no device. */
#define _GNU_SOURCE
#include "call.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FABRIC_NONE = 0, FABRIC_COMPLETED = 3 };

/* As the simulated NVML finds it: SIMNVML_STATE names the state file or its directory. */
static Machine *attach(void)
{
    char file[4096];
    const char *path = getenv("SIMNVML_STATE");
    struct stat st;
    if (!path || !*path)
        path = "/run/simnvml";
    int folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(file, sizeof file, folder ? "%s/state" : "%s", path);
    return machine_open(file);
}

/* On a board of an NVLink fabric, whole GPUs wait for the fabric manager; partitions do not. */
static int waits_for_fabric(const State *s, const Device *d)
{
    u32 state = s->gpu[d->gpu].fabric_state;
    return !d->mig && state != FABRIC_NONE && state != FABRIC_COMPLETED;
}

static CUresult start(Call *c)
{
    if (!c->s->driver_loaded)
        return CUDA_ERROR_NO_DEVICE;
    if (c->s->version_mismatch)
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    CUresult ret = obey_rules(c);
    find_devices(&cuda);
    for (u32 i = 0; i < cuda.count && !ret; i++)
        ret = narrow(c, cuda.device[i].gpu);
    for (u32 i = 0; i < cuda.count && !ret; i++)
        if (waits_for_fabric(c->s, &cuda.device[i]))
            ret = CUDA_ERROR_SYSTEM_NOT_READY;
    c->gpu = cuda.count == 1 ? (int)cuda.device[0].gpu : -1;
    if (!ret && !cuda.count)
        ret = CUDA_ERROR_NO_DEVICE;
    return ret;
}

EXPORT CUresult cuInit(unsigned flags)
{
    static u32 hint;
    Call c;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&process_mutex);
    if (!cuda.m)
        cuda.m = attach();
    if (!cuda.m) {
        pthread_mutex_unlock(&process_mutex);
        return CUDA_ERROR_NO_DEVICE; /* what the real one says without a kernel driver */
    }
    begin(&c, __func__, &hint);
    CUresult ret = cuda.initialised ? CUDA_SUCCESS : start(&c);
    cuda.initialised = ret == CUDA_SUCCESS;
    return leave(&c, ret);
}

EXPORT CUresult cuDriverGetVersion(int *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&process_mutex);
    Machine *m = cuda.m ? cuda.m : attach();
    *out = 0; /* documented for a machine without a driver */
    if (m) {
        machine_lock(m);
        *out = (int)m->s->cuda;
        machine_unlock(m);
    }
    if (m && m != cuda.m)
        machine_close(m);
    pthread_mutex_unlock(&process_mutex);
    return CUDA_SUCCESS;
}

/* Not part of CUDA: makes this process one that never called cuInit. For tests in one process. */
EXPORT void simcuda_forget(void)
{
    pthread_mutex_lock(&process_mutex);
    forget_modules();
    free_memory_of(NULL);
    forget_contexts();
    if (cuda.m)
        machine_close(cuda.m);
    cuda = (Cuda){0};
    pthread_mutex_unlock(&process_mutex);
}
