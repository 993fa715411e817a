/* The machine: one fixed-layout file that every process maps.
 * All ids, events, rules and counters live here; a process keeps only handles and cursors.
 * Change LAYOUT with every change of a structure: an old file is then refused, not misread. */
#pragma once
#include "abi.h"
#include <pthread.h>
#include <stddef.h>

#define MAGIC 0x314c4d564e4d4953ull /* "SIMNVML1" */
#define LAYOUT 2u

enum {
    MAX_GPU = 16,
    MAX_PROFILE = 18, /* NVML_GPU_INSTANCE_PROFILE_COUNT */
    MAX_PLACEMENT = 12,
    MAX_GI = 16,
    MAX_CI = 8,
    MAX_PROCESS = 16,
    MAX_FIELD = 32,
    MAX_LINK = 18,
    MAX_EVENT = 1024,
    MAX_RULE = 64,
    MAX_SYMBOL = 256,
    MAX_CALL = 256,
    SYMBOL_LEN = 64,
};

typedef struct {
    u32 used, id, slices, count, sm, ce, dec, enc, jpeg, ofa;
    u64 memory_mib;
    char name[96];
    u32 placement_count;
    Placement placement[MAX_PLACEMENT];
} Profile;

typedef struct {
    u32 used, generation, profile, busy, mig_index;
    Placement placement;
    char uuid[48];
} Ci; /* its index in the table is its id */

typedef struct {
    u32 used, generation, profile /* index, not id */, busy;
    Placement placement;
    Ci ci[MAX_CI];
} Gi; /* its index in the table is its id */

typedef struct { u32 used, pid, gi, ci; u64 memory; } Process;

typedef struct {
    /* Plain fields come first: `hidden` has one bit for each 4 bytes of the first 4 KiB. */
    u32 present, lost, off_bus, reset_required, minor, board_id, module_id;
    u32 domain, bus, device, device_id, subsystem_id, pci_root, pci_switch;
    u32 cc_major, cc_minor, arch, brand, slots, gi_slices;
    char name[96], uuid[48], serial[32], vbios[32], part_number[32];
    u64 mem_total, mem_used, mem_reserved, bar1_total, bar1_used;
    u32 mig_capable, mig_current, mig_pending, mig_needs_reset;
    u32 temp, temp_slowdown, temp_shutdown, power_mw, power_limit_mw, util_gpu, util_memory;
    u32 persistence, compute_mode, addressing, virtualization, gsp, ecc, numa, busy;
    u32 pcie_gen, pcie_gen_max, pcie_width, pcie_width_max, pcie_replays;
    u64 clock_reasons, event_types, cpu_mask[4];
    u64 ecc_errors[2][2]; /* [corrected, uncorrected][volatile, aggregate] */
    SramStatus sram;
    u32 remap_corrected, remap_uncorrected, remap_pending, remap_failed;
    RemapHistogram remap_histogram;
    u32 retired_pages, retired_pending, unrepairable, repair_channel, repair_tpc, inforom_corrupt;
    u32 recovery_action;
    u32 nvlinks, nvlink_up;
    u64 nvlink_errors[MAX_LINK][5];
    u32 fabric_state, fabric_status, fabric_clique, fabric_health, fabric_summary;
    unsigned char fabric_cluster[16];
    unsigned char chassis_serial[16];
    u32 slot_number, tray_index, host_id;

    u64 hidden[16];
    struct { u32 id; ret_t ret; u64 value; } field[MAX_FIELD];
    Process process[MAX_PROCESS];
    Profile profile[MAX_PROFILE];
    Gi gi[MAX_GI];
} Gpu;
_Static_assert(offsetof(Gpu, hidden) <= 4096, "plain fields must fit the mask of hidden ones");

typedef struct { u64 type, data, at_us; u32 gpu, gi, ci; } Event;

typedef struct {
    u32 id; /* 0: free */
    char symbol[SYMBOL_LEN];
    int gpu; /* -1: any */
    ret_t ret; /* what the call answers, or what it does instead */
    u32 left, /* hits still to give; 0: for ever */ delay_ms, after, per_million, hits;
    u64 seed;
} Rule;
enum {
    RULE_CRASH = -1, /* abort() inside the call, with the lock held */
    RULE_CORRUPT = -2, /* the call passes, and what it computes is spoilt; only for CUDA */
};

typedef struct { u64 at_ns; u32 symbol, pid; int gpu; ret_t ret; } CallRecord;

typedef struct {
    u64 magic;
    u32 layout, size;
    /* Futex words. `bell` rings on every change, `activity` on entry and exit of every call. */
    u32 bell, activity, activity_waiters;
    u32 generation, rule_seq;
    u64 random;

    u32 driver_loaded, version_mismatch, conf_compute, require_root;
    u32 gi_ids_random, mig_uuid_random, fabric_version_max, profile_version_max, cuda;
    char driver[80], nvml[80], branch[80], boot_id[48], absent[1024];
    u32 major_uvm, major_caps;

    u32 event_head; /* events ever published */
    Event event[MAX_EVENT];
    Rule rule[MAX_RULE];
    struct { char name[SYMBOL_LEN]; u64 calls; } symbol[MAX_SYMBOL];
    u64 call_head; /* calls ever finished */
    CallRecord call[MAX_CALL];
    Gpu gpu[MAX_GPU];
} State;

/* One mapping of one state file. The NVML side of a process has one; a test may open more. */
typedef struct Machine {
    State *s;
    int fd;
    u32 in_flight; /* calls that sleep with this mapping in hand: it must stay mapped */
    u64 inode;
    pthread_mutex_t mutex;
    struct Machine *next;
} Machine;

/* Guards everything process-local on the NVML side; taken before a machine's own mutex. */
extern pthread_mutex_t process_mutex;

Machine *machine_open(const char *file);
Machine *machine_create(const char *file);
void machine_close(Machine *m);
void machine_lock(Machine *m);
void machine_unlock(Machine *m);

void futex_wake(u32 *word);
/* Waits while *word == seen, at most until `deadline_ns` of CLOCK_MONOTONIC.
 * 0: woken or changed; ETIMEDOUT; EINTR. */
int futex_wait(u32 *word, u32 seen, u64 deadline_ns);
u64 monotonic_ns(void);
u64 realtime_us(void);
u64 random_next(u64 *seed);

/* Caller holds the lock. */
void ring_bell(State *s);
void publish_event(State *s, u32 gpu, u64 type, u64 data, u32 gi, u32 ci);
void destroy_all_instances(Gpu *g);
