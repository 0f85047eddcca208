//! The staging pipeline: how a copy between a program's memory and a GPU is divided, so that its stages
//! overlap.
//!
//! A copy passes three stages: from the program's memory into staging, over the wire, and from staging to the
//! GPU; from the GPU it passes them the other way. Pieces of a copy go through the stages one behind the
//! other. How large they are, how many are under way, and how many lanes and threads work on them is a
//! [`Plan`], which depends on the size of the copy, its direction and the module that carries it: the stages,
//! and the observation that no single setting serves all sizes, are those of Reaño and Silla, "Redesigning
//! the rCUDA communication layer for a better adaptation to the underlying hardware". Everything here decides
//! and nothing here copies: no memory of a program, no socket and no clock is touched; only [`profile`] reads
//! and writes files.
//!
//! | module | contents |
//! | --- | --- |
//! | `plan` | Copy plan: its parameters and their limits |
//! | `table` | Table of copy plans by size |
//! | `language` | Text form of a plan table |
//! | `lanes` | Number of bulk lanes: TCP connections that carry the transfers of a session |
//! | `profile` | Profiles: storage of what `causeway tune` has measured |
//! | `cut` | Pieces of a copy in one, two or three dimensions |

pub mod cut;
pub mod lanes;
pub mod language;
pub mod plan;
pub mod profile;
pub mod table;

pub use causeway_config::TransportKind;
pub use cut::{Piece, Shape, cut, cut_tapered};
pub use lanes::{DEFAULT_LANES, MAX_LANES};
pub use language::{PipelineError, UserTableError, VARIABLE};
pub use plan::{Direction, INLINE_BYTES, Plan, chunk_bytes};
pub use profile::{Measured, Profile, ProfileError};
pub use table::{Change, NONTEMPORAL_UP_TO, Rule, Table, built_in, for_distance};
