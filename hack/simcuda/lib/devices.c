/* Which devices this process has: CUDA_VISIBLE_DEVICES over what the device cgroup lets it open.
 *
 * By NVIDIA's documentation: entries are ordinals, UUIDs of GPUs or MIG devices, or unique beginnings
 * of them; the first entry that names nothing ends the list; a process computes on one MIG device
 * only, and on no whole GPU beside it. */
#define _GNU_SOURCE
#include "call.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { Device device; const char *uuid; } Candidate;
typedef struct { u32 count; Candidate all[MAX_GPU * (1 + MAX_GI * MAX_CI)]; } Candidates;

/* The same variable as the simulated NVML has, in place of the device cgroup. */
static int may_open(const Gpu *g, const Ci *ci)
{
    const char *given = getenv("SIMNVML_VISIBLE");
    if (!given || !*given || !strcmp(given, "all"))
        return 1;
    return strstr(given, g->uuid) || (ci && strstr(given, ci->uuid));
}

static void add(Candidates *c, Device device, const char *uuid)
{
    c->all[c->count++] = (Candidate){device, uuid};
}

/* A GPU in MIG mode stands for its compute instances; without any it is no device. */
static void candidates(const State *s, Candidates *out)
{
    out->count = 0;
    for (u32 i = 0; i < MAX_GPU; i++) {
        const Gpu *g = &s->gpu[i];
        if (!g->present || g->lost)
            continue;
        if (!g->mig_current && may_open(g, NULL))
            add(out, (Device){.gpu = i}, g->uuid);
        for (u32 k = 0; g->mig_current && k < MAX_GI; k++)
            for (u32 n = 0; g->gi[k].used && n < MAX_CI; n++) {
                const Ci *ci = &g->gi[k].ci[n];
                if (ci->used && may_open(g, ci))
                    add(out, (Device){i, k, n, 1, ci->generation}, ci->uuid);
            }
    }
}

/* By the UUID of a device, or of a GPU in MIG mode, which means its first instance. */
static const Candidate *named(const State *s, const Candidates *c, const char *wanted, size_t n)
{
    const Candidate *found = NULL;
    for (u32 i = 0; i < c->count; i++)
        if (!strncmp(c->all[i].uuid, wanted, n)) {
            if (found)
                return NULL; /* not unique */
            found = &c->all[i];
        }
    for (u32 i = 0; i < c->count && !found; i++)
        if (!strncmp(s->gpu[c->all[i].device.gpu].uuid, wanted, n))
            found = &c->all[i];
    return found;
}

/* Ordinals count GPUs; one in MIG mode means its first instance. */
static const Candidate *numbered(const Candidates *c, u32 wanted)
{
    u32 seen = 0;
    for (u32 i = 0; i < c->count; i++)
        if (i == 0 || c->all[i].device.gpu != c->all[i - 1].device.gpu)
            if (seen++ == wanted)
                return &c->all[i];
    return NULL;
}

static int take(Cuda *out, const Candidate *found)
{
    for (u32 i = 0; found && i < out->count; i++)
        if (!memcmp(&out->device[i], &found->device, sizeof found->device))
            return 0; /* named twice: the documentation calls the list invalid from here */
    if (!found || out->count == MAX_GPU || (out->count && out->device[0].mig))
        return 0;
    if (out->count && found->device.mig)
        return 0;
    out->device[out->count++] = found->device;
    return 1;
}

static void take_listed(Cuda *out, const State *s, const Candidates *c, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        while (n && isspace((unsigned char)*list)) {
            list++;
            n--;
        }
        char *end;
        unsigned long number = strtoul(list, &end, 10);
        int is_number = n && end == list + n;
        if (!n || !take(out, is_number ? numbered(c, (u32)number) : named(s, c, list, n)))
            return;
        list += n + (list[n] == ',');
    }
}

void find_devices(Cuda *out)
{
    const State *s = out->m->s;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    static Candidates all;
    candidates(s, &all);
    out->count = 0;
    if (list) {
        take_listed(out, s, &all, list);
        return;
    }
    for (u32 i = 0; i < all.count; i++)
        if (!all.all[i].device.mig)
            take(out, &all.all[i]);
    if (!out->count && all.count)
        take(out, &all.all[0]);
}

const Ci *instance_of(const State *s, const Device *d)
{
    const Gi *gi = &s->gpu[d->gpu].gi[d->gi];
    if (!d->mig || !gi->used || !gi->ci[d->ci].used || gi->ci[d->ci].generation != d->generation)
        return NULL;
    return &gi->ci[d->ci];
}

static const Profile *profile_of(const State *s, const Device *d)
{
    const Gpu *g = &s->gpu[d->gpu];
    return &g->profile[g->gi[d->gi].profile];
}

u64 memory_of(const State *s, const Device *d)
{
    const Gpu *g = &s->gpu[d->gpu];
    if (d->mig)
        return profile_of(s, d)->memory_mib << 20;
    u64 taken = g->mem_used + g->mem_reserved;
    return g->mem_total > taken ? g->mem_total - taken : 0;
}

/* ---- the calls ---- */

EXPORT CUresult cuDeviceGetCount(int *out)
{
    ENTER(ON_NOTHING, 0);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    *out = (int)cuda.count;
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    ENTER(ON_DEVICE, ordinal);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    *out = ordinal;
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *out, int length, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    REFUSE_IF(!out || length < 1, CUDA_ERROR_INVALID_VALUE);
    const char *name = c.s->gpu[c.d->gpu].name;
    if (c.d->mig)
        snprintf(out, (size_t)length, "%s %s", name, profile_of(c.s, c.d)->name);
    else
        snprintf(out, (size_t)length, "%s", name);
    LEAVE(CUDA_SUCCESS);
}

static void parse_uuid(const char *text, CUuuid *out)
{
    u32 digits = 0;
    const char *hex = strchr(text, '-');
    memset(out, 0, sizeof *out);
    for (; hex && *hex && digits < 32; hex++) {
        if (!isxdigit((unsigned char)*hex))
            continue;
        unsigned value = (unsigned)(isdigit((unsigned char)*hex) ? *hex - '0'
                                                                 : tolower(*hex) - 'a' + 10);
        out->bytes[digits / 2] |= (unsigned char)(digits % 2 ? value : value << 4);
        digits++;
    }
}

/* The first version gives the GPU's UUID also for a MIG device, the second the device's own. */
static CUresult give_uuid(Call *c, CUuuid *out, int own)
{
    if (!out)
        return leave(c, CUDA_ERROR_INVALID_VALUE);
    const Ci *ci = own ? instance_of(c->s, c->d) : NULL;
    parse_uuid(ci ? ci->uuid : c->s->gpu[c->d->gpu].uuid, out);
    return leave(c, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    return give_uuid(&c, out, 0);
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    return give_uuid(&c, out, 1);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    *out = c.d->mig ? memory_of(c.s, c.d) : c.s->gpu[c.d->gpu].mem_total;
    LEAVE(CUDA_SUCCESS);
}

/* Of a board without profiles no listing here says how many there are. */
static u32 multiprocessors(const State *s, const Device *d)
{
    const Gpu *g = &s->gpu[d->gpu];
    u32 most = 0;
    if (d->mig) {
        const Profile *p = profile_of(s, d);
        return p->slices ? p->sm * instance_of(s, d)->placement.size / p->slices : p->sm;
    }
    for (u32 i = 0; i < MAX_PROFILE; i++)
        if (g->profile[i].used && g->profile[i].sm > most)
            most = g->profile[i].sm;
    return most ? most : 40;
}

EXPORT CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device)
{
    ENTER(ON_DEVICE, device);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    const Gpu *g = &c.s->gpu[c.d->gpu];
    switch (attribute) {
    case ATTRIBUTE_MAX_THREADS_PER_BLOCK: *out = 1024; break;
    case ATTRIBUTE_WARP_SIZE: *out = 32; break;
    case ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = (int)multiprocessors(c.s, c.d); break;
    case ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = (int)g->cc_major; break;
    case ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = (int)g->cc_minor; break;
    default: LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    LEAVE(CUDA_SUCCESS);
}
