//! libibverbs, librdmacm and libmlx5, opened at run time.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::error::Error as _;
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use crate::sys::*;

/// Why a library cannot be used.
#[derive(Clone, Debug, Error)]
pub enum LoadError {
    /// It is not there.
    #[error(
        "{library} could not be loaded ({cause}). It comes with rdma-core: on Debian and Ubuntu in the package {package}, \
         on Fedora and RHEL in {rpm}."
    )]
    NotFound {
        /// The library's file name.
        library: &'static str,
        /// Debian's name of the package.
        package: &'static str,
        /// Fedora's name of the package.
        rpm: &'static str,
        /// What the system's loader answered.
        cause: Arc<str>,
    },
    /// It lacks a function.
    #[error(
        "{library} has no function {function}: it is older than rdma-core 15 (2017), or another library of that name. \
         Update the package {package}."
    )]
    Incomplete {
        /// The library's file name.
        library: &'static str,
        /// Debian's name of the package.
        package: &'static str,
        /// What is missing.
        function: &'static str,
    },
}

/// A table of functions that are found by name in a library.
macro_rules! library {
    (
        $(#[$about:meta])* $table:ident in $file:literal, $package:literal, $rpm:literal;
        $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*
        $(optional fn $optional:ident($($optional_argument:ty),*) $(-> $optional_result:ty)?;)*
    ) => {
        $(#[$about])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($optional_argument),*) $(-> $optional_result)?>,)*
        }

        impl $table {
            fn load() -> Result<Self, LoadError> {
                let library = open($file, $package, $rpm)?;
                Ok(Self {
                    $($name: {
                        // SAFETY: the declaration is that of the header.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(stringify!($name)) };
                        *found.map_err(|_| LoadError::Incomplete {
                            library: $file, package: $package, function: stringify!($name),
                        })?
                    },)*
                    $($optional: {
                        // SAFETY: the declaration is that of the header.
                        unsafe { library.get::<unsafe extern "C" fn($($optional_argument),*) $(-> $optional_result)?>(stringify!($optional)) }
                            .ok().map(|found| *found)
                    },)*
                })
            }
        }
    };
}

/// Opens a library for the rest of the process: providers keep threads and exit handlers of their own.
fn open(
    library: &'static str,
    package: &'static str,
    rpm: &'static str,
) -> Result<&'static libloading::Library, LoadError> {
    // SAFETY: the initialisers of rdma-core's libraries may run in any process.
    match unsafe { libloading::Library::new(library) } {
        Ok(opened) => Ok(Box::leak(Box::new(opened))),
        Err(error) => {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Err(LoadError::NotFound { library, package, rpm, cause: cause.into() })
        }
    }
}

library! {
    /// The functions of libibverbs.
    Verbs in "libibverbs.so.1", "libibverbs1 (and ibverbs-providers)", "libibverbs";
    fn ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(*mut *mut ibv_device);
    fn ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(*mut ibv_context) -> c_int;
    fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    fn ibv_query_gid(*mut ibv_context, u8, c_int, *mut Gid) -> c_int;
    fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(*mut ibv_cq, c_uint);
    fn ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_destroy_qp(*mut ibv_qp) -> c_int;
    fn ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    optional fn ibv_reg_dmabuf_mr(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
    optional fn _ibv_query_gid_ex(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
}

library! {
    /// The functions of librdmacm.
    Manager in "librdmacm.so.1", "librdmacm1", "librdmacm";
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(*mut rdma_event_channel);
    fn rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
    fn rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    fn rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
    fn rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    fn rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    fn rdma_destroy_qp(*mut rdma_cm_id);
    fn rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    fn rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    fn rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    fn rdma_disconnect(*mut rdma_cm_id) -> c_int;
    fn rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    fn rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    fn rdma_get_src_port(*mut rdma_cm_id) -> u16;
    fn rdma_event_str(c_int) -> *const c_char;
}

library! {
    /// The functions of libmlx5 that say where queues lie.
    Mlx5 in "libmlx5.so.1", "ibverbs-providers", "libibverbs";
    fn mlx5dv_is_supported(*mut ibv_device) -> bool;
    fn mlx5dv_init_obj(*mut mlx5dv_obj, u64) -> c_int;
    fn mlx5dv_create_qp(*mut ibv_context, *mut ibv_qp_init_attr_ex, *mut mlx5dv_qp_init_attr) -> *mut ibv_qp;
}

/// The libraries, loaded for the rest of the process.
#[derive(Clone, Copy)]
pub struct Libraries {
    pub(crate) verbs: &'static Verbs,
}

impl core::fmt::Debug for Libraries {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Libraries").finish_non_exhaustive()
    }
}

impl Libraries {
    /// Loads libibverbs, once for a process. A failure is tried again: the library may have been installed
    /// since.
    pub fn load() -> Result<Self, LoadError> {
        static LOADED: OnceLock<Verbs> = OnceLock::new();
        Ok(Self { verbs: once(&LOADED, Verbs::load)? })
    }

    /// Whether this libibverbs can register memory of other devices by their dma-buf (rdma-core 34, 2021).
    pub fn has_dma_buf(&self) -> bool {
        self.verbs.ibv_reg_dmabuf_mr.is_some()
    }
}

/// Loads librdmacm, once for a process.
pub(crate) fn manager() -> Result<&'static Manager, LoadError> {
    static LOADED: OnceLock<Manager> = OnceLock::new();
    once(&LOADED, Manager::load)
}

/// Loads libmlx5, once for a process.
pub(crate) fn mlx5() -> Result<&'static Mlx5, LoadError> {
    static LOADED: OnceLock<Mlx5> = OnceLock::new();
    once(&LOADED, Mlx5::load)
}

fn once<T>(
    loaded: &'static OnceLock<T>,
    load: fn() -> Result<T, LoadError>,
) -> Result<&'static T, LoadError> {
    if let Some(table) = loaded.get() {
        return Ok(table);
    }
    let table = load()?;
    Ok(loaded.get_or_init(|| table))
}

/// A constant string of a library.
pub(crate) fn text(constant: *const c_char) -> &'static str {
    if constant.is_null() {
        return "unknown";
    }
    // SAFETY: the libraries answer constants that end with a zero byte.
    unsafe { CStr::from_ptr(constant) }.to_str().unwrap_or("unknown")
}
