/* What tells a sick GPU from a well one: ECC, row remapping, links, fabric, field values. */
#define _GNU_SOURCE
#include "call.h"

GETTER(nvmlDeviceGetRetiredPagesPendingStatus, ON_PARENT, u32, retired_pending)

static int has_instances(const Gpu *g)
{
    for (int i = 0; i < MAX_GI; i++)
        if (g->gi[i].used)
            return 1;
    return 0;
}

EXPORT ret_t nvmlDeviceGetEccMode(void *device, u32 *current, u32 *pending)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!current || !pending, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, ecc), NOT_SUPPORTED);
    *current = *pending = c.g->ecc;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetTotalEccErrors(void *device, u32 error, u32 counter, u64 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out || error > 1 || counter > 1, INVALID_ARGUMENT);
    REFUSE_IF(!c.g->ecc || HIDDEN(c.g, ecc_errors), NOT_SUPPORTED);
    *out = c.g->ecc_errors[error][counter];
    LEAVE(OK);
}

/* Locations: 2 is device memory, 7 is SRAM; the rest is not counted on these boards. */
EXPORT ret_t nvmlDeviceGetMemoryErrorCounter(void *device, u32 error, u32 counter, u32 location,
                                             u64 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out || error > 1 || counter > 1, INVALID_ARGUMENT);
    REFUSE_IF(!c.g->ecc || HIDDEN(c.g, ecc_errors), NOT_SUPPORTED);
    const SramStatus *sram = &c.g->sram;
    const u64 in_sram[2][2] = {{sram->volatile_cor, sram->aggregate_cor},
                               {sram->volatile_unc_parity + sram->volatile_unc_secded,
                                sram->aggregate_unc_parity + sram->aggregate_unc_secded}};
    if (location == 2)
        *out = c.g->ecc_errors[error][counter];
    else if (location == 7)
        *out = in_sram[error][counter];
    else
        LEAVE(NOT_SUPPORTED);
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetSramEccErrorStatus(void *device, SramStatus *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(SramStatus, 1), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(!c.g->ecc || HIDDEN(c.g, sram), NOT_SUPPORTED);
    u32 version = out->version;
    *out = c.g->sram;
    out->version = version;
    LEAVE(OK);
}

/* Unsupported as soon as the GPU carries instances; Xids are then the only source. */
EXPORT ret_t nvmlDeviceGetRemappedRows(void *device, u32 *corrected, u32 *uncorrected, u32 *pending,
                                       u32 *failed)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!corrected || !uncorrected || !pending || !failed, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, remap_pending) || has_instances(c.g), NOT_SUPPORTED);
    *corrected = c.g->remap_corrected;
    *uncorrected = c.g->remap_uncorrected;
    *pending = c.g->remap_pending;
    *failed = c.g->remap_failed;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetRemappedRows_v2(void *device, RemapV2 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, remap_pending) || has_instances(c.g), NOT_SUPPORTED);
    *out = (RemapV2){.corr_active = c.g->remap_corrected,
                     .unc_active = c.g->remap_uncorrected,
                     .pending = c.g->remap_pending,
                     .failed = c.g->remap_failed};
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetRowRemapperHistogram(void *device, RemapHistogram *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, remap_histogram) || has_instances(c.g), NOT_SUPPORTED);
    *out = c.g->remap_histogram;
    LEAVE(OK);
}

/* Ampere and later remap rows instead, so boards have no pages unless a test gives them some. All
 * are retired for a double-bit error. */
EXPORT ret_t nvmlDeviceGetRetiredPages(void *device, u32 cause, u32 *count, u64 *addresses)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!count || cause > 1, INVALID_ARGUMENT);
    REFUSE_IF(HIDDEN(c.g, retired_pages), NOT_SUPPORTED);
    u32 room = *count;
    *count = cause == 1 ? c.g->retired_pages : 0;
    REFUSE_IF(*count > room, INSUFFICIENT_SIZE);
    for (u32 i = 0; addresses && i < *count; i++)
        addresses[i] = (u64)(i + 1) << 16;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetRetiredPages_v2(void *device, u32 cause, u32 *count, u64 *addresses,
                                          u64 *times)
{
    (void)cause, (void)addresses, (void)times;
    ENTER(device, ON_PARENT);
    REFUSE_IF(!count, INVALID_ARGUMENT);
    LEAVE(NOT_SUPPORTED);
}

EXPORT ret_t nvmlDeviceGetUnrepairableMemoryFlag_v1(void *device, VersionedU32 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(VersionedU32, 1), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(HIDDEN(c.g, unrepairable), NOT_SUPPORTED);
    out->value = c.g->unrepairable;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetRepairStatus(void *device, RepairStatus *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(out->version != VERSION(RepairStatus, 1), ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(HIDDEN(c.g, repair_channel) || c.g->arch < 10 /* Blackwell */, NOT_SUPPORTED);
    out->channel_pending = c.g->repair_channel;
    out->tpc_pending = c.g->repair_tpc;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceValidateInforom(void *device)
{
    ENTER(device, ON_PARENT);
    LEAVE(c.g->inforom_corrupt ? CORRUPTED_INFOROM : OK);
}

/* ---- NVLink and fabric ---- */

EXPORT ret_t nvmlDeviceGetNvLinkState(void *device, u32 link, u32 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out || link >= MAX_LINK, INVALID_ARGUMENT);
    REFUSE_IF(link >= c.g->nvlinks, NOT_SUPPORTED);
    *out = c.g->nvlink_up >> link & 1;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetNvLinkErrorCounter(void *device, u32 link, u32 counter, u64 *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out || link >= MAX_LINK || counter > 4, INVALID_ARGUMENT);
    REFUSE_IF(link >= c.g->nvlinks, NOT_SUPPORTED);
    *out = c.g->nvlink_errors[link][counter];
    LEAVE(OK);
}

/* Every link ends in one of four switches, as on the 8-GPU baseboards. */
EXPORT ret_t nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, u32 link, PciInfo *out)
{
    ENTER(device, ON_PARENT);
    REFUSE_IF(!out || link >= MAX_LINK, INVALID_ARGUMENT);
    REFUSE_IF(link >= c.g->nvlinks || !(c.g->nvlink_up >> link & 1), NOT_SUPPORTED);
    u32 bus = 5 + link % 4;
    *out = (PciInfo){.bus = bus, .device_id = 0x22a310deu};
    memcpy(out->legacy_id, "0000:0x:00.0", 13);
    memcpy(out->id, "00000000:0x:00.0", 17);
    out->legacy_id[6] = out->id[10] = (char)('0' + bus);
    LEAVE(OK);
}

static int no_fabric(const Gpu *g)
{
    return HIDDEN(g, fabric_state) || g->fabric_state == 0;
}

EXPORT ret_t nvmlDeviceGetGpuFabricInfo(void *device, FabricV1 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(no_fabric(c.g), NOT_SUPPORTED);
    memcpy(out->cluster, c.g->fabric_cluster, sizeof out->cluster);
    out->status = (ret_t)c.g->fabric_status;
    out->clique = c.g->fabric_clique;
    out->state = c.g->fabric_state;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetGpuFabricInfoV(void *device, FabricV3 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    u32 asked = out->version >> 24;
    REFUSE_IF(out->version != VERSION(FabricV2, 2) && out->version != VERSION(FabricV3, 3),
              ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(asked > c.s->fabric_version_max, ARGUMENT_VERSION_MISMATCH);
    REFUSE_IF(no_fabric(c.g), NOT_SUPPORTED);
    memcpy(out->cluster, c.g->fabric_cluster, sizeof out->cluster);
    out->status = (ret_t)c.g->fabric_status;
    out->clique = c.g->fabric_clique;
    out->state = c.g->fabric_state;
    out->health_mask = c.g->fabric_health;
    if (asked == 3) /* v2 ends before this byte */
        out->health_summary = (unsigned char)c.g->fabric_summary;
    LEAVE(OK);
}

EXPORT ret_t nvmlDeviceGetGpuFabricInfo_v4(void *device, FabricV4 *out)
{
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out, INVALID_ARGUMENT);
    REFUSE_IF(no_fabric(c.g), NOT_SUPPORTED);
    memset(out, 0, sizeof *out);
    memcpy(out->cluster, c.g->fabric_cluster, sizeof out->cluster);
    out->status = (ret_t)c.g->fabric_status;
    out->clique_count = 1;
    out->cliques[0].id = c.g->fabric_clique;
    out->state = (unsigned char)c.g->fabric_state;
    out->health_mask = c.g->fabric_health;
    out->health_summary = (unsigned char)c.g->fabric_summary;
    LEAVE(OK);
}

/* ---- field values ---- */

/* Fields that the plain state answers; `scope` is the link where a field has one each. False:
 * unknown here. */
static int standard_field(const Gpu *g, u32 id, u32 scope, u64 *value)
{
    enum {
        NVLINK_COUNT = 91,
        REMAPPED_CORRECTED = 142,
        REMAPPED_UNCORRECTED = 143,
        REMAPPED_PENDING = 144,
        REMAPPED_FAILED = 145,
        NVLINK_REPLAYS = 161, /* then recoveries and CRC errors, as in nvlink_errors */
        NVLINK_CRC_ERRORS = 163,
        RECOVERY_ACTION = 230,
    };
    if (id >= NVLINK_REPLAYS && id <= NVLINK_CRC_ERRORS) {
        *value = scope < g->nvlinks ? g->nvlink_errors[scope][id - NVLINK_REPLAYS] : 0;
        return scope < g->nvlinks;
    }
    switch (id) {
    case NVLINK_COUNT: *value = g->nvlinks; return g->nvlinks > 0;
    case REMAPPED_CORRECTED: *value = g->remap_corrected; return !has_instances(g);
    case REMAPPED_UNCORRECTED: *value = g->remap_uncorrected; return !has_instances(g);
    case REMAPPED_PENDING: *value = g->remap_pending; return !has_instances(g);
    case REMAPPED_FAILED: *value = g->remap_failed; return !has_instances(g);
    case RECOVERY_ACTION: *value = g->recovery_action; return !HIDDEN(g, recovery_action);
    default: return 0;
    }
}

EXPORT ret_t nvmlDeviceGetFieldValues(void *device, int count, FieldValue *out)
{
    enum { TYPE_U32 = 1, TYPE_U64 = 3 };
    ENTER(device, ON_DEVICE);
    REFUSE_IF(!out || count < 1, INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        FieldValue *v = &out[i];
        u64 value = 0;
        v->ret = standard_field(c.g, v->id, v->scope, &value) ? OK : NOT_SUPPORTED;
        v->type = TYPE_U32;
        for (int k = 0; k < MAX_FIELD; k++)
            if (c.g->field[k].id == v->id && v->id) {
                v->ret = c.g->field[k].ret;
                v->type = TYPE_U64;
                value = c.g->field[k].value;
            }
        v->timestamp = (int64_t)realtime_us();
        v->latency = 0;
        v->value.ull = value;
    }
    LEAVE(OK);
}
