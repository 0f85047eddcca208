//! Copy plans of this process: for measurements that compare plans within one session: two sessions differ by
//! more than plans do.

use core::ffi::{c_char, c_int, c_void};
use core::mem;
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::path::Path;

use causeway_cuda::{Library, LibraryError};
use causeway_pipeline::{Direction, Plan};
use thiserror::Error;

/// Why plans cannot be chosen.
#[derive(Debug, Error)]
pub enum PlansError {
    /// It is a driver whose copies have no plans.
    #[error(
        "the library {0} is not this release's client library: it has no plans to choose from; name another \
         folder in CAUSEWAY_LIB_DIR"
    )]
    OtherLibrary(String),
    /// The library does not take the plans.
    #[error("the client library rejected the plans `{0}`")]
    NotUnderstood(String),
}

type Found = NonNull<c_void>;
type UsePipeline = unsafe extern "C" fn(*const c_char) -> c_int;
type PipelinePlan = unsafe extern "C" fn(c_int, usize, *mut [usize; 4]) -> c_int;
type PipelinePair = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// The plans of a client library that is loaded.
#[derive(Debug)]
pub struct Plans {
    name: String,
    use_pipeline: UsePipeline,
    plan: PipelinePlan,
    pair: PipelinePair,
}

impl Plans {
    /// Those of the library at `path`, in which a driver has been opened.
    pub fn of_library(path: &Path) -> Result<Self, PlansError> {
        let name = path.display().to_string();
        let other = |_: LibraryError| PlansError::OtherLibrary(name.clone());
        // SAFETY: the library is loaded already, so that nothing of it runs here.
        let library = unsafe { Library::open(path) }.map_err(other)?;
        // SAFETY: the client library exports the functions with these types.
        let (use_pipeline, plan, pair) = unsafe {
            let use_pipeline = library.required_function(c"causeway_use_pipeline").map_err(other)?;
            let plan = library.required_function(c"causeway_pipeline_plan").map_err(other)?;
            let pair = library.required_function(c"causeway_pipeline_pair").map_err(other)?;
            (
                mem::transmute::<Found, UsePipeline>(use_pipeline),
                mem::transmute::<Found, PipelinePlan>(plan),
                mem::transmute::<Found, PipelinePair>(pair),
            )
        };
        Ok(Self { name, use_pipeline, plan, pair })
    }

    /// Carries copies as these plans say, from the next one on; without plans as the session began.
    pub fn choose(&self, plans: Option<&str>) -> Result<(), PlansError> {
        let not_understood = || PlansError::NotUnderstood(plans.unwrap_or_default().to_owned());
        let text = plans.map(CString::new).transpose().map_err(|_| not_understood())?;
        // SAFETY: a text ends with a zero, and is read before the call returns.
        let status = unsafe { (self.use_pipeline)(text.as_ref().map_or(ptr::null(), |text| text.as_ptr())) };
        if status == 0 { Ok(()) } else { Err(not_understood()) }
    }

    /// The plan by which a copy of so many bytes is carried now.
    pub fn plan(&self, direction: Direction, bytes: usize) -> Result<Plan, PlansError> {
        let mut numbers = [0; 4];
        // SAFETY: there is room for four numbers.
        let status =
            unsafe { (self.plan)(c_int::from(direction == Direction::ToDevice), bytes, &mut numbers) };
        let [buffers, buffer_bytes, lanes, threads] = numbers;
        if status == 0 { Ok(Plan { buffers, buffer_bytes, lanes, threads }) } else { Err(self.other()) }
    }

    /// The pair of machines that the session joins: the server's host, the UUID of its first device, the
    /// module that carries copies, and the client's host.
    pub fn pair(&self) -> Result<[String; 4], PlansError> {
        let mut text = [0_u8; 1024];
        // SAFETY: there is as much room as is said.
        let length = unsafe { (self.pair)(text.as_mut_ptr().cast(), text.len()) }.min(text.len());
        let text = String::from_utf8_lossy(&text[..length]);
        let lines: Vec<_> = text.splitn(4, '\n').map(str::to_owned).collect();
        lines.try_into().map_err(|_| self.other())
    }

    fn other(&self) -> PlansError {
        PlansError::OtherLibrary(self.name.clone())
    }
}
