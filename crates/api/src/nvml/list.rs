//! The list: every function of `nvml.h` 13.0, and how a call is handled.
//!
//! The only place that knows the arguments. `asked` calls are carried to the server; their exported symbols,
//! the checks at both ends and the call of NVIDIA's library are made from the line. `here` are written by
//! hand in the client library. `refused` would change the server's GPUs for all clients and answer what a user
//! gets who is not root. `absent` answer that they are not supported. The modes of arguments are explained at
//! [`Mode`](super::Mode).

/// Calls the macro `$with` with the whole list.
#[macro_export]
macro_rules! nvml_functions {
    ($with:ident) => {
        $with! {
            forwarded {
                // Versions.
                nvmlSystemGetDriverVersion(version: characters("length"), length: value(U32));
                nvmlSystemGetNVMLVersion(version: characters("length"), length: value(U32));
                nvmlSystemGetCudaDriverVersion(cuda_driver_version: out(I32));
                nvmlSystemGetCudaDriverVersion_v2(cuda_driver_version: out(I32));
                nvmlSystemGetDriverBranch(branch_info: versioned(SYSTEM_DRIVER_BRANCH_INFO), length: value(U32));
                nvmlDeviceGetInforomVersion(device: DEVICE, object: value(INFOROM_OBJECT), version:
                    characters("length"), length: value(U32));
                nvmlDeviceGetInforomImageVersion(device: DEVICE, version: characters("length"), length: value(U32));
                nvmlDeviceGetInforomConfigurationChecksum(device: DEVICE, checksum: out(U32));
                nvmlDeviceGetDriverModel_v2(device: DEVICE, current: out(DRIVER_MODEL), pending: out(DRIVER_MODEL));
                nvmlDeviceGetVbiosVersion(device: DEVICE, version: characters("length"), length: value(U32));
                nvmlDeviceGetGspFirmwareVersion(device: DEVICE, version: out_array(CHAR, 64));
                nvmlDeviceGetGspFirmwareMode(device: DEVICE, is_enabled: out(U32), default_mode: out(U32));
                nvmlDeviceGetDriverModel(device: DEVICE, current: out(DRIVER_MODEL), pending: out(DRIVER_MODEL));
                // Which devices there are.
                nvmlUnitGetCount(unit_count: out(U32));
                nvmlDeviceGetCount_v2(device_count: out(U32));
                nvmlDeviceGetHandleByIndex_v2(index: value(U32), device: OUT_DEVICE);
                nvmlDeviceGetHandleBySerial(serial: TEXT, device: OUT_DEVICE);
                nvmlDeviceGetHandleByUUID(uuid: TEXT, device: OUT_DEVICE);
                nvmlDeviceGetHandleByUUIDV(uuid: versioned_in(UUID), device: OUT_DEVICE);
                nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id: TEXT, device: OUT_DEVICE);
                nvmlGetExcludedDeviceCount(device_count: out(U32));
                nvmlGetExcludedDeviceInfoByIndex(index: value(U32), info: out(EXCLUDED_DEVICE_INFO));
                nvmlDeviceGetCount(device_count: out(U32));
                nvmlDeviceGetHandleByIndex(index: value(U32), device: OUT_DEVICE);
                nvmlDeviceGetHandleByPciBusId(pci_bus_id: TEXT, device: OUT_DEVICE);
                // Which device it is.
                nvmlDeviceGetName(device: DEVICE, name: characters("length"), length: value(U32));
                nvmlDeviceGetBrand(device: DEVICE, kind: out(BRAND_TYPE));
                nvmlDeviceGetIndex(device: DEVICE, index: out(U32));
                nvmlDeviceGetSerial(device: DEVICE, serial: characters("length"), length: value(U32));
                nvmlDeviceGetModuleId(device: DEVICE, module_id: out(U32));
                nvmlDeviceGetUUID(device: DEVICE, uuid: characters("length"), length: value(U32));
                nvmlDeviceGetMinorNumber(device: DEVICE, minor_number: out(U32));
                nvmlDeviceGetBoardPartNumber(device: DEVICE, part_number: characters("length"), length: value(U32));
                nvmlDeviceGetCudaComputeCapability(device: DEVICE, major: out(I32), minor: out(I32));
                nvmlDeviceGetBoardId(device: DEVICE, board_id: out(U32));
                nvmlDeviceGetNumGpuCores(device: DEVICE, num_cores: out(U32));
                nvmlDeviceGetArchitecture(device: DEVICE, arch: out(DEVICE_ARCHITECTURE));
                nvmlDeviceGetPdi(device: DEVICE, pdi: versioned(PDI));
                nvmlDeviceGetHostname_v1(device: DEVICE, hostname: out(HOSTNAME_V1));
                // PCI.
                nvmlDeviceGetPciInfoExt(device: DEVICE, pci: versioned(PCI_INFO_EXT));
                nvmlDeviceGetPciInfo_v3(device: DEVICE, pci: out(PCI_INFO));
                nvmlDeviceGetMaxPcieLinkGeneration(device: DEVICE, max_link_gen: out(U32));
                nvmlDeviceGetGpuMaxPcieLinkGeneration(device: DEVICE, max_link_gen_device: out(U32));
                nvmlDeviceGetMaxPcieLinkWidth(device: DEVICE, max_link_width: out(U32));
                nvmlDeviceGetCurrPcieLinkGeneration(device: DEVICE, curr_link_gen: out(U32));
                nvmlDeviceGetCurrPcieLinkWidth(device: DEVICE, curr_link_width: out(U32));
                nvmlDeviceGetPcieThroughput(device: DEVICE, counter: value(PCIE_UTIL_COUNTER), value: out(U32));
                nvmlDeviceGetPcieReplayCounter(device: DEVICE, value: out(U32));
                nvmlDeviceGetIrqNum(device: DEVICE, irq_num: out(U32));
                nvmlDeviceGetPcieLinkMaxSpeed(device: DEVICE, max_speed: out(U32));
                nvmlDeviceGetPcieSpeed(device: DEVICE, pcie_speed: out(U32));
                nvmlDeviceGetBusType(device: DEVICE, kind: out(BUS_TYPE));
                // Where a device is, and what joins it to others.
                nvmlSystemGetHicVersion(hwbc_count: inout(U32), hwbc_entries: list(HWBC_ENTRY, "hwbc_count"));
                nvmlSystemGetTopologyGpuSet(cpu_number: value(U32), count: inout(U32), device_array:
                    devices("count"));
                nvmlDeviceGetC2cModeInfoV(device: DEVICE, c2c_mode_info: out(C2C_MODE_INFO_V1));
                nvmlDeviceGetMemoryAffinity(device: DEVICE, node_set_size: value(U32), node_set: array(WORD,
                    "node_set_size"), scope: value(AFFINITY_SCOPE));
                nvmlDeviceGetCpuAffinityWithinScope(device: DEVICE, cpu_set_size: value(U32), cpu_set: array(WORD,
                    "cpu_set_size"), scope: value(AFFINITY_SCOPE));
                nvmlDeviceGetCpuAffinity(device: DEVICE, cpu_set_size: value(U32), cpu_set: array(WORD,
                    "cpu_set_size"));
                nvmlDeviceGetNumaNodeId(device: DEVICE, node: out(U32));
                nvmlDeviceGetTopologyCommonAncestor(device1: DEVICE, device2: DEVICE, path_info:
                    out(GPU_TOPOLOGY_LEVEL));
                nvmlDeviceGetTopologyNearestGpus(device: DEVICE, level: value(GPU_TOPOLOGY_LEVEL), count: inout(U32),
                    device_array: devices("count"));
                nvmlDeviceGetP2PStatus(device1: DEVICE, device2: DEVICE, p2p_index: value(P2P_CAPS_INDEX), p2p_status:
                    out(GPU_P2P_STATUS));
                nvmlDeviceGetMultiGpuBoard(device: DEVICE, multi_gpu_bool: out(U32));
                nvmlDeviceGetBridgeChipInfo(device: DEVICE, bridge_hierarchy: out(BRIDGE_CHIP_HIERARCHY));
                nvmlDeviceOnSameBoard(device1: DEVICE, device2: DEVICE, on_same_board: out(I32));
                nvmlDeviceGetGpuFabricInfo(device: DEVICE, gpu_fabric_info: out(GPU_FABRIC_INFO));
                nvmlDeviceGetGpuFabricInfoV(device: DEVICE, gpu_fabric_info: versioned(GPU_FABRIC_INFO_V));
                nvmlDeviceGetNvLinkState(device: DEVICE, link: value(U32), is_active: out(ENABLE_STATE));
                nvmlDeviceGetNvLinkVersion(device: DEVICE, link: value(U32), version: out(U32));
                nvmlDeviceGetNvLinkCapability(device: DEVICE, link: value(U32), capability: value(NV_LINK_CAPABILITY),
                    cap_result: out(U32));
                nvmlDeviceGetNvLinkRemotePciInfo_v2(device: DEVICE, link: value(U32), pci: out(PCI_INFO));
                nvmlDeviceGetNvLinkErrorCounter(device: DEVICE, link: value(U32), counter:
                    value(NV_LINK_ERROR_COUNTER), counter_value: out(U64));
                nvmlDeviceGetNvLinkUtilizationControl(device: DEVICE, link: value(U32), counter: value(U32), control:
                    out(NV_LINK_UTILIZATION_CONTROL));
                nvmlDeviceGetNvLinkUtilizationCounter(device: DEVICE, link: value(U32), counter: value(U32),
                    rxcounter: out(U64), txcounter: out(U64));
                nvmlDeviceGetNvLinkRemoteDeviceType(device: DEVICE, link: value(U32), nv_link_device_type:
                    out(INT_NV_LINK_DEVICE_TYPE));
                nvmlSystemGetNvlinkBwMode(nvlink_bw_mode: out(U32));
                nvmlDeviceGetNvlinkSupportedBwModes(device: DEVICE, supported_bw_mode:
                    versioned(NVLINK_SUPPORTED_BW_MODES));
                nvmlDeviceGetNvlinkBwMode(device: DEVICE, get_bw_mode: versioned(NVLINK_GET_BW_MODE));
                nvmlDeviceGetNvLinkInfo(device: DEVICE, info: versioned(NV_LINK_INFO));
                // Memory and its errors.
                nvmlDeviceGetRepairStatus(device: DEVICE, repair_status: versioned(REPAIR_STATUS));
                nvmlDeviceGetMemoryInfo(device: DEVICE, memory: out(MEMORY));
                nvmlDeviceGetMemoryInfo_v2(device: DEVICE, memory: versioned(MEMORY_V2));
                nvmlDeviceGetEccMode(device: DEVICE, current: out(ENABLE_STATE), pending: out(ENABLE_STATE));
                nvmlDeviceGetDefaultEccMode(device: DEVICE, default_mode: out(ENABLE_STATE));
                nvmlDeviceGetTotalEccErrors(device: DEVICE, error_type: value(MEMORY_ERROR_TYPE), counter_type:
                    value(ECC_COUNTER_TYPE), ecc_counts: out(U64));
                nvmlDeviceGetDetailedEccErrors(device: DEVICE, error_type: value(MEMORY_ERROR_TYPE), counter_type:
                    value(ECC_COUNTER_TYPE), ecc_counts: out(ECC_ERROR_COUNTS));
                nvmlDeviceGetMemoryErrorCounter(device: DEVICE, error_type: value(MEMORY_ERROR_TYPE), counter_type:
                    value(ECC_COUNTER_TYPE), location_type: value(MEMORY_LOCATION), count: out(U64));
                nvmlDeviceGetBAR1MemoryInfo(device: DEVICE, bar1_memory: out(BAR1_MEMORY));
                nvmlDeviceGetMemoryBusWidth(device: DEVICE, bus_width: out(U32));
                nvmlDeviceGetSramEccErrorStatus(device: DEVICE, status: versioned(ECC_SRAM_ERROR_STATUS));
                nvmlDeviceGetRetiredPages(device: DEVICE, cause: value(PAGE_RETIREMENT_CAUSE), page_count: inout(U32),
                    addresses: list(U64, "page_count"));
                nvmlDeviceGetRetiredPages_v2(device: DEVICE, cause: value(PAGE_RETIREMENT_CAUSE), page_count:
                    inout(U32), addresses: list(U64, "page_count"), timestamps: list(U64, "page_count"));
                nvmlDeviceGetRetiredPagesPendingStatus(device: DEVICE, is_pending: out(ENABLE_STATE));
                nvmlDeviceGetRemappedRows(device: DEVICE, corr_rows: out(U32), unc_rows: out(U32), is_pending:
                    out(U32), failure_occurred: out(U32));
                nvmlDeviceGetRowRemapperHistogram(device: DEVICE, values: out(ROW_REMAPPER_HISTOGRAM_VALUES));
                // Utilisation.
                nvmlDeviceGetUtilizationRates(device: DEVICE, utilization: out(UTILIZATION));
                nvmlDeviceGetEncoderUtilization(device: DEVICE, utilization: out(U32), sampling_period_us: out(U32));
                nvmlDeviceGetEncoderCapacity(device: DEVICE, encoder_query_type: value(ENCODER_TYPE),
                    encoder_capacity: out(U32));
                nvmlDeviceGetEncoderStats(device: DEVICE, session_count: out(U32), average_fps: out(U32),
                    average_latency: out(U32));
                nvmlDeviceGetEncoderSessions(device: DEVICE, session_count: inout(U32), session_infos:
                    list(ENCODER_SESSION_INFO, "session_count"));
                nvmlDeviceGetDecoderUtilization(device: DEVICE, utilization: out(U32), sampling_period_us: out(U32));
                nvmlDeviceGetJpgUtilization(device: DEVICE, utilization: out(U32), sampling_period_us: out(U32));
                nvmlDeviceGetOfaUtilization(device: DEVICE, utilization: out(U32), sampling_period_us: out(U32));
                nvmlDeviceGetFBCStats(device: DEVICE, fbc_stats: out(FBC_STATS));
                nvmlDeviceGetFBCSessions(device: DEVICE, session_count: inout(U32), session_info:
                    list(FBC_SESSION_INFO, "session_count"));
                nvmlDeviceGetSamples(device: DEVICE, kind: value(SAMPLING_TYPE), last_seen_time_stamp: value(U64),
                    sample_val_type: out(VALUE_TYPE), sample_count: inout(U32), samples: list(SAMPLE,
                    "sample_count"));
                nvmlGpmQueryDeviceSupport(device: DEVICE, gpm_support: inout(GPM_SUPPORT));
                nvmlGpmQueryIfStreamingEnabled(device: DEVICE, state: out(U32));
                // Processes.
                nvmlDeviceGetComputeRunningProcesses_v3(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO, "info_count"));
                nvmlDeviceGetGraphicsRunningProcesses_v3(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO, "info_count"));
                nvmlDeviceGetMPSComputeRunningProcesses_v3(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO, "info_count"));
                nvmlDeviceGetProcessUtilization(device: DEVICE, utilization: processes(PROCESS_UTILIZATION_SAMPLE,
                    "process_samples_count"), process_samples_count: inout(U32), last_seen_time_stamp: value(U64));
                nvmlDeviceGetComputeRunningProcesses(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO_V1, "info_count"));
                nvmlDeviceGetComputeRunningProcesses_v2(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO_V2, "info_count"));
                nvmlDeviceGetGraphicsRunningProcesses(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO_V1, "info_count"));
                nvmlDeviceGetGraphicsRunningProcesses_v2(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO_V2, "info_count"));
                nvmlDeviceGetMPSComputeRunningProcesses(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO_V1, "info_count"));
                nvmlDeviceGetMPSComputeRunningProcesses_v2(device: DEVICE, info_count: inout(U32), infos:
                    processes(PROCESS_INFO_V2, "info_count"));
                nvmlDeviceGetAccountingMode(device: DEVICE, mode: out(ENABLE_STATE));
                nvmlDeviceGetAccountingBufferSize(device: DEVICE, buffer_size: out(U32));
                // Clocks and performance states.
                nvmlDeviceGetClockInfo(device: DEVICE, kind: value(CLOCK_TYPE), clock: out(U32));
                nvmlDeviceGetMaxClockInfo(device: DEVICE, kind: value(CLOCK_TYPE), clock: out(U32));
                nvmlDeviceGetGpcClkVfOffset(device: DEVICE, offset: out(I32));
                nvmlDeviceGetApplicationsClock(device: DEVICE, clock_type: value(CLOCK_TYPE), clock_mhz: out(U32));
                nvmlDeviceGetDefaultApplicationsClock(device: DEVICE, clock_type: value(CLOCK_TYPE), clock_mhz:
                    out(U32));
                nvmlDeviceGetClock(device: DEVICE, clock_type: value(CLOCK_TYPE), clock_id: value(CLOCK_ID),
                    clock_mhz: out(U32));
                nvmlDeviceGetMaxCustomerBoostClock(device: DEVICE, clock_type: value(CLOCK_TYPE), clock_mhz:
                    out(U32));
                nvmlDeviceGetSupportedMemoryClocks(device: DEVICE, count: inout(U32), clocks_mhz: list(U32, "count"));
                nvmlDeviceGetSupportedGraphicsClocks(device: DEVICE, memory_clock_mhz: value(U32), count: inout(U32),
                    clocks_mhz: list(U32, "count"));
                nvmlDeviceGetAutoBoostedClocksEnabled(device: DEVICE, is_enabled: out(ENABLE_STATE),
                    default_is_enabled: out(ENABLE_STATE));
                nvmlDeviceGetPerformanceState(device: DEVICE, state: out(PSTATES));
                nvmlDeviceGetCurrentClocksEventReasons(device: DEVICE, clocks_event_reasons: out(U64));
                nvmlDeviceGetCurrentClocksThrottleReasons(device: DEVICE, clocks_throttle_reasons: out(U64));
                nvmlDeviceGetSupportedClocksEventReasons(device: DEVICE, supported_clocks_event_reasons: out(U64));
                nvmlDeviceGetSupportedClocksThrottleReasons(device: DEVICE, supported_clocks_throttle_reasons:
                    out(U64));
                nvmlDeviceGetPowerState(device: DEVICE, state: out(PSTATES));
                nvmlDeviceGetDynamicPstatesInfo(device: DEVICE, dynamic_pstates_info: out(GPU_DYNAMIC_PSTATES_INFO));
                nvmlDeviceGetMemClkVfOffset(device: DEVICE, offset: out(I32));
                nvmlDeviceGetMinMaxClockOfPState(device: DEVICE, kind: value(CLOCK_TYPE), pstate: value(PSTATES),
                    min_clock_mhz: out(U32), max_clock_mhz: out(U32));
                nvmlDeviceGetSupportedPerformanceStates(device: DEVICE, pstates: bytes(PSTATES, "size"), size:
                    value(U32));
                nvmlDeviceGetGpcClkMinMaxVfOffset(device: DEVICE, min_offset: out(I32), max_offset: out(I32));
                nvmlDeviceGetMemClkMinMaxVfOffset(device: DEVICE, min_offset: out(I32), max_offset: out(I32));
                nvmlDeviceGetClockOffsets(device: DEVICE, info: versioned(CLOCK_OFFSET));
                nvmlDeviceGetPerformanceModes(device: DEVICE, perf_modes: versioned(DEVICE_PERF_MODES));
                nvmlDeviceGetCurrentClockFreqs(device: DEVICE, current_clock_freqs:
                    versioned(DEVICE_CURRENT_CLOCK_FREQS));
                nvmlDeviceGetViolationStatus(device: DEVICE, perf_policy_type: value(PERF_POLICY_TYPE), viol_time:
                    out(VIOLATION_TIME));
                nvmlDeviceGetAdaptiveClockInfoStatus(device: DEVICE, adaptive_clock_status: out(U32));
                nvmlDeviceGetClkMonStatus(device: DEVICE, status: out(CLK_MON_STATUS));
                // Power.
                nvmlDeviceGetPowerManagementMode(device: DEVICE, mode: out(ENABLE_STATE));
                nvmlDeviceGetPowerManagementLimit(device: DEVICE, limit: out(U32));
                nvmlDeviceGetPowerManagementLimitConstraints(device: DEVICE, min_limit: out(U32), max_limit:
                    out(U32));
                nvmlDeviceGetPowerManagementDefaultLimit(device: DEVICE, default_limit: out(U32));
                nvmlDeviceGetPowerUsage(device: DEVICE, power: out(U32));
                nvmlDeviceGetPowerMizerMode_v1(device: DEVICE, power_mizer_mode: out(DEVICE_POWER_MIZER_MODES_V1));
                nvmlDeviceGetTotalEnergyConsumption(device: DEVICE, energy: out(U64));
                nvmlDeviceGetEnforcedPowerLimit(device: DEVICE, limit: out(U32));
                nvmlDeviceGetPowerSource(device: DEVICE, power_source: out(POWER_SOURCE));
                nvmlDeviceWorkloadPowerProfileGetProfilesInfo(device: DEVICE, profiles_info:
                    versioned(WORKLOAD_POWER_PROFILE_PROFILES_INFO));
                nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(device: DEVICE, current_profiles:
                    versioned(WORKLOAD_POWER_PROFILE_CURRENT_PROFILES));
                // Temperature and fans.
                nvmlDeviceGetFanSpeed(device: DEVICE, speed: out(U32));
                nvmlDeviceGetFanSpeed_v2(device: DEVICE, fan: value(U32), speed: out(U32));
                nvmlDeviceGetFanSpeedRPM(device: DEVICE, fan_speed: versioned(FAN_SPEED_INFO));
                nvmlDeviceGetTargetFanSpeed(device: DEVICE, fan: value(U32), target_speed: out(U32));
                nvmlDeviceGetMinMaxFanSpeed(device: DEVICE, min_speed: out(U32), max_speed: out(U32));
                nvmlDeviceGetFanControlPolicy_v2(device: DEVICE, fan: value(U32), policy: out(FAN_CONTROL_POLICY));
                nvmlDeviceGetNumFans(device: DEVICE, num_fans: out(U32));
                nvmlDeviceGetTemperature(device: DEVICE, sensor_type: value(TEMPERATURE_SENSORS), temp: out(U32));
                nvmlDeviceGetCoolerInfo(device: DEVICE, cooler_info: versioned(COOLER_INFO));
                nvmlDeviceGetTemperatureV(device: DEVICE, temperature: versioned(TEMPERATURE));
                nvmlDeviceGetTemperatureThreshold(device: DEVICE, threshold_type: value(TEMPERATURE_THRESHOLDS), temp:
                    out(U32));
                nvmlDeviceGetMarginTemperature(device: DEVICE, margin_temp_info: versioned(MARGIN_TEMPERATURE));
                nvmlDeviceGetThermalSettings(device: DEVICE, sensor_index: value(U32), thermal_settings:
                    out(GPU_THERMAL_SETTINGS));
                // Modes and the rest.
                nvmlDeviceGetAddressingMode(device: DEVICE, mode: versioned(DEVICE_ADDRESSING_MODE));
                nvmlDeviceGetLastBBXFlushTime(device: DEVICE, timestamp: out(U64), duration_us: out(WORD));
                nvmlDeviceGetDisplayMode(device: DEVICE, display: out(ENABLE_STATE));
                nvmlDeviceGetDisplayActive(device: DEVICE, is_active: out(ENABLE_STATE));
                nvmlDeviceGetPersistenceMode(device: DEVICE, mode: out(ENABLE_STATE));
                nvmlDeviceGetGpuOperationMode(device: DEVICE, current: out(GPU_OPERATION_MODE), pending:
                    out(GPU_OPERATION_MODE));
                nvmlDeviceGetComputeMode(device: DEVICE, mode: out(COMPUTE_MODE));
                nvmlDeviceGetAPIRestriction(device: DEVICE, api_type: value(RESTRICTED_API), is_restricted:
                    out(ENABLE_STATE));
                nvmlDeviceGetPlatformInfo(device: DEVICE, platform_info: versioned(PLATFORM_INFO));
                nvmlDeviceGetFieldValues(device: DEVICE, values_count: value(I32), values: array(FIELD_VALUE,
                    "values_count"));
                nvmlDeviceGetVirtualizationMode(device: DEVICE, virtual_mode: out(GPU_VIRTUALIZATION_MODE));
                nvmlDeviceGetHostVgpuMode(device: DEVICE, host_vgpu_mode: out(HOST_VGPU_MODE));
                nvmlDeviceGetGridLicensableFeatures_v4(device: DEVICE, grid_licensable_features:
                    out(GRID_LICENSABLE_FEATURES));
                nvmlDeviceGetCapabilities(device: DEVICE, caps: versioned(DEVICE_CAPABILITIES));
                // Several instances of one device.
                nvmlDeviceGetAttributes_v2(device: DEVICE, attributes: out(DEVICE_ATTRIBUTES));
                nvmlDeviceGetMigMode(device: DEVICE, current_mode: out(U32), pending_mode: out(U32));
                nvmlDeviceGetGpuInstanceProfileInfo(device: DEVICE, profile: value(U32), info:
                    out(GPU_INSTANCE_PROFILE_INFO));
                nvmlDeviceGetGpuInstanceProfileInfoV(device: DEVICE, profile: value(U32), info:
                    versioned(GPU_INSTANCE_PROFILE_INFO_V2));
                nvmlDeviceGetGpuInstanceProfileInfoByIdV(device: DEVICE, profile_id: value(U32), info:
                    versioned(GPU_INSTANCE_PROFILE_INFO_V2));
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(device: DEVICE, profile_id: value(U32), placements:
                    list(GPU_INSTANCE_PLACEMENT, "count"), count: inout(U32));
                nvmlDeviceGetGpuInstanceRemainingCapacity(device: DEVICE, profile_id: value(U32), count: out(U32));
                nvmlDeviceIsMigDeviceHandle(device: DEVICE, is_mig_device: out(U32));
                nvmlDeviceGetGpuInstanceId(device: DEVICE, id: out(U32));
                nvmlDeviceGetComputeInstanceId(device: DEVICE, id: out(U32));
                nvmlDeviceGetMaxMigDeviceCount(device: DEVICE, count: out(U32));
                nvmlDeviceGetMigDeviceHandleByIndex(device: DEVICE, index: value(U32), mig_device: OUT_DEVICE);
                nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig_device: DEVICE, device: OUT_DEVICE);
                // Confidential computing.
                nvmlDeviceGetDramEncryptionMode(device: DEVICE, current: versioned(DRAM_ENCRYPTION_INFO), pending:
                    versioned(DRAM_ENCRYPTION_INFO));
                nvmlSystemGetConfComputeCapabilities(capabilities: out(CONF_COMPUTE_SYSTEM_CAPS));
                nvmlSystemGetConfComputeState(state: out(CONF_COMPUTE_SYSTEM_STATE));
                nvmlDeviceGetConfComputeMemSizeInfo(device: DEVICE, mem_info: out(CONF_COMPUTE_MEM_SIZE_INFO));
                nvmlSystemGetConfComputeGpusReadyState(is_accepting_work: out(U32));
                nvmlDeviceGetConfComputeProtectedMemoryUsage(device: DEVICE, memory: out(MEMORY));
                nvmlDeviceGetConfComputeGpuCertificate(device: DEVICE, gpu_cert: out(CONF_COMPUTE_GPU_CERTIFICATE));
                nvmlDeviceGetConfComputeGpuAttestationReport(device: DEVICE, gpu_atst_report:
                    out(CONF_COMPUTE_GPU_ATTESTATION_REPORT));
                nvmlSystemGetConfComputeKeyRotationThresholdInfo(key_rotation_thr_info:
                    versioned(CONF_COMPUTE_GET_KEY_ROTATION_THRESHOLD_INFO));
                nvmlSystemGetConfComputeSettings(settings: versioned(SYSTEM_CONF_COMPUTE_SETTINGS));
            }
            local {
                nvmlDeviceGetNvLinkRemotePciInfo, nvmlErrorString, nvmlEventSetCreate, nvmlEventSetFree, nvmlEventSetWait, nvmlEventSetWait_v2, nvmlInit,
                nvmlInitWithFlags, nvmlInit_v2, nvmlInternalGetExportTable, nvmlShutdown, nvmlSystemGetProcessName,
            }
            refused {
                nvmlDeviceSetClockOffsets, nvmlDeviceSetPowerMizerMode_v1, nvmlDeviceSetDramEncryptionMode,
                nvmlDeviceSetConfComputeUnprotectedMemSize, nvmlSystemSetConfComputeGpusReadyState,
                nvmlSystemSetConfComputeKeyRotationThresholdInfo, nvmlDeviceSetPowerManagementLimit_v2,
                nvmlDeviceSetHostname_v1, nvmlUnitSetLedState, nvmlDeviceSetPersistenceMode, nvmlDeviceSetComputeMode,
                nvmlDeviceSetEccMode, nvmlDeviceClearEccErrorCounts, nvmlDeviceSetDriverModel,
                nvmlDeviceSetGpuLockedClocks, nvmlDeviceResetGpuLockedClocks, nvmlDeviceSetMemoryLockedClocks,
                nvmlDeviceResetMemoryLockedClocks, nvmlDeviceSetApplicationsClocks, nvmlDeviceResetApplicationsClocks,
                nvmlDeviceSetAutoBoostedClocksEnabled, nvmlDeviceSetDefaultAutoBoostedClocksEnabled,
                nvmlDeviceSetDefaultFanSpeed_v2, nvmlDeviceSetFanControlPolicy, nvmlDeviceSetTemperatureThreshold,
                nvmlDeviceSetPowerManagementLimit, nvmlDeviceSetGpuOperationMode, nvmlDeviceSetAPIRestriction,
                nvmlDeviceSetFanSpeed_v2, nvmlDeviceSetGpcClkVfOffset, nvmlDeviceSetMemClkVfOffset,
                nvmlDeviceSetAccountingMode, nvmlDeviceClearAccountingPids, nvmlDeviceResetNvLinkErrorCounters,
                nvmlDeviceSetNvLinkUtilizationControl, nvmlDeviceFreezeNvLinkUtilizationCounter,
                nvmlDeviceResetNvLinkUtilizationCounter, nvmlDeviceSetNvLinkDeviceLowPowerThreshold,
                nvmlSystemSetNvlinkBwMode, nvmlDeviceSetNvlinkBwMode, nvmlDeviceModifyDrainState,
                nvmlDeviceRemoveGpu_v2, nvmlDeviceDiscoverGpus, nvmlDeviceClearFieldValues,
                nvmlDeviceSetVirtualizationMode, nvmlDeviceSetVgpuHeterogeneousMode, nvmlDeviceSetVgpuCapabilities,
                nvmlVgpuInstanceSetEncoderCapacity, nvmlGpuInstanceSetVgpuSchedulerState,
                nvmlGpuInstanceSetVgpuHeterogeneousMode, nvmlDeviceSetVgpuSchedulerState, nvmlSetVgpuVersion,
                nvmlVgpuInstanceClearAccountingPids, nvmlDeviceReadWritePRM_v1, nvmlDeviceSetMigMode,
                nvmlDeviceCreateGpuInstance, nvmlDeviceCreateGpuInstanceWithPlacement, nvmlGpuInstanceDestroy,
                nvmlGpuInstanceCreateComputeInstance, nvmlGpuInstanceCreateComputeInstanceWithPlacement,
                nvmlComputeInstanceDestroy, nvmlGpmSetStreamingEnabled,
                nvmlDeviceWorkloadPowerProfileSetRequestedProfiles,
                nvmlDeviceWorkloadPowerProfileClearRequestedProfiles, nvmlDevicePowerSmoothingActivatePresetProfile,
                nvmlDevicePowerSmoothingUpdatePresetProfileParam, nvmlDevicePowerSmoothingSetState,
                nvmlDeviceRemoveGpu,
            }
            absent {
                // Older forms of calls above, whose structures had other sizes.
                nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2,
                nvmlDeviceGetGridLicensableFeatures, nvmlDeviceGetGridLicensableFeatures_v2,
                nvmlDeviceGetGridLicensableFeatures_v3, nvmlDeviceGetAttributes,
                nvmlDeviceGetGpuInstancePossiblePlacements,
                // Units of S-class systems.
                nvmlUnitGetHandleByIndex, nvmlUnitGetUnitInfo, nvmlUnitGetLedState, nvmlUnitGetPsuInfo,
                nvmlUnitGetTemperature, nvmlUnitGetFanSpeedInfo, nvmlUnitGetDevices,
                // Events: nothing is pushed to a client, so that no device can be registered with a set.
                nvmlDeviceGetSupportedEventTypes, nvmlDeviceRegisterEvents, nvmlSystemEventSetCreate, nvmlSystemEventSetFree,
                nvmlSystemEventSetWait, nvmlSystemRegisterEvents,
                // Virtual GPUs.
                nvmlDeviceGetVgpuHeterogeneousMode, nvmlVgpuInstanceGetPlacementId,
                nvmlDeviceGetVgpuTypeSupportedPlacements, nvmlDeviceGetVgpuTypeCreatablePlacements,
                nvmlVgpuTypeGetGspHeapSize, nvmlVgpuTypeGetFbReservation, nvmlVgpuInstanceGetRuntimeStateSize,
                nvmlGetVgpuDriverCapabilities, nvmlDeviceGetVgpuCapabilities, nvmlDeviceGetSupportedVgpus,
                nvmlDeviceGetCreatableVgpus, nvmlVgpuTypeGetClass, nvmlVgpuTypeGetName,
                nvmlVgpuTypeGetGpuInstanceProfileId, nvmlVgpuTypeGetDeviceID, nvmlVgpuTypeGetFramebufferSize,
                nvmlVgpuTypeGetNumDisplayHeads, nvmlVgpuTypeGetResolution, nvmlVgpuTypeGetLicense,
                nvmlVgpuTypeGetFrameRateLimit, nvmlVgpuTypeGetMaxInstances, nvmlVgpuTypeGetMaxInstancesPerVm,
                nvmlVgpuTypeGetBAR1Info, nvmlDeviceGetActiveVgpus, nvmlVgpuInstanceGetVmID, nvmlVgpuInstanceGetUUID,
                nvmlVgpuInstanceGetVmDriverVersion, nvmlVgpuInstanceGetFbUsage, nvmlVgpuInstanceGetLicenseStatus,
                nvmlVgpuInstanceGetType, nvmlVgpuInstanceGetFrameRateLimit, nvmlVgpuInstanceGetEccMode,
                nvmlVgpuInstanceGetEncoderCapacity, nvmlVgpuInstanceGetEncoderStats,
                nvmlVgpuInstanceGetEncoderSessions, nvmlVgpuInstanceGetFBCStats, nvmlVgpuInstanceGetFBCSessions,
                nvmlVgpuInstanceGetGpuInstanceId, nvmlVgpuInstanceGetGpuPciId, nvmlVgpuTypeGetCapabilities,
                nvmlVgpuInstanceGetMdevUUID, nvmlGpuInstanceGetCreatableVgpus,
                nvmlVgpuTypeGetMaxInstancesPerGpuInstance, nvmlGpuInstanceGetActiveVgpus,
                nvmlGpuInstanceGetVgpuSchedulerState, nvmlGpuInstanceGetVgpuSchedulerLog,
                nvmlGpuInstanceGetVgpuTypeCreatablePlacements, nvmlGpuInstanceGetVgpuHeterogeneousMode,
                nvmlVgpuInstanceGetMetadata, nvmlDeviceGetVgpuMetadata, nvmlGetVgpuCompatibility,
                nvmlDeviceGetPgpuMetadataString, nvmlDeviceGetVgpuSchedulerLog, nvmlDeviceGetVgpuSchedulerState,
                nvmlDeviceGetVgpuSchedulerCapabilities, nvmlGetVgpuVersion, nvmlDeviceGetVgpuUtilization,
                nvmlDeviceGetVgpuInstancesUtilizationInfo, nvmlDeviceGetVgpuProcessUtilization,
                nvmlDeviceGetVgpuProcessesUtilizationInfo, nvmlVgpuInstanceGetAccountingMode,
                nvmlVgpuInstanceGetAccountingPids, nvmlVgpuInstanceGetAccountingStats,
                nvmlVgpuInstanceGetLicenseInfo_v2, nvmlVgpuInstanceGetLicenseInfo,
                // Handles of GPU and compute instances, and of samples.
                nvmlGpuInstanceGetComputeInstancePossiblePlacements,
                nvmlDeviceGetGpuInstances, nvmlDeviceGetGpuInstanceById, nvmlGpuInstanceGetInfo,
                nvmlGpuInstanceGetComputeInstanceProfileInfo, nvmlGpuInstanceGetComputeInstanceProfileInfoV,
                nvmlGpuInstanceGetComputeInstanceRemainingCapacity, nvmlGpuInstanceGetComputeInstances,
                nvmlGpuInstanceGetComputeInstanceById, nvmlComputeInstanceGetInfo_v2, nvmlGpmMetricsGet,
                nvmlGpmSampleFree, nvmlGpmSampleAlloc, nvmlGpmSampleGet, nvmlGpmMigSampleGet,
                nvmlComputeInstanceGetInfo,
                // Other processes of the server, structures that hold addresses, and what would work on the
                // wrong machine.
                nvmlDeviceGetRunningProcessDetailList, nvmlDeviceGetAccountingStats, nvmlDeviceGetAccountingPids,
                nvmlDeviceGetProcessesUtilizationInfo,
                nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts, nvmlDeviceValidateInforom, nvmlDeviceSetCpuAffinity,
                nvmlDeviceClearCpuAffinity, nvmlDeviceQueryDrainState,
            }
        }
    };
}
