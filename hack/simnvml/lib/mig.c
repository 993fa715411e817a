/* MIG mode, GPU instance profiles, and the life of GPU instances. */
#define _GNU_SOURCE
#include "call.h"
#include "mig.h"

static int mig_is_on(const Gpu *g)
{
    return g->mig_capable && g->mig_current;
}

/* ---- mode ---- */

EXPORT ret_t nvmlDeviceGetMigMode(void *device, u32 *current, u32 *pending)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!current || !pending, INVALID_ARGUMENT);
    REFUSE_IF(!c.g->mig_capable, NOT_SUPPORTED);
    *current = c.g->mig_current;
    *pending = c.g->mig_pending;
    LEAVE(OK);
}

static int gpu_is_busy(const Gpu *g)
{
    int busy = g->busy != 0;
    for (int i = 0; i < MAX_GI; i++)
        busy |= g->gi[i].used != 0;
    for (int i = 0; i < MAX_PROCESS; i++)
        busy |= g->process[i].used != 0;
    return busy;
}

/* The call succeeds even if the mode does not change: `activation` says what came of it. */
EXPORT ret_t nvmlDeviceSetMigMode(void *device, u32 mode, ret_t *activation)
{
    ENTER(device, ON_GPU);
    Gpu *g = c.g;
    REFUSE_IF(!activation || mode > 1, INVALID_ARGUMENT);
    REFUSE_IF(!g->mig_capable, NOT_SUPPORTED);
    REFUSE_IF(!caller_is_allowed(c.s), NO_PERMISSION);
    *activation = OK;
    if (mode == g->mig_current) {
        g->mig_pending = mode;
    } else if (gpu_is_busy(g)) {
        *activation = IN_USE;
    } else if (g->mig_needs_reset || g->reset_required) {
        g->mig_pending = mode;
        *activation = RESET_REQUIRED;
    } else {
        g->mig_current = g->mig_pending = mode;
        publish_event(c.s, (u32)c.gpu, EVENT_MIG_CONFIG, mode, NOBODY, NOBODY);
    }
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetMaxMigDeviceCount(void *device, u32 *out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = mig_is_on(c.g) ? c.g->gi_slices : 0;
    LEAVE(OK);
}

/* ---- profiles ---- */

EXPORT ret_t nvmlDeviceGetGpuInstanceProfileInfo(void *device, u32 index, GiProfile *out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out || index >= MAX_PROFILE, INVALID_ARGUMENT);
    const Profile *p = &c.g->profile[index];
    REFUSE_IF(!c.g->mig_capable || !p->used, NOT_SUPPORTED);
    *out = (GiProfile){.id = p->id, .slices = p->slices, .count = p->count, .sm = p->sm,
                       .ce = p->ce, .dec = p->dec, .enc = p->enc, .jpeg = p->jpeg, .ofa = p->ofa,
                       .memory_mib = p->memory_mib};
    LEAVE(OK);
}

enum { CAPABILITY_P2P = 1, CAPABILITY_GRAPHICS = 2 };

static u32 capabilities(u32 index)
{
    int graphics = (index >= 10 && index <= 12) || index == 17; /* the _GFX profiles */
    return graphics ? CAPABILITY_GRAPHICS : CAPABILITY_P2P;
}

/* v2 and v3 are of one size; `out` says by its version which of them it is. */
static ret_t give_profile(const Call *c, u32 index, GiProfileV2 *out)
{
    u32 version = out->version;
    if (version >> 24 > c->s->profile_version_max)
        return ARGUMENT_VERSION_MISMATCH;
    const Profile *p = index < MAX_PROFILE ? &c->g->profile[index] : NULL;
    if (!c->g->mig_capable || !p || !p->used)
        return NOT_SUPPORTED;
    if (version == VERSION(GiProfileV2, 2)) {
        *out = (GiProfileV2){.version = version, .id = p->id, .slices = p->slices,
                             .count = p->count, .sm = p->sm, .ce = p->ce, .dec = p->dec,
                             .enc = p->enc, .jpeg = p->jpeg, .ofa = p->ofa,
                             .memory_mib = p->memory_mib};
        memcpy(out->name, p->name, sizeof out->name);
        return OK;
    }
    if (version == VERSION(GiProfileV3, 3)) {
        GiProfileV3 *v3 = (GiProfileV3 *)out;
        *v3 = (GiProfileV3){.version = version, .id = p->id, .slices = p->slices,
                            .count = p->count, .sm = p->sm, .ce = p->ce, .dec = p->dec,
                            .enc = p->enc, .jpeg = p->jpeg, .ofa = p->ofa,
                            .memory_mib = p->memory_mib, .capabilities = capabilities(index)};
        memcpy(v3->name, p->name, sizeof v3->name);
        return OK;
    }
    return ARGUMENT_VERSION_MISMATCH;
}

EXPORT ret_t nvmlDeviceGetGpuInstanceProfileInfoV(void *device, u32 index, GiProfileV2 *out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out || index >= MAX_PROFILE, INVALID_ARGUMENT);
    LEAVE(give_profile(&c, index, out));
}

EXPORT ret_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(void *device, u32 id, GiProfileV2 *out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(!mig_is_on(c.g), NOT_SUPPORTED);
    LEAVE(give_profile(&c, profile_index(c.g, id), out));
}

/* Works with MIG off, as the real one does: a driver can plan before it switches. */
EXPORT ret_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, u32 id, Placement *out,
                                                           u32 *count)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!count, INVALID_ARGUMENT);
    u32 index = c.g->mig_capable ? profile_index(c.g, id) : NO_PROFILE;
    REFUSE_IF(index == NO_PROFILE, NOT_SUPPORTED);
    const Profile *p = &c.g->profile[index];
    *count = p->placement_count;
    if (out)
        memcpy(out, p->placement, p->placement_count * sizeof *out);
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetGpuInstanceRemainingCapacity(void *device, u32 id, u32 *out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(!mig_is_on(c.g), NOT_SUPPORTED);
    u32 index = profile_index(c.g, id), same = 0, free_places = 0;
    REFUSE_IF(index == NO_PROFILE, NOT_SUPPORTED);
    const Profile *p = &c.g->profile[index];
    for (u32 i = 0; i < p->placement_count; i++)
        free_places += (u32)fits(c.g, index, p->placement[i]);
    for (u32 i = 0; i < MAX_GI; i++)
        same += c.g->gi[i].used && c.g->gi[i].profile == index;
    u32 left = p->count - same;
    *out = free_places < left ? free_places : left;
    LEAVE(OK);
}

/* ---- GPU instances ---- */

/* Ids belong to a size class (8 slots: 7g is 0, halves 1-2, quarters 3-6, singles 7-14) and say
 * nothing about the placement; with `gi_ids_random` not even the order of creation. */
static u32 free_id(State *s, const Gpu *g, u32 size)
{
    u32 class_size = g->slots / size, found[MAX_GI], n = 0;
    for (u32 id = class_size - 1; id < 2 * class_size - 1 && id < MAX_GI; id++)
        if (!g->gi[id].used)
            found[n++] = id;
    if (n == 0)
        return MAX_GI;
    return found[s->gi_ids_random ? random_next(&s->random) % n : 0];
}

static ret_t create(Call *c, u32 profile_id, const Placement *wanted, void **out)
{
    Gpu *g = c->g;
    if (!mig_is_on(g))
        return NOT_SUPPORTED;
    if (!caller_is_allowed(c->s))
        return NO_PERMISSION;
    if (g->reset_required)
        return RESET_REQUIRED;
    u32 index = profile_index(g, profile_id);
    if (index == NO_PROFILE)
        return INVALID_ARGUMENT;
    const Profile *p = &g->profile[index];
    const Placement *chosen = NULL;
    int listed = 0;
    for (u32 i = p->placement_count; i-- > 0;) { /* without a wish, from the high end */
        const Placement *at = &p->placement[i];
        if (wanted && (at->start != wanted->start || at->size != wanted->size))
            continue;
        listed = 1;
        if (!chosen && fits(g, index, *at))
            chosen = at;
    }
    if (!listed)
        return INVALID_ARGUMENT;
    u32 id = chosen ? free_id(c->s, g, chosen->size) : MAX_GI;
    if (id == MAX_GI)
        return INSUFFICIENT_RESOURCES;
    Gi *gi = &g->gi[id];
    memset(gi, 0, sizeof *gi);
    gi->profile = index;
    gi->placement = *chosen;
    gi->generation = ++c->s->generation;
    gi->used = 1; /* last: a process killed in between leaves no half instance */
    *out = handle_of(H_GI, c->s, (u32)c->gpu, id, 0);
    return OK;
}

EXPORT ret_t nvmlDeviceCreateGpuInstance(void *device, u32 profile_id, void **out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    LEAVE(create(&c, profile_id, NULL, out));
}

EXPORT ret_t nvmlDeviceCreateGpuInstanceWithPlacement(void *device, u32 profile_id,
                                                      const Placement *placement, void **out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out || !placement, INVALID_ARGUMENT);
    LEAVE(create(&c, profile_id, placement, out));
}

/* Who was given some partitions by SIMNVML_VISIBLE sees only their GPU instances. */
static int gi_is_visible(const Gpu *g, const Gi *gi)
{
    int empty = 1;
    for (int i = 0; i < MAX_CI; i++)
        if (gi->ci[i].used) {
            empty = 0;
            if (ci_is_visible(g, &gi->ci[i]))
                return 1;
        }
    static const Ci nothing = {.uuid = "no such uuid"};
    return empty && ci_is_visible(g, &nothing);
}

EXPORT ret_t nvmlDeviceGetGpuInstances(void *device, u32 profile_id, void **out, u32 *count)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out || !count, INVALID_ARGUMENT);
    REFUSE_IF(!mig_is_on(c.g), NOT_SUPPORTED);
    u32 index = profile_index(c.g, profile_id);
    REFUSE_IF(index == NO_PROFILE, NOT_SUPPORTED);
    *count = 0;
    for (u32 id = 0; id < MAX_GI; id++) {
        const Gi *gi = &c.g->gi[id];
        if (gi->used && gi->profile == index && gi_is_visible(c.g, gi))
            out[(*count)++] = handle_of(H_GI, c.s, (u32)c.gpu, id, 0);
    }
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetGpuInstanceById(void *device, u32 id, void **out)
{
    ENTER(device, ON_GPU);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(!mig_is_on(c.g), NOT_SUPPORTED);
    REFUSE_IF(id >= MAX_GI || !c.g->gi[id].used || !gi_is_visible(c.g, &c.g->gi[id]), NOT_FOUND);
    *out = handle_of(H_GI, c.s, (u32)c.gpu, id, 0);
    LEAVE(OK);
}

EXPORT ret_t nvmlGpuInstanceGetInfo(void *instance, GiInfo *out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = (GiInfo){handle_of_gpu((u32)c.gpu), c.gi_id, c.g->profile[c.gi->profile].id,
                    c.gi->placement};
    LEAVE(OK);
}

int has_process(const Gpu *g, u32 gi, u32 ci)
{
    for (int i = 0; i < MAX_PROCESS; i++) {
        const Process *p = &g->process[i];
        if (p->used && p->gi == gi && (ci == NOBODY || p->ci == ci))
            return 1;
    }
    return 0;
}

EXPORT ret_t nvmlGpuInstanceDestroy(void *instance)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!caller_is_allowed(c.s), NO_PERMISSION);
    REFUSE_IF(c.gi->busy || has_process(c.g, c.gi_id, NOBODY), IN_USE);
    for (int i = 0; i < MAX_CI; i++)
        REFUSE_IF(c.gi->ci[i].used, IN_USE);
    c.gi->used = 0;
    LEAVE(OK);
}
