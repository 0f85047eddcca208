//! Counter page: shared memory with the counters of one session.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_link::TransportKind;
use causeway_memory::SealedMemory;
use memmap2::{MmapOptions, MmapRaw};

use super::histogram::{BOUNDS, Histogram, bucket_of};

/// Where the buckets begin: behind the counts that stand alone.
const FIRST_BUCKET: isize = 18;

/// Buckets of a histogram.
const BUCKETS: isize = BOUNDS.len() as isize + 1;

const COUNTS: usize = CounterIndex::End as usize;
const BYTES: usize = COUNTS * size_of::<u64>();

/// The places of all buckets, one of which each reply is counted in.
fn at_buckets() -> impl Iterator<Item = usize> {
    CounterIndex::CallBuckets as usize..CounterIndex::End as usize
}

/// How the counts of two sessions become one.
macro_rules! merge {
    (sum, $own:expr, $other:expr) => {
        $own = $own.wrapping_add($other)
    };
    (max, $own:expr, $other:expr) => {
        $own = $own.max($other)
    };
    (not, $own:expr, $other:expr) => {};
}

/// Declares the counters of a session: for each, the field of [`Counts`], the index in the page, and how it is merged. Those under
/// `others` are read in a way of their own.
macro_rules! counters {
    (
        single { $($(#[$doc:meta])* $field:ident: $variant:ident = $index:literal, $merge:ident;)* }
        others { $($other:ident = $other_index:literal,)* }
    ) => {
        /// The index of each count in the page.
        #[derive(Debug, Clone, Copy)]
        enum CounterIndex {
            $($variant = $index,)*
            $($other = $other_index,)*
            CallBuckets = FIRST_BUCKET,
            WaitBuckets = FIRST_BUCKET + BUCKETS,
            End = FIRST_BUCKET + 2 * BUCKETS,
        }

        /// What a session has done, as it was read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $field: u64,)*
            /// What carries its messages, once that is known.
            pub via: Option<TransportKind>,
            /// Nanoseconds for which kernels ran, the sum of all; nothing where the back end does not measure that.
            pub kernel_time: Option<u64>,
            /// Whether network cards may access the session's device memory.
            pub has_gpudirect: bool,
            /// From the arrival of a command to its reply, where that does not wait for the GPU.
            pub calls: Histogram,
            /// The same where it does.
            pub waits: Histogram,
        }

        impl Counts {
            /// Takes the single counts from a page.
            fn read_single(&mut self, page: &[u64; COUNTS]) {
                $(self.$field = page[CounterIndex::$variant as usize];)*
            }

            fn merge_single(&mut self, other: &Self) {
                $(merge!($merge, self.$field, other.$field);)*
            }
        }
    };
}

counters! {
    single {
        /// Commands without a reply.
        posted: Posted = 1, sum;
        /// Commands with one.
        called: Called = 2, sum;
        /// Commands that failed.
        failed: Failed = 3, sum;
        /// Launches of kernels and graphs.
        launches: Launches = 4, sum;
        /// Copies to devices.
        copies_to_device: CopiesToDevice = 5, sum;
        /// Their bytes.
        bytes_to_device: BytesToDevice = 6, sum;
        /// Copies from devices.
        copies_from_device: CopiesFromDevice = 7, sum;
        /// Their bytes.
        bytes_from_device: BytesFromDevice = 8, sum;
        /// Bytes of device memory that the session has.
        device_memory: DeviceMemory = 11, not;
        /// The most that it has had.
        peak_device_memory: PeakDeviceMemory = 12, max;
        /// Bytes of copies to devices that network cards have written there themselves (GPUDirect).
        gpudirect_to_device: GpuDirectToDevice = 16, sum;
        /// Bytes of copies from devices that network cards have read there themselves.
        gpudirect_from_device: GpuDirectFromDevice = 17, sum;
    }
    others {
        Via = 0,
        CallSum = 9,
        WaitSum = 10,
        HasKernelTime = 13,
        KernelTime = 14,
        HasGpuDirect = 15,
    }
}

impl Counts {
    /// Whether a command has come that is not answered yet.
    pub fn is_waiting(&self) -> bool {
        self.called > self.calls.count().wrapping_add(self.waits.count())
    }

    /// Adds what another session has done.
    pub fn merge(&mut self, other: &Self) {
        self.merge_single(other);
        if let Some(time) = other.kernel_time {
            self.kernel_time = Some(self.kernel_time.unwrap_or(0).wrapping_add(time));
        }
        self.calls.merge(&other.calls);
        self.waits.merge(&other.waits);
    }

    /// Reads what a page has.
    fn of(page: &[u64; COUNTS]) -> Self {
        let at = |counter: CounterIndex| page[counter as usize];
        let histogram = |buckets: CounterIndex, sum: CounterIndex| {
            let mut histogram = Histogram { sum: at(sum), ..Histogram::default() };
            let first = buckets as usize;
            let count = histogram.buckets.len();
            histogram.buckets.copy_from_slice(&page[first..first + count]);
            histogram
        };
        let mut counts = Self {
            via: TransportKind::from_number(at(CounterIndex::Via)),
            kernel_time: (at(CounterIndex::HasKernelTime) != 0).then(|| at(CounterIndex::KernelTime)),
            has_gpudirect: at(CounterIndex::HasGpuDirect) != 0,
            calls: histogram(CounterIndex::CallBuckets, CounterIndex::CallSum),
            waits: histogram(CounterIndex::WaitBuckets, CounterIndex::WaitSum),
            ..Self::default()
        };
        counts.read_single(page);
        counts
    }
}

/// The counts of a worker's session, in memory that its broker can read.
#[derive(Debug)]
pub struct Activity {
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Shared(MmapRaw),
    /// Where the system gives no memory to share: the session is served all the same.
    Own(Box<[AtomicU64; COUNTS]>),
}

impl Activity {
    /// Counts that nobody else reads.
    pub fn alone() -> Self {
        Self { memory: Memory::Own(Box::new([const { AtomicU64::new(0) }; COUNTS])) }
    }

    /// Counts in memory that another process can read by the descriptor, where the system gives such memory.
    pub fn shared() -> (Self, Option<OwnedFd>) {
        let mapped = SealedMemory::new("causeway-activity", BYTES as u64).map(|memory| {
            let mapped = MmapOptions::new().len(BYTES).map_raw(&memory.descriptor());
            mapped.map(|mapped| (Self { memory: Memory::Shared(mapped) }, Some(OwnedFd::from(memory))))
        });
        match mapped {
            Ok(Ok(shared)) => shared,
            _ => {
                tracing::warn!("the broker cannot observe this session: allocating shared memory failed");
                (Self::alone(), None)
            }
        }
    }

    fn words(&self) -> &[AtomicU64; COUNTS] {
        match &self.memory {
            Memory::Own(words) => words,
            // SAFETY: the mapping is as long as the array, begins at a page and lives as long as `self`;
            // nobody changes it but by atomics, and its size is sealed.
            Memory::Shared(mapped) => unsafe { &*mapped.as_ptr().cast() },
        }
    }

    fn counter(&self, index: CounterIndex) -> &AtomicU64 {
        &self.words()[index as usize]
    }

    fn add(&self, index: CounterIndex, value: u64) {
        self.counter(index).fetch_add(value, Ordering::Relaxed);
    }

    /// A load and a store, for counts of which one thread alone keeps track.
    fn add_alone(&self, counter: CounterIndex, value: u64) {
        let word = &self.words()[counter as usize];
        word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    /// The session goes over this transport.
    pub fn set_transport(&self, via: TransportKind) {
        self.words()[CounterIndex::Via as usize].store(via.number(), Ordering::Relaxed);
    }

    /// A command has come. To be called by one thread.
    pub fn command(&self, is_called: bool) {
        self.add_alone(if is_called { CounterIndex::Called } else { CounterIndex::Posted }, 1);
    }

    /// A kernel or a graph is launched. To be called by one thread.
    pub fn launch(&self) {
        self.add_alone(CounterIndex::Launches, 1);
    }

    /// A copy to a device has come. To be called by one thread.
    pub fn copy_to_device(&self, bytes: u64) {
        self.add_alone(CounterIndex::CopiesToDevice, 1);
        self.add_alone(CounterIndex::BytesToDevice, bytes);
    }

    /// A copy from a device has come. To be called by one thread.
    pub fn copy_from_device(&self, bytes: u64) {
        self.add_alone(CounterIndex::CopiesFromDevice, 1);
        self.add_alone(CounterIndex::BytesFromDevice, bytes);
    }

    /// Network cards may access the session's device memory.
    pub fn has_gpudirect(&self) {
        self.counter(CounterIndex::HasGpuDirect).store(1, Ordering::Relaxed);
    }

    /// A network card has written these bytes of a copy to a device.
    pub fn gpudirect_to_device(&self, bytes: u64) {
        self.add(CounterIndex::GpuDirectToDevice, bytes);
    }

    /// A network card has read these bytes of a copy from a device.
    pub fn gpudirect_from_device(&self, bytes: u64) {
        self.add(CounterIndex::GpuDirectFromDevice, bytes);
    }

    /// The time of kernels is measured.
    pub fn measure_kernels(&self) {
        self.counter(CounterIndex::HasKernelTime).store(1, Ordering::Relaxed);
    }

    /// A kernel has run for so long.
    pub fn kernel(&self, time: Duration) {
        self.add(CounterIndex::KernelTime, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The session has more device memory.
    pub fn memory_reserved(&self, bytes: u64) {
        let before = self.counter(CounterIndex::DeviceMemory).fetch_add(bytes, Ordering::Relaxed);
        let now = before.wrapping_add(bytes);
        self.counter(CounterIndex::PeakDeviceMemory).fetch_max(now, Ordering::Relaxed);
    }

    /// The session has less device memory.
    pub fn memory_released(&self, bytes: u64) {
        self.counter(CounterIndex::DeviceMemory).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of device memory that the session has.
    pub fn device_memory(&self) -> u64 {
        self.counter(CounterIndex::DeviceMemory).load(Ordering::Relaxed)
    }

    /// As [`Counts::is_waiting`], without reading the whole page.
    pub fn is_reply_owed(&self) -> bool {
        let at = |index: usize| self.words()[index].load(Ordering::Relaxed);
        let replies = at_buckets().map(at).fold(0, u64::wrapping_add);
        at(CounterIndex::Called as usize) > replies
    }

    /// A command has failed.
    pub fn failure(&self) {
        self.add(CounterIndex::Failed, 1);
    }

    /// A command that came at `since` is answered; `waits` if for the GPU.
    pub fn reply(&self, since: Instant, waits: bool) {
        self.reply_after(since.elapsed(), waits);
    }

    fn reply_after(&self, time: Duration, waits: bool) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (buckets, sum) = if waits {
            (CounterIndex::WaitBuckets, CounterIndex::WaitSum)
        } else {
            (CounterIndex::CallBuckets, CounterIndex::CallSum)
        };
        self.words()[buckets as usize + bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.add(sum, nanoseconds);
    }
}

/// The counts of a worker, as its broker has them.
#[derive(Debug)]
pub struct ActivityPage {
    descriptor: OwnedFd,
}

impl ActivityPage {
    /// What a worker has sent. It is never mapped, so that nothing can be taken away under the reader.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// The memory in which they are, for another process.
    pub fn memory(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// What the session has done so far; nothing where that cannot be read.
    pub fn read(&self) -> Counts {
        let mut bytes = [0; BYTES];
        match rustix::io::pread(self.descriptor(), &mut bytes, 0) {
            Ok(BYTES) => {
                let mut words = [0; COUNTS];
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                    *word = u64::from_ne_bytes(*bytes);
                }
                Counts::of(&words)
            }
            _ => Counts::default(),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_counts_its_broker_reads() {
        let (activity, descriptor) = Activity::shared();
        let page = ActivityPage::new(descriptor.unwrap());
        assert_eq!(page.read(), Counts::default());
        activity.set_transport(TransportKind::Shm);
        (0..3).for_each(|_| activity.command(false));
        activity.command(true);
        activity.launch();
        activity.copy_to_device(70);
        activity.copy_from_device(7);
        activity.copy_from_device(8);
        activity.failure();
        assert_eq!((page.read().kernel_time, page.read().has_gpudirect), (None, false));
        activity.has_gpudirect();
        activity.gpudirect_to_device(60);
        activity.gpudirect_from_device(5);
        activity.gpudirect_from_device(1);
        activity.measure_kernels();
        activity.kernel(Duration::from_nanos(70));
        activity.memory_reserved(30);
        activity.memory_reserved(12);
        activity.memory_released(40);
        activity.memory_reserved(1);
        assert!(page.read().is_waiting() && activity.is_reply_owed());
        activity.reply_after(Duration::from_nanos(500), false);
        activity.reply_after(Duration::from_secs(100), true);
        assert!(!activity.is_reply_owed() && activity.device_memory() == 3);
        let counts = page.read();
        assert_eq!((counts.via, counts.posted, counts.called), (Some(TransportKind::Shm), 3, 1));
        assert_eq!((counts.launches, counts.failed), (1, 1));
        assert_eq!((counts.copies_to_device, counts.bytes_to_device), (1, 70));
        assert_eq!((counts.copies_from_device, counts.bytes_from_device), (2, 15));
        assert_eq!((counts.device_memory, counts.peak_device_memory), (3, 42));
        assert_eq!(counts.kernel_time, Some(70));
        assert_eq!(
            (counts.has_gpudirect, counts.gpudirect_to_device, counts.gpudirect_from_device),
            (true, 60, 6)
        );
        assert!(!counts.is_waiting());
        assert_eq!((counts.calls.buckets[0], counts.calls.sum, counts.calls.count()), (1, 500, 1));
        assert_eq!((counts.waits.buckets[14], counts.waits.sum), (1, 100_000_000_000));
    }

    #[test]
    fn what_is_no_page_says_nothing() {
        let file = |bytes: &[u8]| {
            use std::io::Write as _;
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            ActivityPage::new(file.into()).read()
        };
        assert_eq!(file(&[1; BYTES - 1]), Counts::default());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert_eq!(ActivityPage::new(pipe).read(), Counts::default());
        let counts = file(&[0xff; BYTES]);
        assert_eq!((counts.via, counts.posted), (None, u64::MAX));
        let mut sum = counts;
        sum.merge(&counts);
        assert_eq!(sum.posted, u64::MAX - 1, "sums of what a worker says may wrap around");
    }

    #[test]
    fn threads_may_answer_at_the_same_time() {
        let activity = Activity::alone();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| activity.reply_after(Duration::from_nanos(3), false)));
            }
        });
        let words: Vec<u64> = activity.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let counts = Counts::of(words.as_slice().try_into().unwrap());
        assert_eq!((counts.calls.buckets[0], counts.calls.sum), (4000, 12_000));
    }
}
