//! GPUDirect RDMA on links between workers: registration, and its timeout.

use crate::worker::rdma::{DeviceBlocks, GpuDirect};
use crate::worker::session::Session;
use causeway_link::{DeviceUse, Link};
use std::sync::Arc;
use std::time::Duration;

/// How long one end may need for what the other end, or the client, knows to be done.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// GPUDirect for a link to another worker, and in words whether there is any; nothing where the link has no
/// cards.
pub fn gpudirect(
    session: &Session,
    blocks: &Arc<DeviceBlocks>,
    link: &Link,
    usage: DeviceUse,
) -> (Option<GpuDirect>, String) {
    match GpuDirect::new(link, session.gpu(), blocks, usage) {
        Ok(direct) => {
            let text = direct.explain();
            (Some(direct), text)
        }
        Err(_) if !link.is_one_sided() => (None, String::new()),
        Err(why) => (None, why),
    }
}
