//! Turns the declaration list of the driver API into code.
//!
//! Each macro here is expanded once, in the crate that its comment names; nothing else in the project knows
//! the arguments of a driver call. The list itself is in `crates/api/list`.

mod coverage;
mod driver;
mod entry;
mod facts;
mod list;
mod numbers;
mod order;
mod requests;
mod stubs;
mod traits;
mod types;

use proc_macro::TokenStream;

/// Expanded in `causeway_api::calls`: opcodes, one request struct a command, the enum of all requests.
#[proc_macro]
pub fn requests(_input: TokenStream) -> TokenStream {
    requests::expand(&list::entries()).into()
}

/// Expanded in `causeway_api::coverage`: the table of every entry point with its kind and versions.
#[proc_macro]
pub fn coverage(_input: TokenStream) -> TokenStream {
    coverage::expand(&list::entries()).into()
}

/// Expanded in `causeway_gpu::calls`: the traits with one method for each command that a back end executes.
#[proc_macro]
pub fn calls_traits(_input: TokenStream) -> TokenStream {
    traits::expand_traits(&list::entries()).into()
}

/// Expanded in `causeway_gpu::dispatch`: from a request to the method of its trait, handles resolved.
#[proc_macro]
pub fn dispatch(_input: TokenStream) -> TokenStream {
    traits::expand_dispatch(&list::entries()).into()
}

/// Expanded in `causeway_gpu_driver::functions`: typed function pointers of the real driver library.
#[proc_macro]
pub fn driver_library(_input: TokenStream) -> TokenStream {
    driver::expand_library(&list::entries()).into()
}

/// Expanded, with a subject of the list, inside the `impl` of the subject's trait for `Driver`: the methods
/// that pass a driver call on as it is.
#[proc_macro]
pub fn driver_calls(subject: TokenStream) -> TokenStream {
    driver::expand_calls(&list::entries(), &subject.to_string()).into()
}

/// Expanded in the client library: every exported symbol, and the table of their addresses.
#[proc_macro]
pub fn stubs(_input: TokenStream) -> TokenStream {
    stubs::expand(&list::entries()).into()
}
