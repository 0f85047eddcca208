//! Exchange of mirror changes: what the program wrote to the server, what kernels wrote back.
//!
//! Both ends find changes by comparing with what they agreed on last. So what one has found must be with the
//! other before that one looks in the same region. On the way to the server the order of commands sees to
//! it. On the way back the table knows for which regions the server may have changes that have not come yet;
//! what the program has written there waits until they have. All other commands go on meanwhile.

use super::long_ranges::Scratch;
use super::reachability;
use super::table::{self, Blocked, PendingRange};
use crate::locks::{Monitor, Mutex, rank};
use crate::log::error;
use crate::model::context;
use crate::remote::session;
use causeway_api::calls::{self, Call, Opcode};
use causeway_api::handle::{Context, Handle, MAX_SERVERS};
use causeway_api::sys::CUresult;
use causeway_api::types::MemoryRange;
use causeway_memory::mirror::{Changes, read_changes};
use causeway_sync::delays;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a thread that sends changes needs, kept for the next.
#[derive(Default)]
struct Outbox {
    changes: Changes,
    pending: Vec<PendingRange>,
    blocked: Blocked,
}

/// By server. Whoever finds changes holds it until they have been appended to the session's commands: so
/// nobody's command overtakes what another thread has found for it. It is the order of the session's commands
/// and no more is waited for than to append them.
static SENDING: [Mutex<rank::MirrorSending, Option<Outbox>>; MAX_SERVERS] =
    [const { Mutex::new(None) }; MAX_SERVERS];

/// Whose turn it is to fetch from a server.
#[derive(Default)]
struct FetchState {
    is_fetching: bool,
    /// How many fetches have begun, and the newest that has ended well.
    started: u64,
    ended: u64,
    /// How far the table's is.
    progress: u64,
    scratch: Scratch,
}

/// By server.
static FETCHES: LazyLock<Vec<Monitor<rank::MirrorFetches, FetchState>>> =
    LazyLock::new(|| (0..MAX_SERVERS).map(|_| Monitor::default()).collect());

/// What is known of a server's work, so that nothing is fetched that nobody can have written.
struct Work {
    /// Commands that may write to mirrors, counted when they have been queued.
    may_write: AtomicU64,
    /// So many of them were done when a fetch began that has ended.
    fetched: AtomicU64,
}

/// By server.
static WORK: [Work; MAX_SERVERS] =
    [const { Work { may_write: AtomicU64::new(0), fetched: AtomicU64::new(0) } }; MAX_SERVERS];

/// Whether a command may have a device use memory with a mirror. A kernel may, whatever its parameters are: it
/// can find addresses in memory. What only orders other commands does not; NCCL and PyTorch give several
/// of these with each kernel.
const fn may_use(opcode: Opcode) -> bool {
    use Opcode as O;
    opcode.is_in_stream()
        && !matches!(
            opcode,
            O::event_record
                | O::graph_upload
                | O::host_function
                | O::stream_attribute_get
                | O::stream_attribute_set
                | O::stream_destroy
                | O::stream_memory_barrier
                | O::stream_wait_event
        )
}

/// Whether a command may have a device write to memory with a mirror.
const fn may_write(opcode: Opcode) -> bool {
    may_use(opcode) && !matches!(opcode, Opcode::copy_from_device | Opcode::copy_from_device_now)
}

impl Work {
    /// Whether all that may have been written is here.
    fn is_fetched(&self) -> bool {
        self.fetched.load(Ordering::Acquire) == self.may_write.load(Ordering::Acquire)
    }
}

/// To be called when a command has been queued, before the call returns by which the program gave it: who
/// waits for it afterwards finds it counted.
#[inline]
pub fn after(server: usize, opcode: Opcode) {
    if may_write(opcode) && table::is_any() {
        WORK[server].may_write.fetch_add(1, Ordering::AcqRel);
    }
}

/// To be called before each command is sent to a server: one that may have the device use memory comes after
/// what the program has written to that memory.
#[inline]
pub fn before<C: Call>(server: usize, request: &C) -> Result<(), CUresult> {
    reachability::note_command(request);
    if may_use(C::OPCODE) { send(server) } else { Ok(()) }
}

/// Sends what the program has written to memory of which the server has a mirror.
#[inline]
pub fn send(server: usize) -> Result<(), CUresult> {
    if !table::is_any() {
        return Ok(());
    }
    while let Some(seen) = send_once(server)? {
        wait_for_progress(server, seen);
    }
    Ok(())
}

/// Sends what can be sent now. When the rest has to wait for a fetch, returns how far that is.
fn send_once(server: usize) -> Result<Option<u64>, CUresult> {
    let mut outbox = SENDING[server].lock();
    let Outbox { changes, pending, blocked } = outbox.get_or_insert_default();
    // An error may have left something.
    changes.clear();
    pending.clear();
    blocked.clear();
    loop {
        let newly_reachable = table::with(|table| {
            table.take_noted();
            let newly_reachable = table.take_newly_reachable(server);
            table.take_pending(server, pending);
            table.find(server, pending, changes, blocked);
            newly_reachable
        });
        if !newly_reachable.is_empty() {
            let request = calls::mirror_search { mirrors: newly_reachable, searched: true };
            session::post_in(Handle::null_of(server), &request)?;
        }
        send_changes(server, changes, pending, blocked)?;
        // What was sent may hold addresses of further memory, whose bytes go before the command, too.
        if !table::with(|table| table.is_any_newly_reachable(server)) {
            break;
        }
    }
    delays::inject();
    Ok(table::with(|table| table.put_back(server, blocked)))
}

/// Sends changes, and those of the places that are left.
fn send_changes(
    server: usize,
    changes: &mut Changes,
    pending: &mut Vec<PendingRange>,
    blocked: &mut Blocked,
) -> Result<(), CUresult> {
    while !changes.is_empty() {
        let request = calls::mirror_write { changes: changes.as_bytes() };
        let sent = session::post_in(Handle::null_of(server), &request);
        changes.clear();
        sent?;
        if !pending.is_empty() {
            table::with(|table| table.find(server, pending, changes, blocked));
        }
    }
    Ok(())
}

/// Whether a server is known to have no work under way.
pub fn is_idle(server: usize) -> bool {
    context::active().filter(|context| context.handle.server() == server).all(|context| context.is_idle())
}

/// Runs `work` while no thread is between finding changes for a server and having appended them.
pub fn without_sends<T>(server: usize, work: impl FnOnce() -> T) -> T {
    let _sending = SENDING[server].lock();
    work()
}

/// Waits until fetches from a server are further than they were.
pub fn wait_for_progress(server: usize, seen: u64) {
    FETCHES[server].wait(|fetches| (fetches.progress > seen).then_some(()));
}

/// Gets what kernels have written to mirrors of a server, unless nothing can have been written since all was
/// fetched.
pub fn fetch(server: usize) -> Result<(), CUresult> {
    if table::is_any() && !WORK[server].is_fetched() { fetch_all(server) } else { Ok(()) }
}

/// Whether all that the server had found when it last said that nothing differs is here: a fetch of another
/// thread may have agreed on changes that have not come yet. Waits for such a fetch.
pub fn is_all_here(server: usize) -> bool {
    // Read after the server's answer: a search that ended before that one began is counted.
    let newest = FETCHES[server].lock().started;
    FETCHES[server].wait(|fetches| match fetches.ended >= newest {
        true => Some(true),
        // It was given up.
        false if !fetches.is_fetching => Some(false),
        false => None,
    })
}

/// The commands given to a server so far that may write to mirrors, if all of them are over when those of
/// `context` are.
pub fn work_of(context: Handle<Context>) -> Option<u64> {
    if !table::is_any() {
        return None;
    }
    let server = context.server();
    // In this order, as for a fetch.
    let counted = WORK[server].may_write.load(Ordering::Acquire);
    let is_other = |other: &context::ContextState| other.handle.server() == server && other.handle != context;
    context::active().filter(|other| is_other(other)).all(|other| other.is_idle()).then_some(counted)
}

/// What so many commands of a server have written to mirrors is here.
pub fn note_fetched(server: usize, counted: u64) {
    WORK[server].fetched.fetch_max(counted, Ordering::AcqRel);
}

/// Gets what a server's mirrors hold that is not here.
pub fn fetch_all(server: usize) -> Result<(), CUresult> {
    if !table::with(|table| table.is_any_of(server)) {
        return Ok(());
    }
    // Any that begins from now on brings what is wanted; it is made for all who wait for one by then.
    let needed = FETCHES[server].lock().started + 1;
    let guard = FETCHES[server].wait(|fetches| {
        if fetches.ended >= needed {
            return Some(None);
        }
        if fetches.is_fetching {
            return None;
        }
        fetches.is_fetching = true;
        fetches.started += 1;
        Some(Some((fetches.started, core::mem::take(&mut fetches.scratch))))
    });
    let Some((number, scratch)) = guard else { return Ok(()) };
    let mut guard = FetchGuard { server, number, scratch, has_ended: false };
    guard.fetch()?;
    guard.has_ended = true;
    Ok(())
}

/// The calling thread's turn to fetch.
struct FetchGuard {
    server: usize,
    number: u64,
    scratch: Scratch,
    /// Whether everything is here.
    has_ended: bool,
}

impl FetchGuard {
    fn fetch(&mut self) -> Result<(), CUresult> {
        let server = self.server;
        // In this order: a command that is counted is in a context, which is not idle until it is done.
        let counted = WORK[server].may_write.load(Ordering::Acquire);
        let is_idle = is_idle(server);
        self.read()?;
        if is_idle {
            WORK[server].fetched.fetch_max(counted, Ordering::AcqRel);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), CUresult> {
        let server = self.server;
        let mut start = 0;
        loop {
            // What others have found before is sent before the server looks.
            without_sends(server, || table::with(|table| table.begin_search(server, start)));
            let request = calls::mirror_changes { start };
            let (next, changes, found) = session::call_reading(Handle::null_of(server), &request, |reply| {
                let next = reply.value::<u64>()?;
                let length = reply.count(1)?;
                let changes = reply.take(length)?.to_vec();
                Ok((next, changes, reply.value::<Vec<MemoryRange>>()?))
            })?;
            let found = table::with(|table| {
                read_changes(&changes, |address, bytes| table.put(server, address, bytes)).map_err(
                    |cause| {
                        error!("malformed changes of the program's memory from the server: {cause}");
                        CUresult::CUDA_ERROR_UNKNOWN
                    },
                )?;
                Ok(table.end_search(server, found))
            })?;
            self.publish_progress();
            self.scratch.read(server, &found, |address, bytes| {
                table::with(|table| {
                    table.make_pages(server, address, bytes.len());
                    table.put(server, address, bytes);
                });
            })?;
            if next == 0 {
                return Ok(());
            }
            start = next;
        }
    }

    fn publish_progress(&self) {
        let progress = table::with(|table| table.progress(self.server));
        FETCHES[self.server].change(|fetches| fetches.progress = progress);
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let progress = table::with(|table| table.end_fetch(self.server));
        FETCHES[self.server].change(|fetches| {
            fetches.is_fetching = false;
            fetches.progress = progress;
            fetches.scratch = core::mem::take(&mut self.scratch);
            if self.has_ended {
                fetches.ended = self.number;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_that_write_mirrors_need_a_fetch() {
        for opcode in
            [Opcode::launch, Opcode::graph_launch, Opcode::copy_to_device, Opcode::copy_within_device]
        {
            assert!(may_write(opcode), "{}", opcode.name());
        }
        for opcode in [Opcode::copy_from_device, Opcode::event_record, Opcode::stream_synchronize] {
            assert!(!may_write(opcode), "{}", opcode.name());
        }
    }

    #[test]
    fn commands_that_only_order_others_need_no_look_at_the_memory() {
        for opcode in [Opcode::launch, Opcode::copy_from_device, Opcode::copy_within_device] {
            assert!(may_use(opcode), "{}", opcode.name());
        }
        for opcode in [Opcode::event_record, Opcode::stream_wait_event, Opcode::host_function] {
            assert!(!may_use(opcode), "{}", opcode.name());
        }
    }
}
