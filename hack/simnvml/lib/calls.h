/* What the machine keeps of calls, whichever library they are made to: how often each was made,
 * which fault is due, and the log. The caller holds the machine's lock. */
#pragma once
#include "state.h"

/* Counts and announces a call; the answer is its place in `s->symbol`, and so is `hint` from the
 * second call on. */
u32 call_begins(State *s, const char *symbol, u32 *hint);
void call_ended(State *s, u32 slot, int gpu, ret_t ret);

/* A fault that applies now: 0 where none does. */
typedef struct { ret_t ret; u32 delay_ms; u64 corrupt_seed; } Due;

/* Uses up one hit of the first rule that applies. `narrowed`: the call passed once without a GPU,
 * so only the rules of this GPU are left. */
Due fault_due(State *s, const char *symbol, int gpu, int narrowed);

/* A signal that the process survives does not shorten it. Not to be called with a lock held. */
void hang_for(u32 delay_ms);

/* What entry points are written with. A library has its own `leave`, and an ENTER that makes `c`. */
#define EXPORT __attribute__((visibility("default")))
#define LEAVE(ret) return leave(&c, ret)
#define REFUSE_IF(condition, ret)                                                                  \
    do {                                                                                           \
        if (condition)                                                                             \
            return leave(&c, ret);                                                                 \
    } while (0)
