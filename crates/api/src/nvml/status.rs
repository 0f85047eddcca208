//! NVML status codes and their texts.

use core::ffi::CStr;

/// A value of `nvmlReturn_t`.
pub type Status = u32;

macro_rules! statuses {
    ($($name:ident = $value:literal, $text:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: Status = $value;)*

        /// What `nvmlErrorString` says of a status: NVIDIA's words, since programs print and compare them.
        pub const fn text(status: Status) -> &'static CStr {
            match status {
                $($value => $text,)*
                _ => c"Unknown Error",
            }
        }
    };
}

statuses! {
    SUCCESS = 0, c"Success", "Done.";
    UNINITIALIZED = 1, c"Uninitialized", "`nvmlInit` has not been called.";
    INVALID_ARGUMENT = 2, c"Invalid Argument", "An argument makes no sense.";
    NOT_SUPPORTED = 3, c"Not Supported", "The device, or Causeway, does not have that.";
    NO_PERMISSION = 4, c"Insufficient Permissions", "This is for the administrator of the server.";
    ALREADY_INITIALIZED = 5, c"Already Initialized", "Of old versions.";
    NOT_FOUND = 6, c"Not Found", "There is no such thing.";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size", "The list or text has no room in the program's memory.";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power", "A power cable is missing.";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded", "There is no driver; here: no server.";
    TIMEOUT = 10, c"Timeout", "It took too long.";
    IRQ_ISSUE = 11, c"Interrupt Request Issue", "The kernel has trouble with the device's interrupts.";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found", "The library is not there.";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found", "The server's library does not have this function.";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM", "The device's infoROM is damaged.";
    GPU_IS_LOST = 15, c"GPU is lost", "The device cannot be reached any more; here: the server.";
    RESET_REQUIRED = 16, c"GPU requires reset", "The device must be reset.";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system", "The system forbids it.";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch", "Driver and library are of different versions.";
    IN_USE = 19, c"In use by another client", "The device is in use.";
    MEMORY = 20, c"Insufficient Memory", "There is no memory.";
    NO_DATA = 21, c"No data", "There is nothing to report.";
    VGPU_ECC_NOT_SUPPORTED = 22, c"The requested vgpu operation is not available on target device", "Of virtual GPUs.";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient resources", "Something else than memory has run out.";
    FREQ_NOT_SUPPORTED = 24, c"Frequency not supported", "The device has no such clock.";
    ARGUMENT_VERSION_MISMATCH = 25, c"The provided version is invalid or unsupported", "A structure is of a version that is not known.";
    DEPRECATED = 26, c"Deprecated function", "The function is no more.";
    NOT_READY = 27, c"System not ready", "The system is still starting.";
    GPU_NOT_FOUND = 28, c"GPU not found", "There is no device.";
    INVALID_STATE = 29, c"Invalid state", "Not now.";
    UNKNOWN = 999, c"Unknown Error", "Something else.";
}
