//! Device list, and opening a device.

use core::ffi::c_int;
use core::ptr;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::library::Libraries;
use crate::sys::*;

/// How a device moves packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand's own, over InfiniBand or Ethernet (RoCE).
    InfiniBand,
    /// iWARP: over TCP. Its queue pairs are connected by rdma_cm alone.
    Iwarp,
    /// Something else, which has no reliable connections of the kind used here.
    Other,
}

/// Why a device cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The kernel was not to be asked.
    #[error("cannot list the RDMA devices of this machine: {0}")]
    List(#[source] io::Error),
    /// There is none of this name.
    #[error("there is no RDMA device `{name}`; this machine has {}", names(available))]
    NotFound {
        /// What was asked for.
        name: String,
        /// What there is.
        available: Vec<String>,
    },
    /// It cannot be opened.
    #[error(
        "the RDMA device `{name}` cannot be opened: {source}. The device files /dev/infiniband/uverbs* must exist and be \
         accessible to this user; a container needs them passed in."
    )]
    Open {
        /// Which device.
        name: String,
        /// What the system answered.
        source: io::Error,
    },
    /// It does not answer a question about itself.
    #[error("the RDMA device `{name}` does not answer a query of {what}: {source}")]
    Query {
        /// Which device.
        name: String,
        /// What was asked.
        what: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// It refuses to make something.
    #[error("the RDMA device `{name}` cannot create another {what}: {source}")]
    Make {
        /// Which device.
        name: String,
        /// What was to be made.
        what: &'static str,
        /// What the system answered.
        source: io::Error,
    },
}

fn names(available: &[String]) -> String {
    if available.is_empty() { "none".to_owned() } else { available.join(", ") }
}

/// What keeps a context open.
#[derive(Debug)]
enum Opened {
    /// It was opened here, and is closed here.
    Here,
    /// librdmacm opened it, and keeps it as long as this identifier lives.
    ByRdmaCm { _owner: Arc<dyn core::any::Any + Send + Sync> },
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) raw: *mut ibv_context,
    pub(crate) libraries: Libraries,
    pub(crate) name: String,
    pub(crate) transport: Transport,
    pub(crate) sysfs: String,
    opened: Opened,
}

// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Send for Context {}
// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        if let Opened::Here = self.opened {
            // SAFETY: opened here, and everything that was made from it has gone: it holds this context.
            unsafe { (self.libraries.verbs.ibv_close_device)(self.raw) };
        }
    }
}

/// An open device. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<Context>);

/// What `errno` says, for a function that answers a null pointer.
pub(crate) fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// The devices as libibverbs lists them, freed when dropped.
struct List {
    libraries: Libraries,
    first: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn new(libraries: Libraries) -> Result<Self, DeviceError> {
        let mut count: c_int = 0;
        // SAFETY: the list is freed once, below.
        let first = unsafe { (libraries.verbs.ibv_get_device_list)(&mut count) };
        if first.is_null() {
            let error = last_error();
            // A kernel without RDMA answers so.
            if error.raw_os_error() == Some(libc::ENOSYS) {
                return Ok(Self { libraries, first, count: 0 });
            }
            return Err(DeviceError::List(error));
        }
        Ok(Self { libraries, first, count: count.max(0) as usize })
    }

    fn devices(&self) -> impl Iterator<Item = *mut ibv_device> + '_ {
        // SAFETY: the list has `count` entries.
        (0..self.count).map(|index| unsafe { *self.first.add(index) })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: made by `ibv_get_device_list`; devices that are open stay.
            unsafe { (self.libraries.verbs.ibv_free_device_list)(self.first) };
        }
    }
}

/// A string in a fixed field.
pub(crate) fn field(bytes: &[core::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn name_of(device: *mut ibv_device) -> String {
    // SAFETY: the pointer came from a list of devices that is still there, or from an open context.
    field(unsafe { &(*device).name })
}

impl Device {
    /// The devices of this machine, opened, in the kernel's order; none is no error, one that cannot be
    /// opened is.
    pub(crate) fn all(libraries: Libraries) -> Result<Vec<Self>, DeviceError> {
        List::new(libraries)?.devices().map(|device| Self::open_raw(libraries, device)).collect()
    }

    /// The names of the devices, without opening them.
    pub fn names(libraries: Libraries) -> Result<Vec<String>, DeviceError> {
        Ok(List::new(libraries)?.devices().map(name_of).collect())
    }

    /// Opens the device of this name.
    pub fn open(libraries: Libraries, name: &str) -> Result<Self, DeviceError> {
        let list = List::new(libraries)?;
        match list.devices().find(|&device| name_of(device) == name) {
            Some(device) => Self::open_raw(libraries, device),
            None => Err(DeviceError::NotFound {
                name: name.to_owned(),
                available: list.devices().map(name_of).collect(),
            }),
        }
    }

    fn open_raw(libraries: Libraries, device: *mut ibv_device) -> Result<Self, DeviceError> {
        // SAFETY: the device is one of a list that has not been freed.
        let raw = unsafe { (libraries.verbs.ibv_open_device)(device) };
        if raw.is_null() {
            let mut source = last_error();
            if source.raw_os_error() == Some(0) {
                source = io::Error::other("no reason was given");
            }
            return Err(DeviceError::Open { name: name_of(device), source });
        }
        Ok(Self::from_context(libraries, raw, Opened::Here))
    }

    /// The device of a context that librdmacm has opened, which it keeps open as long as `owner` lives.
    pub(crate) fn of_manager(
        libraries: Libraries,
        raw: *mut ibv_context,
        owner: Arc<dyn core::any::Any + Send + Sync>,
    ) -> Self {
        Self::from_context(libraries, raw, Opened::ByRdmaCm { _owner: owner })
    }

    fn from_context(libraries: Libraries, raw: *mut ibv_context, opened: Opened) -> Self {
        // SAFETY: an open context names its device, which lives as long as the context.
        let device = unsafe { &*(*raw).device };
        let transport = match device.transport_type {
            IBV_TRANSPORT_IB => Transport::InfiniBand,
            IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::Other,
        };
        let (name, sysfs) = (field(&device.name), field(&device.ibdev_path));
        Self(Arc::new(Context { raw, libraries, name, transport, sysfs, opened }))
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How it moves packets.
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// The libraries it was opened with.
    pub fn libraries(&self) -> Libraries {
        self.0.libraries
    }

    pub(crate) fn make_error(&self, what: &'static str) -> DeviceError {
        DeviceError::Make { name: self.0.name.clone(), what, source: last_error() }
    }
}

/// A null pointer as an error.
pub(crate) fn made<T>(
    raw: *mut T,
    device: &Device,
    what: &'static str,
) -> Result<ptr::NonNull<T>, DeviceError> {
    ptr::NonNull::new(raw).ok_or_else(|| device.make_error(what))
}
