//! What a kernel says to the outside.

/// What a kernel says to the outside.
///
/// Called from any thread of the pool, what is told by one at a time for each launch.
pub trait Host: Sync {
    /// The output of one `printf`, whole.
    fn print(&self, text: &[u8]);
    /// A device-side `assert` failed; the launch ends with [`Fault::Assert`](crate::Fault::Assert).
    fn assertion(&self, message: &str);
    /// A thread sets the value that steers a conditional node of a graph; false when nothing has this handle,
    /// which ends the launch with [`Fault::IllegalAddress`](crate::Fault::IllegalAddress).
    fn set_condition(&self, handle: u64, value: u32) -> bool;
}
