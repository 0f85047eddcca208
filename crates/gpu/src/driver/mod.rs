//! The real driver.

mod functions;
use functions::Functions;

struct Driver { functions: Functions }
impl crate::Calls for Driver { causeway_api_macros::driver_calls!(); }
