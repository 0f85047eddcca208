//! Access of the processor to GPU memory. Through the GPU's BAR, which is mapped like
//! memory.
//!
//! The kernel module of GDRCOPY maps it, or NVIDIA's driver itself, where it lets dma-bufs of a GPU's memory
//! be mapped. Writes are fast, reads take a microsecond for a few bytes: it is for the shortest messages.
//!
//! | Module    | Question it answers                                             |
//! |-----------|-----------------------------------------------------------------|
//! | `usable`  | Does this process reach the BAR, and by what, or why not?       |
//! | `gdrdrv`  | How is GDRCOPY's kernel module asked?                           |
//! | `window`  | How is a part of a GPU's memory mapped, and until when?         |
//! | `windows` | Which parts stay mapped, and how do bytes get to and from them? |
//! | `eager`   | Which copies does the processor make in place of the driver?    |
//! | `mmio`    | How does a processor copy to and from memory of a device?       |

mod eager;
mod error;
mod gdrdrv;
mod mmio;
mod usable;
mod window;
mod windows;

pub(crate) use eager::EagerCopies;
pub use error::BarError;
pub(crate) use usable::{has_module, usable};
pub(crate) use windows::Windows;

use super::channel::{Ends, Missing};
use crate::pair::{Locality, Pair};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.locality == Locality::OtherHost {
        return Err(Missing::OtherHost);
    }
    ends.gpus()?;
    ends.bar.clone().map_err(Missing::NoBar)?;
    // Between the two BARs bytes pass through memory of the host.
    pair.memory.as_ref().map(drop).map_err(|why| Missing::NoMemory(why.clone()))
}
