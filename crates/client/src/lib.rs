//! c
#![allow(dead_code)]
mod entry { use causeway_api::sys::CUresult; 
#[derive(Clone,Copy)] pub enum DefaultStream { Legacy, PerThread }
pub struct Address(pub *const core::ffi::c_void); unsafe impl Sync for Address {}
pub fn enter(_i: usize, f: impl FnOnce() -> Result<(), CUresult>) -> CUresult { match f() { Ok(())=>CUresult::CUDA_SUCCESS, Err(e)=>e } }
pub fn unsupported(_i: usize) -> CUresult { CUresult::CUDA_ERROR_NOT_SUPPORTED }
pub unsafe fn text<'a>(p: *const core::ffi::c_char) -> Result<&'a str, CUresult> { unsafe { core::ffi::CStr::from_ptr(p) }.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE) }
pub unsafe fn list<'a, T>(p: *const T, n: usize) -> Result<&'a [T], CUresult> { if n==0 { return Ok(&[]) } if p.is_null() { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) } Ok(unsafe { core::slice::from_raw_parts(p, n) }) }
pub unsafe fn store<T: Copy>(_p: *mut T, _n: usize, _v: &[T]) -> Result<(), CUresult> { Ok(()) }
}
mod session { use causeway_api::sys::CUresult; use causeway_api::calls::Call; pub fn post(_r: &impl Call)->Result<(),CUresult>{Ok(())} pub fn call<C: Call>(_r:&C)->Result<C::Reply,CUresult>{Err(CUresult::CUDA_ERROR_UNKNOWN)} }
mod handles { use causeway_api::sys::{self,CUresult}; use causeway_api::handle::*; pub fn create<K: Kind>()->Handle<K>{Handle::NULL} pub fn given<K:Kind>(r:K::Raw)->Result<Handle<K>,CUresult>{Ok(Handle::from_raw(r))} pub fn retire<K:Kind>(r:K::Raw)->Result<Handle<K>,CUresult>{Ok(Handle::from_raw(r))} pub fn stream(r: sys::CUstream, _d: crate::entry::DefaultStream)->Result<Handle<Stream>,CUresult>{Ok(Handle::from_raw(r))} }
mod stubs { causeway_api_macros::stubs!(); }
mod calls {}
