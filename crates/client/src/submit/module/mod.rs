//! Modules, libraries and what is in them: functions, kernels, variables.
//!
//! The layout of a function's parameters and its attributes come with its handle, so launching it and asking
//! about it need no round trip. A function is asked for once a module, however often the program does.

mod function;
mod image;
mod library;
mod modules;

pub use function::{FunctionState, Owner, resolve_function, resolve_kernel, resolve_kernel_on};
pub use image::ImageLifetime;
pub use library::{load_library, resolve_library, unload_library};
pub use modules::{load, resolve, unload};

use causeway_api::handle::{Context, Handle};

/// Forgets what a context that ends had loaded.
pub fn context_ends(context: Handle<Context>) {
    modules::context_ends(context);
    library::context_ends(context);
}
