/* What the parts of MIG share. The caller holds the lock. */
#pragma once
#include "state.h"

#define NO_PROFILE MAX_PROFILE

/* packing.c: the table index of a profile id, and whether one more of it fits at that place */
u32 profile_index(const Gpu *g, u32 id);
int fits(const Gpu *g, u32 profile, Placement wanted);

/* compute.c: what a GPU instance offers under a compute profile; NOT_SUPPORTED if nothing */
ret_t describe_compute(const Gpu *g, const Gi *gi, u32 profile, CiProfileV2 *out);

/* mig.c: does a process run in this instance? `ci` may be NOBODY for any. */
int has_process(const Gpu *g, u32 gi, u32 ci);
