//! Live status: the messages of a rank so far, for other processes of its owner while it runs, and the
//! channels that these let it use, with GPUDirect or without.
//!
//! It is a page of memory in a file that cannot be cut short, which the rank keeps open under a name: who may
//! look at the rank's open files, as its owner and root may, finds it below `/proc`. So nothing stays behind
//! when a rank is killed, and containers need share nothing with the host from which they are looked at.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use causeway_memory::SealedMemory;
use causeway_sync::fork::CloseOnFork;
use memmap2::{MmapOptions, MmapRaw};

use crate::channels::Channel;
use crate::job::Job;
use crate::report::MessagePath;
use crate::scheduler::Decision;

/// The name of the file.
const NAME: &str = "causeway-comm-live";

/// What the page begins with: its meaning changes with the number at the end.
const MAGIC: u64 = u64::from_le_bytes(*b"CWlive02");

const BYTES: u64 = 4096;

/// Places of numbers in the page. Each count has two: messages and bytes.
const JOB: usize = 1;
const RANK: usize = 2;
const RANKS: usize = 3;
/// Sets of channels, a bit each: those of the rank's settings, and those that its owner lets it use.
const CONFIGURED: usize = 4;
const ALLOWED: usize = 5;
/// Whether the owner has switched GPUDirect off.
const GPUDIRECT_OFF: usize = 6;
const MPI: usize = 8;
const GPUDIRECT: usize = 10;
const STAGED: usize = 12;
const CHANNELS: usize = 14;

fn bit(channel: Channel) -> u64 {
    1 << channel.index()
}

fn set(channels: &[Channel]) -> u64 {
    channels.iter().fold(0, |set, channel| set | bit(*channel))
}

fn members(set: u64) -> Vec<Channel> {
    Channel::ALL.into_iter().filter(|channel| set & bit(*channel) != 0).collect()
}

#[derive(Debug)]
struct Page(MmapRaw);

impl Page {
    fn map(memory: &SealedMemory) -> io::Result<Self> {
        MmapOptions::new().len(BYTES as usize).map_raw(&memory.descriptor()).map(Self)
    }

    fn numbers(&self) -> &[AtomicU64] {
        let first: *const AtomicU64 = self.0.as_ptr().cast();
        // SAFETY: the mapping is page-aligned, has so many bytes, and stays as long as this; all processes
        // use it as atomics alone, which any bytes are.
        unsafe { core::slice::from_raw_parts(first, BYTES as usize / 8) }
    }

    // Numbers that nothing else is ordered by.
    fn get(&self, at: usize) -> u64 {
        self.numbers()[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, number: u64) {
        self.numbers()[at].store(number, Ordering::Relaxed);
    }

    fn count(&self, at: usize, bytes: u64) {
        self.numbers()[at].fetch_add(1, Ordering::Relaxed);
        self.numbers()[at + 1].fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A rank's own page. Where the system gives no memory for it, the rank is not seen.
#[derive(Debug, Default)]
pub struct Live(Option<OwnPage>);

#[derive(Debug)]
struct OwnPage {
    page: Page,
    /// In front of the file, so that it goes first.
    _own: CloseOnFork,
    /// By which others find it.
    _memory: SealedMemory,
}

impl Live {
    /// The page of a rank that may use these channels.
    pub(crate) fn new(job: &Job, rank: u32, channels: &[Channel]) -> Self {
        let own = SealedMemory::new(NAME, BYTES).ok().and_then(|memory| {
            let page = Page::map(&memory).ok()?;
            for (at, number) in [
                (JOB, job.tag()),
                (RANK, u64::from(rank)),
                (RANKS, u64::from(job.ranks())),
                (CONFIGURED, set(channels)),
                (ALLOWED, set(&Channel::ALL)),
            ] {
                page.set(at, number);
            }
            // Last: now it has a meaning.
            page.numbers()[0].store(MAGIC, Ordering::Release);
            Some(OwnPage { page, _own: CloseOnFork::new(memory.descriptor()), _memory: memory })
        });
        Self(own)
    }

    /// Whether the owner lets the rank use a channel now.
    pub(crate) fn allows(&self, channel: Channel) -> bool {
        self.0.as_ref().is_none_or(|own| own.page.get(ALLOWED) & bit(channel) != 0)
    }

    /// Whether the owner lets RDMA devices access the GPU's memory now, at this rank's end.
    pub(crate) fn allows_gpudirect(&self) -> bool {
        self.0.as_ref().is_none_or(|own| own.page.get(GPUDIRECT_OFF) == 0)
    }

    /// Counts a message that was received, or sent with the MPI.
    pub(crate) fn count(&self, path: MessagePath, bytes: u64) {
        let Some(OwnPage { page, .. }) = &self.0 else { return };
        match path {
            MessagePath::Fetched(Decision { channel, is_gpudirect, .. }) => {
                page.count(CHANNELS + 2 * channel.index(), bytes);
                if is_gpudirect {
                    page.count(GPUDIRECT, bytes);
                } else if channel.passes_host_memory() {
                    page.count(STAGED, bytes);
                }
            }
            MessagePath::Mapped(channel) => page.count(CHANNELS + 2 * channel.index(), bytes),
            MessagePath::Eager => page.count(CHANNELS + 2 * Channel::EAGER.index(), bytes),
            MessagePath::Inline(_) => page.count(MPI, bytes),
            // The receiver counts it.
            MessagePath::Offered => {}
        }
    }
}

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveCount {
    /// How many there were.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A rank that runs, of a process that this one may look at.
#[derive(Debug)]
pub struct LiveRank {
    /// Its process, as this one's PID namespace has it.
    pub process: u32,
    page: Page,
}

impl LiveRank {
    fn of_descriptor(process: u32, descriptor: OwnedFd) -> Option<Self> {
        let page = Page::map(&SealedMemory::check(descriptor, BYTES).ok()?).ok()?;
        (page.numbers()[0].load(Ordering::Acquire) == MAGIC).then_some(Self { process, page })
    }

    /// A number that all ranks of its job have, and no other job.
    pub fn job(&self) -> u64 {
        self.page.get(JOB)
    }

    /// Its rank.
    pub fn rank(&self) -> u64 {
        self.page.get(RANK)
    }

    /// How many ranks its job has.
    pub fn ranks(&self) -> u64 {
        self.page.get(RANKS)
    }

    /// What it has received by a channel, and sent of a GPU's memory with the MPI where there is none.
    pub fn count(&self, channel: Option<Channel>) -> LiveCount {
        self.count_at(channel.map_or(MPI, |channel| CHANNELS + 2 * channel.index()))
    }

    /// What it has received by RDMA devices that reach the GPUs' memory at both ends.
    pub fn gpudirect(&self) -> LiveCount {
        self.count_at(GPUDIRECT)
    }

    /// What it has received through slots in host memory, at one end or both.
    pub fn staged(&self) -> LiveCount {
        self.count_at(STAGED)
    }

    fn count_at(&self, at: usize) -> LiveCount {
        LiveCount { messages: self.page.get(at), bytes: self.page.get(at + 1) }
    }

    /// The channels that it may use now.
    pub fn channels(&self) -> Vec<Channel> {
        members(self.page.get(CONFIGURED) & self.page.get(ALLOWED))
    }

    /// Lets it use these channels, of those that its settings have, from its next message on.
    pub fn allow(&self, channels: &[Channel]) {
        self.page.set(ALLOWED, set(channels));
    }

    /// Whether RDMA devices may access the memory of its GPUs, where they can.
    pub fn allows_gpudirect(&self) -> bool {
        self.page.get(GPUDIRECT_OFF) == 0
    }

    /// Lets RDMA devices access the memory of its GPUs from its next message on, or stages what they carry.
    pub fn allow_gpudirect(&self, is_allowed: bool) {
        self.page.set(GPUDIRECT_OFF, u64::from(!is_allowed));
    }
}

/// All ranks that run, of processes that this one may look at, by job and rank.
///
/// # Errors
/// Where there is no `/proc`.
pub fn ranks() -> io::Result<Vec<LiveRank>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for rank in of_process(process, &entry.path()) {
            found.entry((rank.job(), rank.rank())).or_insert(rank);
        }
    }
    Ok(found.into_values().collect())
}

fn of_process(process: u32, folder: &Path) -> Vec<LiveRank> {
    // Other users' are not to be had, and processes end.
    let Ok(files) = fs::read_dir(folder.join("fd")) else { return Vec::new() };
    let is_page = |path: &Path| {
        let target = fs::read_link(path).unwrap_or_default();
        target
            .to_str()
            .is_some_and(|target| target.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(NAME)))
    };
    let open = |path: &Path| {
        // What only has the name of one does not keep this waiting.
        let opened =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        LiveRank::of_descriptor(process, opened.into())
    };
    files
        .flatten()
        .map(|file| file.path())
        .filter(|path| is_page(path))
        .filter_map(|path| open(&path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Inline;
    use crate::scheduler::Reason;
    use crate::tracer::Traffic;

    #[test]
    fn a_page_is_found_and_says_what_was_counted() {
        let job = Job::new(Job::random_nonce().unwrap(), 4).unwrap();
        let live = Live::new(&job, 3, &[Channel::Vmm, Channel::Rdma]);
        let (reason, traffic) = (Reason::Only, Traffic::Latency);
        let decision = Decision { channel: Channel::Rdma, reason, traffic, to_gpu: true, is_gpudirect: true };
        live.count(MessagePath::Fetched(decision), 100);
        live.count(MessagePath::Fetched(Decision { is_gpudirect: false, ..decision }), 1);
        live.count(MessagePath::Eager, 8);
        live.count(MessagePath::Inline(Inline::Short), 9);
        live.count(MessagePath::Offered, 1 << 20);
        let find = || ranks().unwrap().into_iter().find(|rank| rank.job() == job.tag());
        let seen = find().expect("it is this process's");
        assert_eq!((seen.process, seen.rank(), seen.ranks()), (std::process::id(), 3, 4));
        let count = |messages, bytes| LiveCount { messages, bytes };
        assert_eq!(seen.count(Some(Channel::Rdma)), count(2, 101));
        assert_eq!(seen.count(Some(Channel::Bar)), count(1, 8));
        assert_eq!(seen.count(Some(Channel::Vmm)), count(0, 0));
        assert_eq!((seen.count(None), seen.gpudirect()), (count(1, 9), count(1, 100)));
        assert_eq!(seen.staged(), count(1, 1));
        assert_eq!(seen.channels(), [Channel::Vmm, Channel::Rdma]);
        assert!(live.allows(Channel::Rdma));
        seen.allow(&[Channel::Vmm, Channel::Tcp]);
        assert!(live.allows(Channel::Vmm) && !live.allows(Channel::Rdma));
        assert_eq!(seen.channels(), [Channel::Vmm]);
        assert!(live.allows_gpudirect() && seen.allows_gpudirect());
        seen.allow_gpudirect(false);
        assert!(!live.allows_gpudirect() && !seen.allows_gpudirect());
        seen.allow_gpudirect(true);
        assert!(live.allows_gpudirect());
        drop(live);
        assert!(find().is_none());
    }
}
