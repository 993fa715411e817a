/* The machine's side of a call: counters, fault rules, log. */
#define _GNU_SOURCE
#include "calls.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void announce(State *s)
{
    __atomic_add_fetch(&s->activity, 1, __ATOMIC_RELEASE);
    if (s->activity_waiters)
        futex_wake(&s->activity);
}

u32 call_begins(State *s, const char *symbol, u32 *hint)
{
    u32 i = *hint;
    if (i >= MAX_SYMBOL || strcmp(s->symbol[i].name, symbol))
        for (i = 0; i < MAX_SYMBOL - 1; i++)
            if (!s->symbol[i].name[0] || !strcmp(s->symbol[i].name, symbol))
                break;
    if (!s->symbol[i].name[0])
        strncpy(s->symbol[i].name, symbol, SYMBOL_LEN - 1);
    s->symbol[i].calls++;
    announce(s);
    return *hint = i;
}

void call_ended(State *s, u32 slot, int gpu, ret_t ret)
{
    s->call[s->call_head % MAX_CALL] = (CallRecord){
        .at_ns = monotonic_ns(),
        .symbol = slot,
        .pid = (u32)getpid(),
        .gpu = gpu,
        .ret = ret};
    s->call_head++;
    announce(s);
}

static Rule *first_rule(State *s, const char *symbol, int gpu, int narrowed)
{
    for (int i = 0; i < MAX_RULE; i++) {
        Rule *r = &s->rule[i];
        if (!r->id || (r->gpu >= 0 ? r->gpu != gpu : narrowed) || fnmatch(r->symbol, symbol, 0))
            continue;
        if (r->after) {
            r->after--;
            continue;
        }
        if (r->per_million < 1000000 && random_next(&r->seed) % 1000000 >= r->per_million)
            continue;
        return r;
    }
    return NULL;
}

Due fault_due(State *s, const char *symbol, int gpu, int narrowed)
{
    Rule *r = first_rule(s, symbol, gpu, narrowed);
    if (!r)
        return (Due){0};
    r->hits++;
    Due due = {.ret = r->ret, .delay_ms = r->delay_ms};
    if (due.ret == RULE_CORRUPT)
        due.corrupt_seed = random_next(&r->seed);
    if (r->left && --r->left == 0)
        r->id = 0;
    if (due.ret == RULE_CRASH)
        abort();
    return due;
}

void hang_for(u32 delay_ms)
{
    struct timespec rest = {delay_ms / 1000, (long)(delay_ms % 1000) * 1000000};
    while (nanosleep(&rest, &rest))
        ;
}
