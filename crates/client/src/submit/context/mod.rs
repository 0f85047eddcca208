//! Contexts: creation, destruction and synchronisation.
//!
//! | Module | Contents |
//! |---|---|
//! | `lifetime` | Creation, reset and destruction of contexts |
//! | `work` | Synchronisation with the work of a context (`cuCtxSynchronize`) |

pub mod lifetime;
pub mod work;
