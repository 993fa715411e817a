/* Handles are addresses inside one table: anything else a caller passes is refused, not followed.
 * Slots of dead instances are used again, the longest unused first, so that a stale handle stays
 * recognisable for thousands of creations and the table never runs out. */
#include "call.h"

enum { MAX_HANDLE = 16384 };
_Static_assert(MAX_HANDLE >= 2 * MAX_GPU * (1 + MAX_GI * (1 + 2 * MAX_CI)),
               "room for all that can live, and for as many stale ones");

static Handle table[MAX_HANDLE];
static u32 next_slot = MAX_GPU;
static u32 latest_gi[MAX_GPU][MAX_GI], latest_ci[2][MAX_GPU][MAX_GI][MAX_CI];

static u32 generation_of(const State *s, const Handle *h)
{
    const Gi *gi = &s->gpu[h->gpu].gi[h->gi];
    if (!gi->used)
        return 0;
    if (h->kind == H_GI)
        return gi->generation;
    return gi->ci[h->ci].used ? gi->ci[h->ci].generation : 0;
}

static int alive(const State *s, const Handle *h)
{
    return h->kind != H_FREE && generation_of(s, h) == h->generation;
}

void *handle_of_gpu(u32 gpu)
{
    table[gpu] = (Handle){.kind = H_GPU, .gpu = gpu};
    return &table[gpu];
}

void *handle_of(Kind kind, State *s, u32 gpu, u32 gi, u32 ci)
{
    u32 *latest = kind == H_GI ? &latest_gi[gpu][gi] : &latest_ci[kind == H_CI][gpu][gi][ci];
    Handle wanted = {.kind = kind, .gpu = gpu, .gi = gi, .ci = ci};
    wanted.generation = generation_of(s, &wanted);
    Handle *known = &table[*latest];
    if (*latest && known->kind == kind && known->gpu == gpu && known->gi == gi && known->ci == ci &&
        known->generation == wanted.generation)
        return known;
    while (alive(s, &table[next_slot]))
        next_slot = next_slot + 1 < MAX_HANDLE ? next_slot + 1 : MAX_GPU;
    *latest = next_slot;
    table[next_slot] = wanted;
    next_slot = next_slot + 1 < MAX_HANDLE ? next_slot + 1 : MAX_GPU;
    return &table[*latest];
}

const Handle *handle_find(const void *pointer)
{
    const char *p = pointer, *base = (const char *)table;
    if (p < base || p >= base + sizeof table || (size_t)(p - base) % sizeof(Handle))
        return NULL;
    const Handle *h = pointer;
    return h->kind == H_FREE ? NULL : h;
}

/* Another machine was mapped: its generations mean other instances. */
void handles_forget(void)
{
    memset(table, 0, sizeof table);
    memset(latest_gi, 0, sizeof latest_gi);
    memset(latest_ci, 0, sizeof latest_ci);
}
