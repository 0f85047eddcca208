//! Errors of the plugin, and NCCL's codes for them.

use std::io;

use causeway_config::ValueError;
use causeway_cuda::CudaError;
use thiserror::Error;

/// `ncclResult_t`, as far as a plugin returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ResultCode {
    /// `ncclSuccess`.
    Success = 0,
    /// `ncclUnhandledCudaError`.
    CudaError = 1,
    /// `ncclSystemError`.
    SystemError = 2,
    /// `ncclInternalError`.
    InternalError = 3,
    /// `ncclInvalidArgument`.
    InvalidArgument = 4,
    /// `ncclInvalidUsage`.
    InvalidUsage = 5,
    /// `ncclRemoteError`.
    RemoteError = 6,
}

impl ResultCode {
    /// The code of this number; an internal error where there is none.
    pub fn from_number(number: u32) -> Self {
        const ALL: [ResultCode; 7] = [
            ResultCode::Success,
            ResultCode::CudaError,
            ResultCode::SystemError,
            ResultCode::InternalError,
            ResultCode::InvalidArgument,
            ResultCode::InvalidUsage,
            ResultCode::RemoteError,
        ];
        ALL.get(number as usize).copied().unwrap_or(Self::InternalError)
    }
}

/// Why a call of NCCL failed.
#[derive(Debug, Error)]
pub enum NetError {
    /// NCCL passed something that the interface does not allow.
    #[error("NCCL passed {0}: this version of the plugin does not support it")]
    Argument(&'static str),
    /// A device that there is not.
    #[error("NCCL requested network device {0}, but there is only device 0")]
    Device(i32),
    /// What is set cannot be used.
    #[error(transparent)]
    Settings(#[from] ValueError),
    /// Kernels cannot poll what this machine writes.
    #[error(
        "NCCL would send through memory of this machine, of which the GPU's server has only a mirror over a \
         network, so NCCL's kernels would wait for ever: give all ranks GPUs of one server that reach each \
         other (NVLink or PCIe), run the ranks on the server's own machine, or use another backend between \
         servers, such as gloo"
    )]
    Mirrored,
    /// A child of the process that initialised NCCL.
    #[error(
        "this process was forked from one that uses NCCL and has none of its connections: initialise NCCL \
         again, after exec"
    )]
    Forked,
    /// The system refused something.
    #[error("{what} failed: {cause}")]
    System {
        /// What the plugin wanted of the system.
        what: &'static str,
        /// What it said.
        cause: io::Error,
    },
    /// A handle that is none of this plugin's.
    #[error("the peer's connect handle is not from this plugin ({0}): load the same plugin in all ranks")]
    Handle(&'static str),
    /// The driver refused something.
    #[error("cannot register GPU memory: {0}")]
    Cuda(CudaError),
    /// No address of the peer could be reached.
    #[error(
        "cannot connect to the peer at any of its addresses: {0}. Name the interface with NCCL_SOCKET_IFNAME"
    )]
    Unreachable(String),
    /// The connection had failed before, which was logged.
    #[error("the connection has failed")]
    Failed(ResultCode),
    /// A panic.
    #[error("the plugin panicked: this is a bug in the plugin, please report it")]
    Panicked,
}

impl NetError {
    /// NCCL's code for it.
    pub fn code(&self) -> ResultCode {
        match self {
            Self::Argument(_) | Self::Device(_) | Self::Handle(_) => ResultCode::InvalidArgument,
            Self::Settings(_) | Self::Forked | Self::Mirrored => ResultCode::InvalidUsage,
            Self::Cuda(_) => ResultCode::CudaError,
            Self::System { .. } => ResultCode::SystemError,
            Self::Unreachable(_) => ResultCode::RemoteError,
            Self::Failed(code) => *code,
            Self::Panicked => ResultCode::InternalError,
        }
    }

    /// For what the system refuses.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}
