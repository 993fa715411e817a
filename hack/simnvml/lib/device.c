/* Identity, memory, thermal and placement of a device. */
#define _GNU_SOURCE
#include "call.h"
#include <stdio.h>

GETTER(nvmlDeviceGetMinorNumber, ON_PARENT, u32, minor)
GETTER(nvmlDeviceGetBoardId, ON_PARENT, u32, board_id)
GETTER(nvmlDeviceGetModuleId, ON_PARENT, u32, module_id)
GETTER(nvmlDeviceGetBrand, ON_DEVICE, u32, brand)
GETTER(nvmlDeviceGetArchitecture, ON_DEVICE, u32, arch)
GETTER(nvmlDeviceGetNumaNodeId, ON_PARENT, u32, numa)
GETTER(nvmlDeviceGetPersistenceMode, ON_PARENT, u32, persistence)
GETTER(nvmlDeviceGetComputeMode, ON_DEVICE, u32, compute_mode)
GETTER(nvmlDeviceGetVirtualizationMode, ON_PARENT, u32, virtualization)
GETTER(nvmlDeviceGetPowerUsage, ON_PARENT, u32, power_mw)
GETTER(nvmlDeviceGetEnforcedPowerLimit, ON_PARENT, u32, power_limit_mw)
GETTER(nvmlDeviceGetPowerManagementLimit, ON_PARENT, u32, power_limit_mw)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, ON_PARENT, u64, clock_reasons)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, ON_PARENT, u64, clock_reasons)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, ON_PARENT, u32, pcie_gen)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, ON_PARENT, u32, pcie_width)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, ON_PARENT, u32, pcie_gen_max)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, ON_PARENT, u32, pcie_width_max)
GETTER(nvmlDeviceGetPcieReplayCounter, ON_PARENT, u32, pcie_replays)

#define STRING_GETTER(symbol, member)                                                              \
    EXPORT ret_t symbol(void *device, char *out, u32 length)                                       \
    {                                                                                              \
        ENTER(device, ON_PARENT);                                                                  \
        REFUSE_IF(HIDDEN(c.g, member) || !c.g->member[0], NOT_SUPPORTED);                          \
        LEAVE(put_string(out, length, c.g->member));                                               \
    }
STRING_GETTER(nvmlDeviceGetSerial, serial)
STRING_GETTER(nvmlDeviceGetVbiosVersion, vbios)
STRING_GETTER(nvmlDeviceGetBoardPartNumber, part_number)

EXPORT ret_t nvmlDeviceGetName(void *device, char *out, u32 length)
{
    ENTER(device, ON_DEVICE);
    if (c.kind == H_GPU)
        LEAVE(put_string(out, length, c.g->name));
    char text[256];
    snprintf(text, sizeof text, "%s %s", c.g->name, c.g->profile[c.gi->profile].name);
    LEAVE(put_string(out, length, text));
}

EXPORT ret_t nvmlDeviceGetUUID(void *device, char *out, u32 length)
{
    ENTER(device, ON_DEVICE);
    LEAVE(put_string(out, length, c.kind == H_GPU ? c.g->uuid : c.ci->uuid));
}

EXPORT ret_t nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!major || !minor, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, cc_major), NOT_SUPPORTED);
    *major = (int)c.g->cc_major;
    *minor = (int)c.g->cc_minor;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetPciInfo_v3(void *device, PciInfo *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    const Gpu *g = c.g;
    *out = (PciInfo){.domain = g->domain,
                     .bus = g->bus,
                     .device = g->device,
                     .device_id = g->device_id,
                     .subsystem_id = g->subsystem_id};
    snprintf(out->legacy_id, sizeof out->legacy_id, "%04X:%02X:%02X.0", g->domain & 0xffff,
             g->bus & 0xff, g->device & 0x1f);
    snprintf(out->id, sizeof out->id, "%08X:%02X:%02X.0", g->domain, g->bus, g->device);
    LEAVE(OK);
}

/* v2 and v1 differ in layout, not in meaning. */
#define PLATFORM_INFO_V1 0x100002cu

EXPORT ret_t nvmlDeviceGetPlatformInfo(void *device, PlatformInfo *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(PlatformInfo, 2) && out->version != PLATFORM_INFO_V1,
              ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(HIDDEN(c.g, chassis_serial) || !c.g->chassis_serial[0], NOT_SUPPORTED);
    *out = (PlatformInfo){.version = out->version,
                          .slot = (unsigned char)c.g->slot_number,
                          .tray = (unsigned char)c.g->tray_index,
                          .host = (unsigned char)c.g->host_id,
                          .peer_type = c.g->fabric_state ? 1 : 0,
                          .module = (unsigned char)c.g->module_id};
    memcpy(out->chassis_serial, c.g->chassis_serial, sizeof out->chassis_serial);
    LEAVE(OK);
}

/* ---- memory ---- */

static MemoryV2 memory_of(const Call *c)
{
    MemoryV2 m = {.total = c->g->mem_total, .used = c->g->mem_used, .reserved = c->g->mem_reserved};
    if (c->kind == H_MIG) {
        m.total = c->g->profile[c->gi->profile].memory_mib << 20;
        m.used = m.reserved = 0;
        for (int i = 0; i < MAX_PROCESS; i++)
            if (c->g->process[i].used && c->g->process[i].gi == c->gi_id)
                m.used += c->g->process[i].memory;
    }
    m.free = m.total > m.used + m.reserved ? m.total - m.used - m.reserved : 0;
    return m;
}

EXPORT ret_t nvmlDeviceGetMemoryInfo(void *device, Memory *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, mem_total), NOT_SUPPORTED);
    MemoryV2 m = memory_of(&c);
    *out = (Memory){m.total, m.free, m.used + m.reserved};
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(MemoryV2, 2), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(HIDDEN(c.g, mem_total), NOT_SUPPORTED);
    u32 version = out->version;
    *out = memory_of(&c);
    out->version = version;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetBAR1MemoryInfo(void *device, Bar1Memory *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, bar1_total), NOT_SUPPORTED);
    *out = (Bar1Memory){c.g->bar1_total, c.g->bar1_total - c.g->bar1_used, c.g->bar1_used};
    LEAVE(OK);
}

/* ---- thermal, load ---- */

EXPORT ret_t nvmlDeviceGetTemperature(void *device, u32 sensor, u32 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out || sensor, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, temp), NOT_SUPPORTED);
    *out = c.g->temp;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetTemperatureV(void *device, Temperature *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(Temperature, 1), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(out->sensor, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, temp), NOT_SUPPORTED);
    out->temperature = (int)c.g->temp;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetTemperatureThreshold(void *device, u32 kind, u32 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(kind > 1 || HIDDEN(c.g, temp_slowdown), NOT_SUPPORTED);
    *out = kind == 0 ? c.g->temp_shutdown : c.g->temp_slowdown;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetMarginTemperature(void *device, MarginTemperature *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(MarginTemperature, 1), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(HIDDEN(c.g, temp_slowdown), NOT_SUPPORTED);
    out->margin = (int)c.g->temp_slowdown - (int)c.g->temp;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetUtilizationRates(void *device, Utilization *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(c.g->mig_current || HIDDEN(c.g, util_gpu), NOT_SUPPORTED);
    *out = (Utilization){c.g->util_gpu, c.g->util_memory};
    LEAVE(OK);
}

/* ---- modes ---- */

EXPORT ret_t nvmlDeviceGetAddressingMode(void *device, VersionedU32 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(VersionedU32, 1), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(HIDDEN(c.g, addressing), NOT_SUPPORTED);
    out->value = c.g->addressing;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetGspFirmwareMode(void *device, u32 *enabled, u32 *by_default)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!enabled || !by_default, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, gsp), NOT_SUPPORTED);
    *enabled = c.g->gsp;
    *by_default = 1;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceSetPersistenceMode(void *device, u32 mode)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(mode > 1, INVALID_ARGUMENT);
    REFUSE_IF(!caller_is_allowed(c.s), NO_PERMISSION);
    c.g->persistence = mode;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceSetComputeMode(void *device, u32 mode)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(mode > 3, INVALID_ARGUMENT);
    REFUSE_IF(mode == 1 /* exclusive thread: gone from NVML */, NOT_SUPPORTED);
    REFUSE_IF(!caller_is_allowed(c.s), NO_PERMISSION);
    c.g->compute_mode = mode;
    LEAVE(OK);
}

/* ---- topology ---- */

EXPORT ret_t nvmlDeviceGetCpuAffinity(void *device, u32 words, unsigned long *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out || !words, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, cpu_mask), NOT_SUPPORTED);
    for (u32 i = 0; i < words; i++)
        out[i] = i < 4 ? c.g->cpu_mask[i] : 0;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetMemoryAffinity(void *device, u32 words, unsigned long *out, u32 scope)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out || !words || scope > 1, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, numa), NOT_SUPPORTED);
    memset(out, 0, words * sizeof *out);
    if (c.g->numa < 64)
        out[0] = 1ul << c.g->numa;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetTopologyCommonAncestor(void *device, void *other, u32 *out)
{
    enum { INTERNAL = 0, SINGLE = 10, MULTIPLE = 20, HOSTBRIDGE = 30, NODE = 40, SYSTEM = 50 };
    ENTER(device, ON_PARENT);
    const Handle *h = handle_find(other);
    REFUSE_IF(!out || !h || h->kind != H_GPU, INVALID_ARGUMENT);
    const Gpu *a = c.g, *b = &c.s->gpu[h->gpu];
    REFUSE_IF(b->lost || !b->present, GPU_IS_LOST);
    if (a == b)
        *out = INTERNAL;
    else if (a->domain == b->domain && a->pci_root == b->pci_root)
        *out = a->pci_switch && a->pci_switch == b->pci_switch ? SINGLE : HOSTBRIDGE;
    else
        *out = a->numa == b->numa ? NODE : SYSTEM;
    LEAVE(OK);
}
