/* The public NVML ABI: return codes and structure layouts, and nothing of our own.
 * A test compares every size and offset with the ctypes structures of nvidia-ml-py. */
#pragma once
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int ret_t;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    CORRUPTED_INFOROM = 14,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    VERSION_MISMATCH_RM = 18,
    IN_USE = 19,
    OUT_OF_MEMORY = 20,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN_ERROR = 999,
};

#define NOBODY 0xFFFFFFFFu /* instance id of an event that belongs to no instance */
#define VERSION(type, number) ((u32)(sizeof(type) | ((u32)(number) << 24)))

enum {
    EVENT_XID = 0x8,
    EVENT_MIG_CONFIG = 0x100,
    EVENT_RECOVERY_ACTION = 0x8000,
};

typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { u64 total, free, used; } Bar1Memory;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct { u32 version, value; } VersionedU32;
typedef struct { u32 version; int margin; } MarginTemperature;
typedef struct { u32 version, sensor; int temperature; } Temperature;
typedef struct { u32 version, channel_pending, tpc_pending; } RepairStatus;
typedef struct { u32 version; char branch[80]; } DriverBranch;
typedef struct { u32 environment, feature, devtools; } ConfComputeState;
typedef struct { u32 version, environment, feature, devtools, multi_gpu; } ConfComputeSettings;
typedef struct { u32 max, high, partial, low, none; } RemapHistogram;
typedef struct {
    u32 corr_active, corr_inactive, unc_active, unc_inactive, pending, failed;
} RemapV2;

typedef struct {
    char legacy_id[16];
    u32 domain, bus, device, device_id, subsystem_id;
    char id[32];
} PciInfo;

typedef struct {
    u32 version, type;
    union { char text[41]; unsigned char bytes[16]; } value;
} Uuid;

typedef struct {
    u32 version;
    unsigned char ib_guid[16], chassis_serial[16];
    unsigned char slot, tray, host, peer_type, module;
} PlatformInfo;

typedef struct {
    u32 version;
    u64 aggregate_unc_parity, aggregate_unc_secded, aggregate_cor;
    u64 volatile_unc_parity, volatile_unc_secded, volatile_cor;
    u64 bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    u32 threshold_exceeded;
} SramStatus;

typedef struct {
    u32 id, scope;
    int64_t timestamp, latency;
    u32 type;
    ret_t ret;
    union { double d; u32 u; u64 ull; int64_t sll; } value;
} FieldValue;

typedef struct { unsigned char cluster[16]; ret_t status; u32 clique, state; } FabricV1;
typedef struct {
    u32 version;
    unsigned char cluster[16];
    ret_t status;
    u32 clique, state, health_mask;
} FabricV2;
typedef struct {
    u32 version;
    unsigned char cluster[16];
    ret_t status;
    u32 clique, state, health_mask;
    unsigned char health_summary;
} FabricV3;
typedef struct { unsigned char type; u32 id; } FabricClique;
typedef struct {
    unsigned char cluster[16];
    ret_t status;
    FabricClique cliques[64];
    u32 clique_count;
    unsigned char state;
    u32 health_mask;
    unsigned char health_summary;
} FabricV4;

typedef struct { u32 pid; u64 memory; u32 gi, ci; } ProcessInfo;

/* ---- MIG ---- */
typedef struct { u32 start, size; } Placement;
typedef struct {
    u32 id, p2p, slices, count, sm, ce, dec, enc, jpeg, ofa;
    u64 memory_mib;
} GiProfile;
typedef struct {
    u32 version, id, p2p, slices, count, sm, ce, dec, enc, jpeg, ofa;
    u64 memory_mib;
    char name[96];
} GiProfileV2;
typedef struct {
    u32 version, id, slices, count, sm, ce, dec, enc, jpeg, ofa; /* no p2p any more */
    u64 memory_mib;
    char name[96];
    u32 capabilities;
} GiProfileV3;
typedef struct { void *device; u32 id, profile; Placement placement; } GiInfo;
typedef struct { u32 id, slices, count, sm, ce, dec, enc, jpeg, ofa; } CiProfile;
typedef struct {
    u32 version, id, slices, count, sm, ce, dec, enc, jpeg, ofa;
    char name[96];
} CiProfileV2;
typedef struct { void *device, *gi; u32 id, profile; Placement placement; } CiInfo;
typedef struct {
    u32 sm, ce, dec, enc, jpeg, ofa, gi_slices, ci_slices;
    u64 memory_mib;
} Attributes;

/* ---- events ---- */
typedef struct { void *device; u64 type, data; u32 gi, ci; } EventData;
typedef struct {
    u32 timeout_ms, data_type;
    char uuid[96], source_module[16];
    u64 type, data, group_cursor, instance_id, timestamp_us, trace_id;
    u32 gi, ci, severity, category, module_event_code, scope, originator;
    u32 module_instance, chiplet, log_level, attributes, group_cper_size, group_attributes;
    unsigned char group_size, group_index;
} EventWaitV3;
