/* What fits beside what: overlap, counts, compute slices and media engines. */
#define _GNU_SOURCE
#include "mig.h"

u32 profile_index(const Gpu *g, u32 id)
{
    for (u32 i = 0; i < MAX_PROFILE; i++)
        if (g->profile[i].used && g->profile[i].id == id)
            return i;
    return NO_PROFILE;
}

static int overlap(Placement a, Placement b)
{
    return a.start < b.start + b.size && b.start < a.start + a.size;
}

/* Compute slices and media engines are bounded by what the largest profile owns. */
static int within_totals(const Gpu *g, const Profile *candidate)
{
    u32 total[5] = {g->gi_slices}, taken[5] = {0};
    for (u32 i = 0; i < MAX_PROFILE; i++) {
        const Profile *p = &g->profile[i];
        const u32 has[5] = {0, p->dec, p->enc, p->jpeg, p->ofa};
        for (int k = 1; p->used && k < 5; k++)
            total[k] = has[k] > total[k] ? has[k] : total[k];
    }
    for (u32 i = 0; i <= MAX_GI; i++) {
        if (i < MAX_GI && !g->gi[i].used)
            continue;
        const Profile *p = i < MAX_GI ? &g->profile[g->gi[i].profile] : candidate;
        const u32 has[5] = {p->slices, p->dec, p->enc, p->jpeg, p->ofa};
        for (int k = 0; k < 5; k++)
            taken[k] += has[k];
    }
    for (int k = 0; k < 5; k++)
        if (taken[k] > total[k])
            return 0;
    return 1;
}

int fits(const Gpu *g, u32 profile, Placement wanted)
{
    u32 same = 0;
    for (u32 i = 0; i < MAX_GI; i++) {
        if (!g->gi[i].used)
            continue;
        if (overlap(g->gi[i].placement, wanted))
            return 0;
        same += g->gi[i].profile == profile;
    }
    return same < g->profile[profile].count && within_totals(g, &g->profile[profile]);
}
