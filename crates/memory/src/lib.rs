//! Memory of this host: copied by several threads, made before it is used, shared with another process,
//! compared.
//!
//! | module | contents |
//! | --- | --- |
//! | `copy_threads` | Thread pool for parallel memory copies |
//! | `nontemporal` | Copies with non-temporal stores, for memory that a device reads next |
//! | `pages` | Makes the pages of memory before they are used, on several threads: one makes 4 KiB in 1 to 2 us (virtual machines with an H100, 2026-11-24), and those who would pin the memory or copy there make them one by one |
//! | `sealed` | Sealed memfd: memory of another process that is safe to map |
//! | `shared_file` | Shared memory file (memfd) that others may write and truncate |
//! | `mappings` | Memory mappings of this process (`/proc/self/maps`), and the files behind them |
//! | `pagemap` | Pagemap of this process: which pages of a range are there, a file's, or written to since they were last scanned (`PAGEMAP_SCAN`, Linux 6.7) |
//! | `userfaultfd` | userfaultfd: the kernel holds back who writes to a range of memory, or notes which pages are written to |
//! | `replace` | Atomic replacement of mapped pages while other threads use them |
//! | `mirror` | Memory that two processes hold: which bytes changed here, and putting in place those that changed there |
//! | `numa` | NUMA nodes: the node of an address or of a device, its processors, and where new memory lies |

pub mod copy_threads;
pub mod mappings;
pub mod mirror;
pub mod nontemporal;
pub mod numa;
pub mod pagemap;
pub mod pages;
pub mod replace;
pub mod sealed;
pub mod shared_file;
pub mod userfaultfd;

pub use sealed::{SealedMemory, SealedMemoryError};
pub use shared_file::{SharedFile, SharedFileError};
