/* The control side: what a test may see and change. Not part of NVML. */
#pragma once
#include "state.h"

/* Refusals. */
enum { NO_SUCH = -1, OUT_OF_RANGE = -2, NO_ROOM = -3 };

enum { FIELD_U32 = 0, FIELD_U64 = 1, FIELD_TEXT = 2, FIELD_BYTES = 3 };
typedef struct { const char *name; size_t offset, size; u32 kind; } Field;
extern const Field gpu_fields[], machine_fields[];
extern const u32 gpu_field_count, machine_field_count;

/* A field of a GPU, or of the machine with gpu = -1. NULL: no such field. */
const Field *find_field(int gpu, const char *name);

/* One row per GPU instance without compute instance (ci = NOBODY) and per compute instance. */
typedef struct {
    u32 gpu, gi, profile_id, start, size, gi_busy;
    u32 ci, ci_profile, ci_start, ci_size, ci_busy, mig_index;
    char uuid[48], profile[96];
} InstanceRow;

typedef struct { u64 at_ns; u32 pid; int gpu; ret_t ret; char symbol[SYMBOL_LEN]; } CallRow;
