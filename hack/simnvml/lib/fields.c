/* Every plain field of the machine and of a GPU by name, for the control side. */
#define _GNU_SOURCE
#include "control.h"
#include <string.h>

#define SIZE(type, member) sizeof(((type *)0)->member)
#define FIELD(type, member, kind) {#member, offsetof(type, member), SIZE(type, member), kind}
#define G32(member) FIELD(Gpu, member, FIELD_U32)
#define G64(member) FIELD(Gpu, member, FIELD_U64)
#define GSTR(member) FIELD(Gpu, member, FIELD_TEXT)
#define GRAW(member) FIELD(Gpu, member, FIELD_BYTES)
#define SRAM(member)                                                                               \
    {"sram_" #member, offsetof(Gpu, sram.member), SIZE(Gpu, sram.member),                          \
     SIZE(Gpu, sram.member) == 4 ? FIELD_U32 : FIELD_U64}
#define M32(member) FIELD(State, member, FIELD_U32)
#define M64(member) FIELD(State, member, FIELD_U64)
#define MSTR(member) FIELD(State, member, FIELD_TEXT)

const Field gpu_fields[] = {
    G32(present), G32(lost), G32(off_bus), G32(reset_required), G32(minor), G32(board_id),
    G32(module_id), G32(domain), G32(bus), G32(device), G32(device_id), G32(subsystem_id),
    G32(pci_root), G32(pci_switch), G32(cc_major), G32(cc_minor), G32(arch), G32(brand),
    G32(slots), G32(gi_slices), GSTR(name), GSTR(uuid), GSTR(serial), GSTR(vbios),
    GSTR(part_number), G64(mem_total), G64(mem_used), G64(mem_reserved), G64(bar1_total),
    G64(bar1_used), G32(mig_capable), G32(mig_current), G32(mig_pending), G32(mig_needs_reset),
    G32(temp), G32(temp_slowdown), G32(temp_shutdown), G32(power_mw), G32(power_limit_mw),
    G32(util_gpu), G32(util_memory), G32(persistence), G32(compute_mode), G32(addressing),
    G32(virtualization), G32(gsp), G32(ecc), G32(numa), G32(busy), G32(pcie_gen),
    G32(pcie_gen_max), G32(pcie_width), G32(pcie_width_max), G32(pcie_replays),
    G64(clock_reasons), G64(event_types), G64(cpu_mask), G64(ecc_errors),
    SRAM(aggregate_unc_parity), SRAM(aggregate_unc_secded), SRAM(aggregate_cor),
    SRAM(volatile_unc_parity), SRAM(volatile_unc_secded), SRAM(volatile_cor), SRAM(bucket_l2),
    SRAM(bucket_sm), SRAM(bucket_pcie), SRAM(bucket_mcu), SRAM(bucket_other),
    SRAM(threshold_exceeded), GRAW(sram), G32(remap_corrected), G32(remap_uncorrected),
    G32(remap_pending), G32(remap_failed), G32(remap_histogram), G32(retired_pages),
    G32(retired_pending), G32(unrepairable), G32(repair_channel), G32(repair_tpc), G32(inforom_corrupt),
    G32(recovery_action), G32(nvlinks), G32(nvlink_up), G64(nvlink_errors), G32(fabric_state),
    G32(fabric_status), G32(fabric_clique), G32(fabric_health), G32(fabric_summary),
    GRAW(fabric_cluster), GRAW(chassis_serial), G32(slot_number), G32(tray_index), G32(host_id),
};
const u32 gpu_field_count = sizeof gpu_fields / sizeof *gpu_fields;

const Field machine_fields[] = {
    M32(driver_loaded), M32(version_mismatch), M32(conf_compute), M32(require_root),
    M32(gi_ids_random), M32(mig_uuid_random), M32(fabric_version_max), M32(profile_version_max),
    M32(cuda), MSTR(driver), MSTR(nvml), MSTR(branch), MSTR(boot_id), MSTR(absent),
    M32(major_uvm), M32(major_caps), M64(random),
};
const u32 machine_field_count = sizeof machine_fields / sizeof *machine_fields;

const Field *find_field(int gpu, const char *name)
{
    const Field *fields = gpu < 0 ? machine_fields : gpu_fields;
    u32 n = gpu < 0 ? machine_field_count : gpu_field_count;
    for (u32 i = 0; i < n; i++)
        if (!strcmp(fields[i].name, name))
            return &fields[i];
    return NULL;
}
