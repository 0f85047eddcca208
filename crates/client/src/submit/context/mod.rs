//! Contexts: creation, destruction and synchronisation.
//!
//! | Module | Contents |
//! |---|---|
//! | `lifetime` | Creation, reset and destruction of contexts |
//! | `work` | Synchronisation with the work of a context (`cuCtxSynchronize`) |
//! | `proxy_streams` | Proxy streams: streams of ours in a context for copies between servers |

pub mod lifetime;
pub mod proxy_streams;
pub mod work;
