//! The C types that travel, with the sizes that they have on 64-bit Linux.
//!
//! A test compares the sizes with `nvml.h`.
#![allow(missing_docs, reason = "each is the C type that it names")]

/// A C type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// Its name in `nvml.h`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
}

pub const AFFINITY_SCOPE: Type = Type { name: "nvmlAffinityScope_t", size: 4 };
pub const BAR1_MEMORY: Type = Type { name: "nvmlBAR1Memory_t", size: 24 };
pub const BRAND_TYPE: Type = Type { name: "nvmlBrandType_t", size: 4 };
pub const BRIDGE_CHIP_HIERARCHY: Type = Type { name: "nvmlBridgeChipHierarchy_t", size: 1028 };
pub const BUS_TYPE: Type = Type { name: "nvmlBusType_t", size: 4 };
pub const C2C_MODE_INFO_V1: Type = Type { name: "nvmlC2cModeInfo_v1_t", size: 4 };
pub const CHAR: Type = Type { name: "char", size: 1 };
pub const CLK_MON_STATUS: Type = Type { name: "nvmlClkMonStatus_t", size: 264 };
pub const CLOCK_ID: Type = Type { name: "nvmlClockId_t", size: 4 };
pub const CLOCK_OFFSET: Type = Type { name: "nvmlClockOffset_t", size: 24 };
pub const CLOCK_TYPE: Type = Type { name: "nvmlClockType_t", size: 4 };
pub const COMPUTE_MODE: Type = Type { name: "nvmlComputeMode_t", size: 4 };
pub const CONF_COMPUTE_GET_KEY_ROTATION_THRESHOLD_INFO: Type =
    Type { name: "nvmlConfComputeGetKeyRotationThresholdInfo_t", size: 16 };
pub const CONF_COMPUTE_GPU_ATTESTATION_REPORT: Type =
    Type { name: "nvmlConfComputeGpuAttestationReport_t", size: 12332 };
pub const CONF_COMPUTE_GPU_CERTIFICATE: Type = Type { name: "nvmlConfComputeGpuCertificate_t", size: 9224 };
pub const CONF_COMPUTE_MEM_SIZE_INFO: Type = Type { name: "nvmlConfComputeMemSizeInfo_t", size: 16 };
pub const CONF_COMPUTE_SYSTEM_CAPS: Type = Type { name: "nvmlConfComputeSystemCaps_t", size: 8 };
pub const CONF_COMPUTE_SYSTEM_STATE: Type = Type { name: "nvmlConfComputeSystemState_t", size: 12 };
pub const COOLER_INFO: Type = Type { name: "nvmlCoolerInfo_t", size: 16 };
pub const DEVICE_ADDRESSING_MODE: Type = Type { name: "nvmlDeviceAddressingMode_t", size: 8 };
pub const DEVICE_ARCHITECTURE: Type = Type { name: "nvmlDeviceArchitecture_t", size: 4 };
pub const DEVICE_ATTRIBUTES: Type = Type { name: "nvmlDeviceAttributes_t", size: 40 };
pub const DEVICE_CAPABILITIES: Type = Type { name: "nvmlDeviceCapabilities_t", size: 8 };
pub const DEVICE_CURRENT_CLOCK_FREQS: Type = Type { name: "nvmlDeviceCurrentClockFreqs_t", size: 2052 };
pub const DEVICE_PERF_MODES: Type = Type { name: "nvmlDevicePerfModes_t", size: 2052 };
pub const DEVICE_POWER_MIZER_MODES_V1: Type = Type { name: "nvmlDevicePowerMizerModes_v1_t", size: 12 };
pub const DRAM_ENCRYPTION_INFO: Type = Type { name: "nvmlDramEncryptionInfo_t", size: 8 };
pub const DRIVER_MODEL: Type = Type { name: "nvmlDriverModel_t", size: 4 };
pub const ECC_COUNTER_TYPE: Type = Type { name: "nvmlEccCounterType_t", size: 4 };
pub const ECC_ERROR_COUNTS: Type = Type { name: "nvmlEccErrorCounts_t", size: 32 };
pub const ECC_SRAM_ERROR_STATUS: Type = Type { name: "nvmlEccSramErrorStatus_t", size: 104 };
pub const ENABLE_STATE: Type = Type { name: "nvmlEnableState_t", size: 4 };
pub const ENCODER_SESSION_INFO: Type = Type { name: "nvmlEncoderSessionInfo_t", size: 32 };
pub const ENCODER_TYPE: Type = Type { name: "nvmlEncoderType_t", size: 4 };
pub const EXCLUDED_DEVICE_INFO: Type = Type { name: "nvmlExcludedDeviceInfo_t", size: 148 };
pub const FAN_CONTROL_POLICY: Type = Type { name: "nvmlFanControlPolicy_t", size: 4 };
pub const FAN_SPEED_INFO: Type = Type { name: "nvmlFanSpeedInfo_t", size: 12 };
pub const FBC_SESSION_INFO: Type = Type { name: "nvmlFBCSessionInfo_t", size: 48 };
pub const FBC_STATS: Type = Type { name: "nvmlFBCStats_t", size: 12 };
pub const FIELD_VALUE: Type = Type { name: "nvmlFieldValue_t", size: 40 };
pub const GPM_SUPPORT: Type = Type { name: "nvmlGpmSupport_t", size: 8 };
pub const GPU_DYNAMIC_PSTATES_INFO: Type = Type { name: "nvmlGpuDynamicPstatesInfo_t", size: 132 };
pub const GPU_FABRIC_INFO: Type = Type { name: "nvmlGpuFabricInfo_t", size: 28 };
pub const GPU_FABRIC_INFO_V: Type = Type { name: "nvmlGpuFabricInfoV_t", size: 40 };
pub const GPU_INSTANCE_PLACEMENT: Type = Type { name: "nvmlGpuInstancePlacement_t", size: 8 };
pub const GPU_INSTANCE_PROFILE_INFO: Type = Type { name: "nvmlGpuInstanceProfileInfo_t", size: 48 };
pub const GPU_INSTANCE_PROFILE_INFO_V2: Type = Type { name: "nvmlGpuInstanceProfileInfo_v2_t", size: 152 };
pub const GPU_OPERATION_MODE: Type = Type { name: "nvmlGpuOperationMode_t", size: 4 };
pub const GPU_P2P_STATUS: Type = Type { name: "nvmlGpuP2PStatus_t", size: 4 };
pub const GPU_THERMAL_SETTINGS: Type = Type { name: "nvmlGpuThermalSettings_t", size: 64 };
pub const GPU_TOPOLOGY_LEVEL: Type = Type { name: "nvmlGpuTopologyLevel_t", size: 4 };
pub const GPU_VIRTUALIZATION_MODE: Type = Type { name: "nvmlGpuVirtualizationMode_t", size: 4 };
pub const GRID_LICENSABLE_FEATURES: Type = Type { name: "nvmlGridLicensableFeatures_t", size: 860 };
pub const HOSTNAME_V1: Type = Type { name: "nvmlHostname_v1_t", size: 64 };
pub const HOST_VGPU_MODE: Type = Type { name: "nvmlHostVgpuMode_t", size: 4 };
pub const HWBC_ENTRY: Type = Type { name: "nvmlHwbcEntry_t", size: 36 };
pub const I32: Type = Type { name: "int", size: 4 };
pub const INFOROM_OBJECT: Type = Type { name: "nvmlInforomObject_t", size: 4 };
pub const INT_NV_LINK_DEVICE_TYPE: Type = Type { name: "nvmlIntNvLinkDeviceType_t", size: 4 };
pub const MARGIN_TEMPERATURE: Type = Type { name: "nvmlMarginTemperature_t", size: 8 };
pub const MEMORY: Type = Type { name: "nvmlMemory_t", size: 24 };
pub const MEMORY_ERROR_TYPE: Type = Type { name: "nvmlMemoryErrorType_t", size: 4 };
pub const MEMORY_LOCATION: Type = Type { name: "nvmlMemoryLocation_t", size: 4 };
pub const MEMORY_V2: Type = Type { name: "nvmlMemory_v2_t", size: 40 };
pub const NVLINK_GET_BW_MODE: Type = Type { name: "nvmlNvlinkGetBwMode_t", size: 12 };
pub const NVLINK_SUPPORTED_BW_MODES: Type = Type { name: "nvmlNvlinkSupportedBwModes_t", size: 28 };
pub const NV_LINK_CAPABILITY: Type = Type { name: "nvmlNvLinkCapability_t", size: 4 };
pub const NV_LINK_ERROR_COUNTER: Type = Type { name: "nvmlNvLinkErrorCounter_t", size: 4 };
pub const NV_LINK_INFO: Type = Type { name: "nvmlNvLinkInfo_t", size: 1612 };
pub const NV_LINK_UTILIZATION_CONTROL: Type = Type { name: "nvmlNvLinkUtilizationControl_t", size: 8 };
pub const P2P_CAPS_INDEX: Type = Type { name: "nvmlGpuP2PCapsIndex_t", size: 4 };
pub const PAGE_RETIREMENT_CAUSE: Type = Type { name: "nvmlPageRetirementCause_t", size: 4 };
pub const PCIE_UTIL_COUNTER: Type = Type { name: "nvmlPcieUtilCounter_t", size: 4 };
pub const PCI_INFO: Type = Type { name: "nvmlPciInfo_t", size: 68 };
pub const PCI_INFO_EXT: Type = Type { name: "nvmlPciInfoExt_t", size: 64 };
pub const PDI: Type = Type { name: "nvmlPdi_t", size: 16 };
pub const PERF_POLICY_TYPE: Type = Type { name: "nvmlPerfPolicyType_t", size: 4 };
pub const PLATFORM_INFO: Type = Type { name: "nvmlPlatformInfo_t", size: 44 };
pub const POWER_SOURCE: Type = Type { name: "nvmlPowerSource_t", size: 4 };
pub const PROCESS_INFO: Type = Type { name: "nvmlProcessInfo_t", size: 24 };
pub const PROCESS_INFO_V1: Type = Type { name: "nvmlProcessInfo_v1_t", size: 16 };
pub const PROCESS_INFO_V2: Type = Type { name: "nvmlProcessInfo_v2_t", size: 24 };
pub const PROCESS_UTILIZATION_SAMPLE: Type = Type { name: "nvmlProcessUtilizationSample_t", size: 32 };
pub const PSTATES: Type = Type { name: "nvmlPstates_t", size: 4 };
pub const REPAIR_STATUS: Type = Type { name: "nvmlRepairStatus_t", size: 12 };
pub const RESTRICTED_API: Type = Type { name: "nvmlRestrictedAPI_t", size: 4 };
pub const ROW_REMAPPER_HISTOGRAM_VALUES: Type = Type { name: "nvmlRowRemapperHistogramValues_t", size: 20 };
pub const SAMPLE: Type = Type { name: "nvmlSample_t", size: 16 };
pub const SAMPLING_TYPE: Type = Type { name: "nvmlSamplingType_t", size: 4 };
pub const SYSTEM_CONF_COMPUTE_SETTINGS: Type = Type { name: "nvmlSystemConfComputeSettings_t", size: 20 };
pub const SYSTEM_DRIVER_BRANCH_INFO: Type = Type { name: "nvmlSystemDriverBranchInfo_t", size: 84 };
pub const TEMPERATURE: Type = Type { name: "nvmlTemperature_t", size: 12 };
pub const TEMPERATURE_SENSORS: Type = Type { name: "nvmlTemperatureSensors_t", size: 4 };
pub const TEMPERATURE_THRESHOLDS: Type = Type { name: "nvmlTemperatureThresholds_t", size: 4 };
pub const U32: Type = Type { name: "unsigned int", size: 4 };
pub const U64: Type = Type { name: "unsigned long long", size: 8 };
pub const UTILIZATION: Type = Type { name: "nvmlUtilization_t", size: 8 };
pub const UUID: Type = Type { name: "nvmlUUID_t", size: 52 };
pub const VALUE_TYPE: Type = Type { name: "nvmlValueType_t", size: 4 };
pub const VIOLATION_TIME: Type = Type { name: "nvmlViolationTime_t", size: 16 };
pub const WORD: Type = Type { name: "unsigned long", size: 8 };
pub const WORKLOAD_POWER_PROFILE_CURRENT_PROFILES: Type =
    Type { name: "nvmlWorkloadPowerProfileCurrentProfiles_t", size: 100 };
pub const WORKLOAD_POWER_PROFILE_PROFILES_INFO: Type =
    Type { name: "nvmlWorkloadPowerProfileProfilesInfo_t", size: 11256 };
