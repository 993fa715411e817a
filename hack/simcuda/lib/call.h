/* What every CUDA entry point is made of: one gate in, one gate out, as in the simulated NVML.
 *
 * The machine is the one of hack/simnvml: its GPUs, its instances, its fault rules, its call log.
 * A process keeps contexts, memory and modules for itself; `process_mutex` guards all of them. */
#pragma once
#include "../../simnvml/lib/calls.h"
#include "cuda.h"
#include <string.h>

enum { MAX_CONTEXT = 64, MAX_ALLOCATION = 4096, MAX_MODULE = 64, MAX_FUNCTION = 256 };

/* One CUDA device: a GPU, or with `mig` one compute instance of it. */
typedef struct { u32 gpu, gi, ci, mig, generation; } Device;

typedef struct {
    u32 used, primary, retains;
    u32 device; /* ordinal */
    CUresult sticky; /* once a kernel failed, every later call on the context answers this */
    u64 allocated;
} Context;

typedef struct {
    Machine *m;
    u32 initialised, count;
    Device device[MAX_GPU];
} Cuda;
extern Cuda cuda;
extern __thread Context *current;

typedef struct {
    const char *symbol;
    State *s;
    u32 slot, corrupt;
    u64 corrupt_seed;
    int gpu; /* the slot of the GPU; -1: none */
    const Device *d;
    Context *context;
} Call;

/* What a call is about. */
typedef enum { ON_NOTHING, ON_DEVICE, ON_CURRENT } Subject;

CUresult enter(Call *c, const char *symbol, u32 *hint, Subject subject, CUdevice ordinal);
CUresult leave(Call *c, CUresult ret);
/* Gives the machine back while the process computes; other processes go on meanwhile. */
void let_go(void);
void take_back(void);
/* What the fault rules say of a call without a device, and then of each GPU that it turns out to
 * concern. Both may sleep. */
CUresult obey_rules(Call *c);
CUresult narrow(Call *c, u32 gpu);
/* Opens the log entry of cuInit, the one call that comes before everything. */
void begin(Call *c, const char *symbol, u32 *hint);

#define ENTER(subject, ordinal)                                                                    \
    static u32 hint_;                                                                              \
    Call c;                                                                                        \
    CUresult entered_ = enter(&c, __func__, &hint_, subject, ordinal);                             \
    if (entered_)                                                                                  \
        return entered_

/* devices.c */
void find_devices(Cuda *out);
const Ci *instance_of(const State *s, const Device *d); /* NULL: it is gone, or no partition */
u64 memory_of(const State *s, const Device *d);

/* context.c, module.c; memory.c: NULL unless all of the range is allocated */
void forget_contexts(void);
void forget_modules(void);
void free_memory_of(const Context *context); /* NULL: all */
void *memory_at(const Context *context, CUdeviceptr at, size_t size);
const char *function_name(const void *function, const Context *context);
void unload_modules_of(const Context *context);

/* kernels.c: runs a kernel by name. NOT_SUPPORTED: it has no counterpart here. */
typedef struct { u32 blocks, threads; void **parameters; const Context *context; } Launch;
CUresult run_kernel(const char *name, const Launch *launch, u64 corrupt_seed);
