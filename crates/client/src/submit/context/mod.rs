//! Contexts: creation, destruction and synchronisation.
//!
//! | module | contents |
//! | --- | --- |
//! | `lifetime` | Creation, reset and destruction of contexts |
//! | `work` | Work of a context: synchronisation with it (`cuCtxSynchronize`), and proxy streams: streams of ours for copies between servers |

pub mod lifetime;
pub mod work;
