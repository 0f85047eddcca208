//! Metrics endpoint for Prometheus.
//!
//! Over HTTP at an address of its own, in Prometheus' text format. Whoever reaches the address may read:
//! there is nothing of a client's in it, no names, no addresses, no content, unless the owner asks for the sessions one by one.
//!
//! | module | contents |
//! | --- | --- |
//! | `families` | Prometheus metric definitions |
//! | `foreign_names` | Devices under the names of OpenTelemetry and of NVIDIA's DCGM exporter, for dashboards that are made for these |
//! | `http` | HTTP server of the metrics endpoint: limits and request parsing |
//! | `peer_memory` | Kernel counters of device memory that is registered with network cards (`nvidia_peermem`) |
//! | `text` | Prometheus text format encoder |

mod families;
mod foreign_names;
mod http;
mod peer_memory;
mod text;

pub(super) use families::respond;
pub use http::{Respond, Response, serve};
pub use text::{Family, Page};
