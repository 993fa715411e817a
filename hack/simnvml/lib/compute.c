/* Compute instances: profiles within a GPU instance, and their life. */
#define _GNU_SOURCE
#include "call.h"
#include "mig.h"
#include <stdio.h>

enum { ONE, TWO, THREE, FOUR, SEVEN, EIGHT, SIX, ONE_REV1, SEVEN_NVL, CI_PROFILE_COUNT };
enum { GI_ONE_REV2 = 9 }; /* the 1g with double memory */
enum { HOPPER = 9 };

static const u32 slices_of[CI_PROFILE_COUNT] = {1, 2, 3, 4, 7, 8, 6, 1, 7};

/* Which compute profiles a GPU instance offers, by its slices: {profile, how many}. */
typedef struct { u32 slices, profile, count; } Offer;
static const Offer offers[] = {
    {1, ONE, 1},   {2, ONE, 2},  {2, TWO, 1}, {3, ONE, 3},  {3, TWO, 1},   {3, THREE, 1},
    {4, ONE, 4},   {4, TWO, 2},  {4, FOUR, 1}, {7, ONE, 7}, {7, TWO, 3},   {7, THREE, 2},
    {7, FOUR, 1},  {7, SEVEN, 1}, {7, SEVEN_NVL, 1},
};

static u32 offered(const Gi *gi, const Profile *p, u32 profile)
{
    if (profile == ONE_REV1) /* owns all of a 1g with double memory */
        return gi->profile == GI_ONE_REV2;
    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++)
        if (offers[i].slices == p->slices && offers[i].profile == profile)
            return offers[i].count;
    return 0;
}

/* SMs per compute slice: that of the base 1g profile, or an even share where there is none. */
static u32 sm_per_slice(const Gpu *g, const Profile *p)
{
    const Profile *base = &g->profile[0];
    return base->used && base->slices == 1 ? base->sm : p->sm / p->slices;
}

ret_t describe_compute(const Gpu *g, const Gi *gi, u32 profile, CiProfileV2 *out)
{
    if (profile >= CI_PROFILE_COUNT)
        return INVALID_ARGUMENT;
    const Profile *p = &g->profile[gi->profile];
    u32 count = offered(gi, p, profile);
    if (!count)
        return NOT_SUPPORTED;
    u32 slices = slices_of[profile];
    /* The plain 1c of a double-memory 1g gets one slice's share, less than the instance owns. */
    int whole = slices == p->slices && !(profile == ONE && gi->profile == GI_ONE_REV2);
    u32 share = sm_per_slice(g, p) * slices;
    *out = (CiProfileV2){.version = out->version, .id = profile, .slices = slices, .count = count,
                         .sm = whole || share > p->sm ? p->sm : share, .ce = p->ce, .dec = p->dec,
                         .enc = p->enc, .jpeg = p->jpeg, .ofa = p->ofa};
    if (slices == p->slices)
        memcpy(out->name, p->name, sizeof out->name);
    else /* "MIG 3g.40gb" -> "MIG 1c.3g.40gb" */
        snprintf(out->name, sizeof out->name, "MIG %uc.%.80s", slices, p->name + 4);
    return OK;
}

static u32 taken_mask(const Gi *gi)
{
    u32 mask = 0;
    for (int i = 0; i < MAX_CI; i++)
        if (gi->ci[i].used)
            mask |= ((1u << gi->ci[i].placement.size) - 1) << gi->ci[i].placement.start;
    return mask;
}

static int is_free(const Gpu *g, const Gi *gi, Placement at)
{
    u32 slices = g->profile[gi->profile].slices;
    return at.start + at.size <= slices &&
           !(taken_mask(gi) & ((1u << at.size) - 1) << at.start);
}

/* Possible starts are multiples of the size. */
static u32 placements(const Gpu *g, const Gi *gi, u32 profile, Placement *out)
{
    u32 slices = g->profile[gi->profile].slices, size = slices_of[profile], n = 0;
    for (u32 start = 0; start + size <= slices; start += size)
        out[n++] = (Placement){start, size};
    return n;
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *instance, u32 profile, u32 engine,
                                                           CiProfileV2 *out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out || engine, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(CiProfileV2, 2), ARGUMENT_VERSION_MISMATCH);
    LEAVE(describe_compute(c.g, c.gi, profile, out));
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstanceProfileInfo(void *instance, u32 profile, u32 engine,
                                                          CiProfile *out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out || engine, INVALID_ARGUMENT);
    CiProfileV2 wide = {0};
    ret_t ret = describe_compute(c.g, c.gi, profile, &wide);
    if (ret == OK)
        memcpy(out, &wide.id, sizeof *out); /* v2 is v1 between a version and a name */
    LEAVE(ret);
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(void *instance, u32 profile,
                                                                 Placement *out, u32 *count)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!count, INVALID_ARGUMENT);
    CiProfileV2 info = {0};
    ret_t ret = describe_compute(c.g, c.gi, profile, &info);
    if (ret == OK) {
        Placement all[MAX_CI];
        *count = placements(c.g, c.gi, profile, all);
        if (out)
            memcpy(out, all, *count * sizeof *out);
    }
    LEAVE(ret);
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(void *instance, u32 profile,
                                                                u32 *out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    CiProfileV2 info = {0};
    ret_t ret = describe_compute(c.g, c.gi, profile, &info);
    if (ret == OK) {
        Placement all[MAX_CI];
        u32 n = placements(c.g, c.gi, profile, all);
        *out = 0;
        for (u32 i = 0; i < n; i++)
            *out += (u32)is_free(c.g, c.gi, all[i]);
    }
    LEAVE(ret);
}

/* ---- creation ---- */

static u64 hash(u64 h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    return random_next(&h);
}

/* A function of GPU UUID and ids, so the same ids give the same UUID again. `mig_uuid_random`
 * mixes in the creation, for tests that must not rely on that. */
static void name_mig_device(State *s, const Gpu *g, u32 gi, u32 ci, u32 generation, char *out)
{
    char seed[128];
    u32 salt = s->mig_uuid_random ? generation : 0;
    snprintf(seed, sizeof seed, "%s/%u/%u/%u", g->uuid, gi, ci, salt);
    u64 a = hash(0xcbf29ce484222325ull, seed), b = hash(a, seed);
    snprintf(out, 48, "MIG-%08x-%04x-5%03x-%04x-%012llx", (u32)(a >> 32), (u32)(a >> 16) & 0xffff,
             (u32)a & 0xfff, 0x8000u | ((u32)(b >> 48) & 0x3fff),
             (unsigned long long)(b & 0xffffffffffffull));
}

/* MIG devices are numbered per GPU; a destroyed one leaves a hole until its number is reused. */
static u32 free_mig_index(const Gpu *g)
{
    u32 taken = 0, index = 0;
    for (int i = 0; i < MAX_GI; i++)
        for (int k = 0; g->gi[i].used && k < MAX_CI; k++)
            if (g->gi[i].ci[k].used)
                taken |= 1u << g->gi[i].ci[k].mig_index;
    while (taken >> index & 1)
        index++;
    return index;
}

static ret_t create(Call *c, u32 profile, const Placement *wanted, void **out)
{
    CiProfileV2 info = {0};
    ret_t ret = describe_compute(c->g, c->gi, profile, &info);
    if (ret != OK)
        return ret;
    if (!caller_is_allowed(c->s))
        return NO_PERMISSION;
    if (c->g->reset_required)
        return RESET_REQUIRED;
    if (profile == SEVEN_NVL && c->g->arch < HOPPER)
        return NOT_SUPPORTED; /* listed, but refused by older boards */
    Placement all[MAX_CI], *chosen = NULL;
    u32 n = placements(c->g, c->gi, profile, all), id = 0;
    int listed = 0;
    for (u32 i = 0; i < n; i++) {
        if (wanted && (all[i].start != wanted->start || all[i].size != wanted->size))
            continue;
        listed = 1;
        if (!chosen && is_free(c->g, c->gi, all[i]))
            chosen = &all[i];
    }
    if (!listed)
        return INVALID_ARGUMENT;
    while (id < MAX_CI && c->gi->ci[id].used)
        id++;
    if (!chosen || id == MAX_CI)
        return INSUFFICIENT_RESOURCES;
    Ci *ci = &c->gi->ci[id];
    *ci = (Ci){.profile = profile,
               .placement = *chosen,
               .mig_index = free_mig_index(c->g),
               .generation = ++c->s->generation};
    name_mig_device(c->s, c->g, c->gi_id, id, ci->generation, ci->uuid);
    ci->used = 1;
    publish_event(c->s, (u32)c->gpu, EVENT_MIG_CONFIG, 0, c->gi_id, id);
    *out = handle_of(H_CI, c->s, (u32)c->gpu, c->gi_id, id);
    return OK;
}

EXPORT ret_t nvmlGpuInstanceCreateComputeInstance(void *instance, u32 profile, void **out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    LEAVE(create(&c, profile, NULL, out));
}

EXPORT ret_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(void *instance, u32 profile,
                                                               const Placement *placement,
                                                               void **out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out || !placement, INVALID_ARGUMENT);
    LEAVE(create(&c, profile, placement, out));
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstances(void *instance, u32 profile, void **out, u32 *count)
{
    ENTER(instance, ON_GI);
    CiProfileV2 info = {0};
    REFUSE_IF(!out || !count, INVALID_ARGUMENT);
    ret_t ret = describe_compute(c.g, c.gi, profile, &info);
    REFUSE_IF(ret != OK, ret);
    *count = 0;
    for (u32 id = 0; id < MAX_CI; id++)
        if (c.gi->ci[id].used && c.gi->ci[id].profile == profile)
            out[(*count)++] = handle_of(H_CI, c.s, (u32)c.gpu, c.gi_id, id);
    LEAVE(OK);
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstanceById(void *instance, u32 id, void **out)
{
    ENTER(instance, ON_GI);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(id >= MAX_CI || !c.gi->ci[id].used, NOT_FOUND);
    *out = handle_of(H_CI, c.s, (u32)c.gpu, c.gi_id, id);
    LEAVE(OK);
}

EXPORT ret_t nvmlComputeInstanceGetInfo_v2(void *instance, CiInfo *out)
{
    ENTER(instance, ON_CI);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    *out = (CiInfo){handle_of(H_MIG, c.s, (u32)c.gpu, c.gi_id, c.ci_id),
                    handle_of(H_GI, c.s, (u32)c.gpu, c.gi_id, 0), c.ci_id, c.ci->profile,
                    c.ci->placement};
    LEAVE(OK);
}

EXPORT ret_t nvmlComputeInstanceGetInfo(void *instance, CiInfo *out)
{
    return nvmlComputeInstanceGetInfo_v2(instance, out);
}

EXPORT ret_t nvmlComputeInstanceDestroy(void *instance)
{
    ENTER(instance, ON_CI);
    REFUSE_IF(!caller_is_allowed(c.s), NO_PERMISSION);
    REFUSE_IF(c.ci->busy || has_process(c.g, c.gi_id, c.ci_id), IN_USE);
    c.ci->used = 0;
    publish_event(c.s, (u32)c.gpu, EVENT_MIG_CONFIG, 0, c.gi_id, c.ci_id);
    LEAVE(OK);
}
