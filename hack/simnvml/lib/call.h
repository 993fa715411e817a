/* What every NVML entry point is made of: one gate in, one gate out, the lock held between.
 * Holding it for the whole body makes each call atomic against every other process. */
#pragma once
#include "calls.h"
#include <string.h>

typedef enum { H_FREE, H_GPU, H_MIG, H_GI, H_CI } Kind;
typedef struct { Kind kind; u32 gpu, gi, ci, generation; } Handle;

/* Which handles a call takes. */
enum {
    NO_HANDLE = 0,
    ON_GPU = 1 << H_GPU,
    ON_MIG = 1 << H_MIG,
    ON_GI = 1 << H_GI,
    ON_CI = 1 << H_CI,
    ON_DEVICE = ON_GPU | ON_MIG,
    MIG_UNSUPPORTED = 1 << 8, /* a MIG handle gives NOT_SUPPORTED rather than INVALID_ARGUMENT */
    ON_PARENT = ON_GPU | MIG_UNSUPPORTED,
};

typedef struct {
    const char *symbol;
    Machine *m;
    State *s;
    u32 slot;
    int gpu; /* index of `g`; -1: none */
    Kind kind;
    Gpu *g;
    Gi *gi;
    Ci *ci;
    u32 gi_id, ci_id;
} Call;

/* The process-local side of NVML; `process_mutex` guards all of it, and is never held in a wait. */
typedef struct {
    Machine *m;
    u32 inits;
    char visible[4096], absent[1024];
} Nvml;
extern Nvml nvml;

ret_t enter(Call *c, const char *symbol, u32 *hint, void *handle, u32 kinds);
ret_t leave(Call *c, ret_t ret);
/* For calls that find their GPU by other means than a handle: its own rules, and is it there. */
ret_t narrow(Call *c, u32 gpu);
/* Around a wait inside a call. False: the library was shut down meanwhile, and leave() will only
 * pass on its argument, as there is nothing to unlock any more. */
void pause_call(Call *c);
int resume_call(Call *c);
/* Changes need root; `require_root` 0 lets everybody, 2 nobody. */
int caller_is_allowed(const State *s);

#define ENTER(handle, kinds)                                                                       \
    static u32 hint_;                                                                              \
    Call c;                                                                                        \
    ret_t entered_ = enter(&c, __func__, &hint_, handle, kinds);                                   \
    if (entered_ != OK)                                                                            \
        return entered_

/* Optional fields can be hidden per GPU, as on boards that lack them. */
static inline int hidden_at(const Gpu *g, size_t offset)
{
    return (int)(g->hidden[offset / 256] >> (offset / 4 % 64) & 1);
}
#define HIDDEN(g, member) hidden_at(g, offsetof(Gpu, member))

#define GETTER(symbol, kinds, type, member)                                                        \
    EXPORT ret_t symbol(void *device, type *out)                                                   \
    {                                                                                              \
        ENTER(device, kinds);                                                                      \
        REFUSE_IF(!out, INVALID_ARGUMENT);                                                         \
        REFUSE_IF(HIDDEN(c.g, member), NOT_SUPPORTED);                                             \
        *out = (type)c.g->member;                                                                  \
        LEAVE(OK);                                                                                 \
    }

static inline ret_t put_string(char *out, u32 length, const char *text)
{
    if (!out)
        return INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

/* handles.c; the caller holds the lock */
void *handle_of_gpu(u32 gpu);
void *handle_of(Kind kind, State *s, u32 gpu, u32 gi, u32 ci);
const Handle *handle_find(const void *pointer);
void handles_forget(void);

/* visibility, system.c */
int gpu_is_visible(const Gpu *g);
int ci_is_visible(const Gpu *g, const Ci *ci);
