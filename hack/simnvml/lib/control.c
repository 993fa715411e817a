/* sim_*: how a test kit drives the machine. Same lock, same mapping code as the NVML side, so that
 * layout and locking exist once. Results: 0 or a count is success, negative is a refusal. */
#define _GNU_SOURCE
#include "call.h"
#include "control.h"

EXPORT void *sim_create(const char *file)
{
    Machine *m = machine_create(file);
    if (m) {
        m->s->driver_loaded = 1;
        m->s->fabric_version_max = m->s->profile_version_max = 3;
    }
    return m;
}

EXPORT void *sim_open(const char *file)
{
    return machine_open(file);
}

EXPORT void sim_close(void *m)
{
    machine_close(m);
}

/* ---- fields ---- */

EXPORT const char *sim_field_name(int gpu, u32 i)
{
    if (gpu < 0)
        return i < machine_field_count ? machine_fields[i].name : NULL;
    return i < gpu_field_count ? gpu_fields[i].name : NULL;
}

EXPORT int sim_field_info(int gpu, const char *name, u32 *kind, u32 *size)
{
    const Field *f = find_field(gpu, name);
    if (!f)
        return NO_SUCH;
    *kind = f->kind;
    *size = (u32)f->size;
    return 0;
}

static char *field_base(Machine *m, int gpu, const Field *f)
{
    return (gpu < 0 ? (char *)m->s : (char *)&m->s->gpu[gpu]) + f->offset;
}

EXPORT int sim_poke(void *machine, int gpu, const char *name, u32 offset, const void *data,
                    u32 size)
{
    Machine *m = machine;
    const Field *f = find_field(gpu, name);
    if (!f || gpu >= MAX_GPU)
        return NO_SUCH;
    if (offset + size > f->size)
        return OUT_OF_RANGE;
    machine_lock(m);
    memcpy(field_base(m, gpu, f) + offset, data, size);
    ring_bell(m->s);
    machine_unlock(m);
    return 0;
}

EXPORT int sim_peek(void *machine, int gpu, const char *name, void *data, u32 size)
{
    Machine *m = machine;
    const Field *f = find_field(gpu, name);
    if (!f || gpu >= MAX_GPU)
        return NO_SUCH;
    if (size > f->size)
        return OUT_OF_RANGE;
    machine_lock(m);
    memcpy(data, field_base(m, gpu, f), size);
    machine_unlock(m);
    return 0;
}

/* Makes every call that reads this field of this GPU answer NOT_SUPPORTED, or undoes it. */
EXPORT int sim_hide(void *machine, int gpu, const char *name, u32 hidden)
{
    Machine *m = machine;
    const Field *f = gpu < 0 || gpu >= MAX_GPU ? NULL : find_field(gpu, name);
    if (!f)
        return NO_SUCH;
    u64 bit = 1ull << (f->offset / 4 % 64);
    machine_lock(m);
    u64 *word = &m->s->gpu[gpu].hidden[f->offset / 256];
    *word = hidden ? *word | bit : *word & ~bit;
    machine_unlock(m);
    return 0;
}

/* The value of an NVML field id (NVML_FI_*), with its own return code. */
EXPORT int sim_field_value(void *machine, u32 gpu, u32 id, u64 value, ret_t ret)
{
    Machine *m = machine;
    int at = NO_ROOM;
    if (gpu >= MAX_GPU)
        return NO_SUCH;
    machine_lock(m);
    Gpu *g = &m->s->gpu[gpu];
    for (int i = 0; i < MAX_FIELD && at < 0; i++)
        if (!g->field[i].id || g->field[i].id == id) {
            g->field[i].id = id;
            g->field[i].value = value;
            g->field[i].ret = ret;
            at = i;
        }
    machine_unlock(m);
    return at;
}

/* `v`: id, slices, count, sm, ce, dec, enc, jpeg, ofa */
EXPORT int sim_profile(void *machine, u32 gpu, u32 index, const u32 *v, u64 memory_mib,
                       const char *name, const u32 *starts, u32 count, u32 size)
{
    Machine *m = machine;
    if (gpu >= MAX_GPU || index >= MAX_PROFILE)
        return NO_SUCH;
    if (count > MAX_PLACEMENT || strlen(name) >= sizeof ((Profile *)0)->name)
        return OUT_OF_RANGE;
    machine_lock(m);
    Profile *p = &m->s->gpu[gpu].profile[index];
    *p = (Profile){.used = 1, .id = v[0], .slices = v[1], .count = v[2], .sm = v[3], .ce = v[4],
                   .dec = v[5], .enc = v[6], .jpeg = v[7], .ofa = v[8], .memory_mib = memory_mib,
                   .placement_count = count};
    strcpy(p->name, name);
    for (u32 i = 0; i < count; i++)
        p->placement[i] = (Placement){starts[i], size};
    machine_unlock(m);
    return 0;
}

/* ---- conditions ---- */

EXPORT int sim_event(void *machine, u32 gpu, u64 type, u64 data, u32 gi, u32 ci)
{
    Machine *m = machine;
    if (gpu >= MAX_GPU)
        return NO_SUCH;
    machine_lock(m);
    publish_event(m->s, gpu, type, data, gi, ci);
    machine_unlock(m);
    return 0;
}

/* gi or ci NOBODY: the level above. */
EXPORT int sim_busy(void *machine, u32 gpu, u32 gi, u32 ci, u32 busy)
{
    Machine *m = machine;
    if (gpu >= MAX_GPU || (gi != NOBODY && gi >= MAX_GI) || (ci != NOBODY && ci >= MAX_CI))
        return NO_SUCH;
    machine_lock(m);
    Gpu *g = &m->s->gpu[gpu];
    int there = gi == NOBODY || (g->gi[gi].used && (ci == NOBODY || g->gi[gi].ci[ci].used));
    if (there)
        *(gi == NOBODY ? &g->busy : ci == NOBODY ? &g->gi[gi].busy : &g->gi[gi].ci[ci].busy) = busy;
    machine_unlock(m);
    return there ? 0 : NO_SUCH;
}

/* A process on the GPU or one of its instances; memory 0 ends it. */
EXPORT int sim_process(void *machine, u32 gpu, u32 pid, u64 memory, u32 gi, u32 ci)
{
    Machine *m = machine;
    int at = NO_ROOM;
    if (gpu >= MAX_GPU)
        return NO_SUCH;
    machine_lock(m);
    Process *all = m->s->gpu[gpu].process;
    for (int i = 0; i < MAX_PROCESS && at < 0; i++)
        if (all[i].used && all[i].pid == pid)
            at = i;
    for (int i = 0; i < MAX_PROCESS && at < 0 && memory; i++)
        if (!all[i].used)
            at = i;
    if (at >= 0)
        all[at] = (Process){.used = memory != 0, .pid = pid, .gi = gi, .ci = ci, .memory = memory};
    machine_unlock(m);
    return at < 0 ? at : 0;
}

/* Everything on the GPU is gone, what was pending takes effect, and it is well again. */
EXPORT int sim_reset(void *machine, u32 gpu)
{
    Machine *m = machine;
    if (gpu >= MAX_GPU)
        return NO_SUCH;
    machine_lock(m);
    Gpu *g = &m->s->gpu[gpu];
    destroy_all_instances(g);
    g->mig_current = g->mig_pending;
    g->lost = g->off_bus = g->reset_required = g->busy = 0;
    g->remap_pending = g->retired_pending = g->repair_channel = g->repair_tpc = 0;
    g->ecc_errors[0][0] = g->ecc_errors[1][0] = 0;
    g->sram.volatile_unc_parity = g->sram.volatile_unc_secded = g->sram.volatile_cor = 0;
    g->mem_used = g->bar1_used = 0;
    g->recovery_action = 0;
    publish_event(m->s, gpu, EVENT_RECOVERY_ACTION, 0, NOBODY, NOBODY);
    machine_unlock(m);
    return 0;
}

EXPORT u32 sim_instances(void *machine, InstanceRow *out, u32 room)
{
    Machine *m = machine;
    u32 n = 0;
    machine_lock(m);
    for (u32 i = 0; i < MAX_GPU; i++)
        for (u32 k = 0; k < MAX_GI; k++) {
            const Gpu *g = &m->s->gpu[i];
            const Gi *gi = &g->gi[k];
            if (!gi->used)
                continue;
            const Profile *p = &g->profile[gi->profile];
            InstanceRow row = {.gpu = i, .gi = k, .profile_id = p->id, .start = gi->placement.start,
                               .size = gi->placement.size, .gi_busy = gi->busy, .ci = NOBODY};
            memcpy(row.profile, p->name, sizeof row.profile);
            int any = 0;
            for (u32 x = 0; x < MAX_CI; x++) {
                const Ci *ci = &gi->ci[x];
                if (!ci->used)
                    continue;
                any = 1;
                row.ci = x;
                row.ci_profile = ci->profile;
                row.ci_start = ci->placement.start;
                row.ci_size = ci->placement.size;
                row.ci_busy = ci->busy;
                row.mig_index = ci->mig_index;
                memcpy(row.uuid, ci->uuid, sizeof row.uuid);
                if (n < room)
                    out[n++] = row;
            }
            if (!any && n < room)
                out[n++] = row;
        }
    machine_unlock(m);
    return n;
}
