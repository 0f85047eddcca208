//! The real driver's back end against a library that only writes down how it is called (`driver_fake.c`): checks the
//! passing of arguments, which needs no GPU.

use causeway_api::handle::{Context, Event, Native, Stream};
use causeway_api::image::{EntryKind, Form, sample};
use causeway_api::sys::{CUmemPool_attribute, CUresult};
use causeway_api::types::{JitOptions, LaunchAttribute, LaunchShape, Region};
use causeway_gpu::calls::*;
use causeway_gpu::direct::{DirectMemory, DirectWay};
use causeway_gpu::{Completion, Gpu};
use causeway_gpu_driver::{Driver, LoadError};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

#[path = "driver_fake/busy.rs"]
mod busy;

const BUSY: c_int = CUresult::CUDA_ERROR_NOT_READY.0 as c_int;

/// What the fake can fail at, as it numbers that.
#[derive(Clone, Copy)]
enum Failing {
    MakeEvent,
    RecordEvent,
    HostCopy,
    MarkContext,
}

/// The fake, of which there is one in the process, and a driver that uses it; held by one test at a time.
struct Fake {
    library: libloading::Library,
    driver: Driver,
    context: Native<Context>,
    _alone: MutexGuard<'static, ()>,
}

fn build(name: &str, source: &Path, arguments: &[&str]) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread", "-o"])
        .arg(&out)
        .arg(source)
        .args(arguments)
        .status();
    assert!(status.expect("gcc is installed").success(), "{} does not compile", source.display());
    out
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver_fake.c")
}

impl Fake {
    fn new() -> Self {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let path = LIBRARY.get_or_init(|| build("libcuda_fake.so", &source(), &[]));
        // SAFETY: the library was just built from our own source.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let driver = Driver::load_from(path).unwrap();
        let context = driver.primary_context_retain(1, 0).unwrap();
        driver.make_current(context).unwrap();
        let fake = Self { library, driver, context, _alone: alone };
        fake.set_busy(0);
        for what in [Failing::MakeEvent, Failing::RecordEvent, Failing::HostCopy, Failing::MarkContext] {
            fake.fail(what, None);
        }
        fake.log();
        fake
    }

    /// What was called since the last time.
    fn log(&self) -> String {
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: the function has this type in the fake's source.
        unsafe {
            let take =
                self.library.get::<unsafe extern "C" fn(*mut c_char, usize)>(b"fake_take_log").unwrap();
            take(text.as_mut_ptr().cast(), text.len());
        }
        CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
    }

    /// Whether all work is unfinished from now on, or how it has ended.
    fn set_busy(&self, status: c_int) {
        // SAFETY: as above.
        unsafe { self.library.get::<unsafe extern "C" fn(c_int)>(b"fake_set_busy").unwrap()(status) }
    }

    /// The event that is unfinished from now on, whatever else is.
    fn set_unfinished(&self, event: Native<Event>) {
        // SAFETY: as above.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*mut c_void)>(b"fake_set_unfinished").unwrap()(
                event.as_raw().cast(),
            )
        }
    }

    /// What fails from now on, or does not.
    fn fail(&self, what: Failing, status: Option<CUresult>) {
        let status = status.map_or(0, |status| status.0 as c_int);
        // SAFETY: as above.
        unsafe {
            self.library.get::<unsafe extern "C" fn(c_int, c_int)>(b"fake_fail").unwrap()(
                what as c_int,
                status,
            )
        }
    }

    fn print(&self, text: &'static CStr) {
        // SAFETY: as above; the text lives for ever.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char)>(b"fake_print").unwrap()(text.as_ptr())
        }
    }
}

fn fatbin(kind: EntryKind, architecture: u32, payload: &[u8]) -> Vec<u8> {
    sample::fatbin(&[sample::plain(kind, architecture, payload)])
}

#[test]
fn the_snapshot_is_what_the_driver_says_but_for_what_is_not_forwarded() {
    let fake = Fake::new();
    let snapshot = fake.driver.snapshot().unwrap();
    assert_eq!(fake.log(), "", "a snapshot makes no context");
    assert!(snapshot.backend.starts_with("NVIDIA driver") && snapshot.backend.ends_with("(CUDA 13.0)"));
    assert_eq!((snapshot.driver_version, snapshot.devices.len(), snapshot.peers.len()), (13000, 2, 4));
    let device = &snapshot.devices[1];
    assert_eq!((device.name.as_str(), device.pci_bus_id.as_str()), ("Fake 1", "0000:01:00.0"));
    assert_eq!((device.uuid, device.total_memory), ([0xf1; 16], 2 << 30));
    assert_eq!(device.attribute(75), Some(9));
    assert_eq!(device.attribute(3), None, "the driver does not answer this one");
    let concurrent = device.attribute(89);
    assert_eq!(
        (device.attribute(83), concurrent),
        (Some(1), Some(0)),
        "managed memory, but not at the same time"
    );
    assert_eq!(device.stream_priorities, (0, -5));
    assert!(snapshot.peers[1].can_access && !snapshot.peers[0].can_access);
    assert_eq!(snapshot.peers[2].attributes, [(1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn the_current_context_is_set_only_when_it_changes() {
    let fake = Fake::new();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "");
    fake.driver.make_current(Native::NULL).unwrap();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "set current (nil)\nset current 0xc1\n");
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert!(fake.driver.primary_context_release(fake.context, 1).is_err());
    fake.log();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "set current 0xc1\n", "an ended context is current nowhere");
}

#[test]
fn launches_pass_one_parameter_buffer() {
    let fake = Fake::new();
    let module =
        fake.driver.module_load(Form::Single.number(), &JitOptions::default(), b".version 8.0").unwrap();
    let (function, info) = fake.driver.module_function(module, "f").unwrap();
    assert_eq!(info.parameters.iter().map(|p| (p.offset, p.size)).collect::<Vec<_>>(), [(0, 8), (8, 4)]);
    assert_eq!((info.attribute(0), info.attribute(2), info.attribute(15)), (Some(100), None, Some(115)));
    assert_eq!(fake.log(), "module text .version 8.0\nfunction f\n");
    let reported = JitOptions { report: 7, ..JitOptions::default() };
    assert_eq!(
        fake.driver.module_load(Form::Single.number(), &reported, b"bad"),
        Err(CUresult::CUDA_ERROR_INVALID_PTX)
    );
    assert_eq!(fake.driver.jit_report(7).unwrap().errors, "line 1: nothing is right here");
    assert_eq!(fake.log(), "module text bad\n");
    let shape = LaunchShape { grid: [1, 2, 3], block: [4, 5, 6], shared_bytes: 7 };
    fake.driver.launch(function, shape, Native::NULL, &[], &[9, 8, 7]).unwrap();
    let launched = "grid 1,2,3 block 4,5,6 shared 7 stream (nil) params (nil) bytes";
    assert_eq!(fake.log(), format!("launch {launched} 9 8 7\n"));
    fake.driver.launch(function, shape, Native::NULL, &[], &[]).unwrap();
    assert_eq!(fake.log(), format!("launch {launched}\n"));
    let mut value = [0; 64];
    value[0] = 2;
    fake.driver.launch(function, shape, Native::NULL, &[LaunchAttribute { id: 4, value }], &[1]).unwrap();
    assert_eq!(fake.log(), format!("launch ex {launched} 1\nattribute 4 value 2\n"));
    let refused =
        fake.driver.launch(function, shape, Native::NULL, &[LaunchAttribute { id: 7, value }], &[1]);
    assert_eq!(refused, Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn images_get_the_form_that_the_driver_takes() {
    let fake = Fake::new();
    let (ptx, code) = (fatbin(EntryKind::Ptx, 90, b"12345678"), fatbin(EntryKind::Cubin, 75, b"12345678"));
    let unaligned = [&[0], &ptx[..]].concat();
    fake.driver.library_load(Form::Single.number(), &JitOptions::default(), &unaligned[1..]).unwrap();
    fake.driver.module_load(Form::Single.number(), &JitOptions::default(), b"\x7fELF").unwrap();
    assert_eq!(fake.log(), "library fatbin no options\nmodule cubin \n");
    assert!(fake.driver.module_load(Form::Single.number(), &JitOptions::default(), &ptx[..40]).is_err());
    assert!(fake.driver.module_load(77, &JitOptions::default(), &ptx).is_err());
    // Linked code for another device: the parts are linked anew.
    let linked = [&code[..], &ptx[..], &ptx[..]].concat();
    fake.driver.module_load(Form::Linked.number(), &JitOptions::default(), &linked).unwrap();
    let add = format!("add kind 2 magic ba55ed50 size {} options 0\n", ptx.len());
    assert_eq!(fake.log(), format!("link options 2\n{add}{add}link destroyed\nmodule cubin \n"));
    // Linked code for this device is taken as it is.
    let linked = [&fatbin(EntryKind::Cubin, 90, b"12345678")[..], &ptx[..]].concat();
    fake.driver.module_load(Form::Linked.number(), &JitOptions::default(), &linked).unwrap();
    assert_eq!(fake.log(), "module bare fatbin \n");
}

#[test]
fn copies_use_the_call_that_fits() {
    let fake = Fake::new();
    let mut host = vec![0u8; 4096];
    let stream = Native::<Stream>::from_value(0x55);
    let planes =
        Region { address: 0x9000, row_pitch: 128, slice_pitch: 1280, width: 100, height: 4, depth: 3 };
    let rows = Region { depth: 1, ..planes };
    // SAFETY: the fake reads and writes at most the region's bytes, which `host` has.
    unsafe {
        fake.driver.start_copy_to_device(&Region::linear(0x100, 64).into(), host.as_ptr(), stream).unwrap();
        fake.driver
            .start_copy_from_device(&Region::linear(0x200, 64).into(), host.as_mut_ptr(), stream)
            .unwrap();
        assert_eq!(fake.log(), "HtoD 100 64 0x55\nDtoH 200 64 0x55\n");
        fake.driver.start_copy_to_device(&rows.into(), host.as_ptr(), stream).unwrap();
        assert_eq!(fake.log(), "2D from 1 0 pitch 100 to 2 9000 pitch 128 size 100x4 0x55\n");
        fake.driver.start_copy_from_device(&planes.into(), host.as_mut_ptr(), stream).unwrap();
    }
    assert_eq!(fake.log(), "3D from 2 9000 pitch 128 rows 10 to 1 0 pitch 100 rows 4 size 100x4x3 0x55\n");
    fake.driver.copy_within_device(Region { address: 0x1, ..planes }.into(), planes.into(), stream).unwrap();
    assert_eq!(fake.log(), "3D from 2 9000 pitch 128 rows 10 to 2 1 pitch 128 rows 10 size 100x4x3 0x55\n");
    fake.driver.copy_within_device(Region::linear(1, 8).into(), Region::linear(2, 8).into(), stream).unwrap();
    assert_eq!(fake.log(), "DtoD 1 2 8 0x55\n");
    assert!(fake.driver.copy_within_device(Region::linear(1, 8).into(), rows.into(), stream).is_err());
}

#[test]
fn completions_come_at_once_or_later_and_in_order() {
    let fake = Fake::new();
    let stream = fake.driver.stream_create(1, -3).unwrap();
    assert_eq!(fake.log(), "stream flags 1 priority -3\n");
    let (sender, results) = mpsc::channel();
    let done = |label: &'static str| -> Completion {
        let sender = sender.clone();
        Box::new(move |status| sender.send((label, status)).unwrap())
    };
    fake.driver.after(stream, done("at once")).unwrap();
    assert_eq!(results.try_recv(), Ok(("at once", Ok(()))));
    assert_eq!(fake.log(), "", "an idle stream needs no event");

    fake.set_busy(BUSY);
    let event = fake.driver.event_create(0).unwrap();
    fake.driver.after(stream, done("first")).unwrap();
    fake.driver.after_event(event, done("second")).unwrap();
    fake.driver.after_context(done("third")).unwrap();
    fake.driver.after(Native::NULL, done("fourth")).unwrap();
    fake.driver.event_destroy(event).unwrap();
    assert!(!fake.log().contains("destroyed"), "an event that is waited for stays");
    assert!(results.try_recv().is_err());
    fake.set_busy(0);
    for label in ["first", "second", "third", "fourth"] {
        assert_eq!(results.recv().unwrap(), (label, Ok(())));
    }
    assert!(fake.log().contains("event destroyed"));

    fake.set_busy(BUSY);
    fake.driver.after(stream, done("fails")).unwrap();
    fake.set_busy(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0 as c_int);
    assert_eq!(results.recv().unwrap(), ("fails", Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)));

    fake.set_busy(BUSY);
    fake.driver.after(stream, done("abandoned")).unwrap();
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert_eq!(results.recv().unwrap(), ("abandoned", Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)));
}

#[test]
fn who_waits_for_a_record_does_not_wait_for_the_next_one() {
    let fake = Fake::new();
    let (sender, results) = mpsc::channel();
    let done = |label: &'static str| -> Completion {
        let sender = sender.clone();
        Box::new(move |status| sender.send((label, status)).unwrap())
    };
    let event = fake.driver.event_create(0).unwrap();
    fake.set_busy(BUSY);
    fake.driver.after_event(event, done("first")).unwrap();
    fake.log();
    fake.driver.event_record(event, Native::NULL, 0).unwrap();
    let log = fake.log();
    assert!(log.contains(&format!("waits for {:p} flags 0\nrecord\nrecord\n", event.as_raw())), "{log}");
    fake.driver.after_event(event, done("second")).unwrap();
    fake.set_unfinished(event);
    fake.set_busy(0);
    assert_eq!(results.recv().unwrap(), ("first", Ok(())));
    assert!(results.try_recv().is_err());
    fake.set_unfinished(Native::NULL);
    assert_eq!(results.recv().unwrap(), ("second", Ok(())));
    fake.driver.event_record(event, Native::NULL, 0).unwrap();
    assert_eq!(fake.log().matches("record").count(), 1, "nobody waits any more");
}

#[test]
fn a_thread_that_looks_gets_the_completions_until_it_stops() {
    let fake = Fake::new();
    let (sender, results) = mpsc::channel();
    let wait = |urgent: bool| {
        let sender = sender.clone();
        let done: Completion = Box::new(move |_| sender.send(std::thread::current().id()).unwrap());
        let stream = Native::<Stream>::NULL;
        if urgent { fake.driver.after(stream, done) } else { fake.driver.after_a_while(stream, done) }
            .unwrap();
    };
    let mut watch = fake.driver.watch();
    let finds_the_end = || {
        fake.set_busy(BUSY);
        wait(true);
        assert!(watch.is_waited_for());
        watch.look();
        assert!(results.try_recv().is_err());
        fake.set_busy(0);
        while watch.is_waited_for() {
            watch.look();
            std::thread::yield_now();
        }
        results.try_recv() == Ok(std::thread::current().id())
    };
    // The thread of the waits may be awake at first, and sooner; nobody wakes it once it sleeps.
    assert!((0..1000).any(|_| finds_the_end()));

    fake.set_busy(BUSY);
    wait(true);
    watch.turn_away();
    fake.set_busy(0);
    assert_ne!(results.recv().unwrap(), std::thread::current().id());

    // What was asked for before the thread sleeps, and while it does, others look for.
    fake.set_busy(BUSY);
    wait(true);
    watch.asleep(|| {
        fake.set_busy(0);
        assert_ne!(results.recv().unwrap(), std::thread::current().id());
        fake.set_busy(BUSY);
        wait(true);
        fake.set_busy(0);
        assert_ne!(results.recv().unwrap(), std::thread::current().id());
    });

    // So they do when it stops.
    fake.set_busy(BUSY);
    wait(true);
    drop(watch);
    fake.set_busy(0);
    assert_ne!(results.recv().unwrap(), std::thread::current().id());
    let watch = fake.driver.watch();

    // Nobody looks for the end of what nobody waits for, and still it is told.
    fake.set_busy(BUSY);
    wait(false);
    while watch.is_waited_for() {
        // The completion of the wait before was called a moment ago.
        std::thread::yield_now();
    }
    fake.set_busy(0);
    results.recv().unwrap();
}

#[test]
fn gates_count_upwards_and_open_when_dropped() {
    let fake = Fake::new();
    let (sender, reached) = mpsc::channel();
    let stop = || {
        let sender = sender.clone();
        fake.driver.gate(Native::NULL, Box::new(move || sender.send(()).unwrap())).unwrap()
    };
    let gate = stop();
    reached.try_recv().unwrap();
    let log = fake.log();
    assert!(log.contains("register 4096 flags 3 in 0xc1\n"), "{log}");
    assert!(log.ends_with("host function in (nil)\nwait in (nil) for 1 now 0 flags 0\n"), "{log}");
    gate.open();
    drop(stop());
    assert!(fake.log().ends_with("wait in (nil) for 2 now 1 flags 0\n"));
    let (_one, _other) = (stop(), stop());
    let log = fake.log();
    assert!(log.contains("for 3 now 2") && log.contains("for 1 now 0"), "two gates have two words: {log}");
}

#[test]
fn staging_memory_is_pinned_once_and_used_again() {
    let fake = Fake::new();
    let mut first = fake.driver.staging(100_000).unwrap();
    // A slab of 32 blocks, each long enough.
    assert_eq!(fake.log(), "register 4194304 flags 1 in 0xc1\n");
    first.as_mut_slice().fill(1);
    let address = first.as_ptr();
    drop(first);
    let again = fake.driver.staging(110_000).unwrap();
    assert_eq!((again.as_ptr(), again.len()), (address, 110_000));
    assert_eq!(fake.log(), "");
    let neighbour = fake.driver.staging(110_000).unwrap();
    assert_ne!(neighbour.as_ptr(), address);
    assert_eq!(fake.log(), "", "its slab is registered already");
    drop(neighbour);
    // Another thread, without a current context, gets pinned memory too.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fake.driver.staging(1).unwrap()));
    });
    assert!(fake.log().contains("register 2097152 flags 1 in 0xc1\n"));
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert!(fake.log().contains("unregister\n"), "what is kept goes with its context");
    drop(again);
    assert_eq!(fake.log(), "", "what was lent went with its context");
}

#[test]
fn staging_memory_for_bytes_that_stay_in_caches_is_what_was_used_last() {
    const BYTES: usize = 5 << 20;
    let fake = Fake::new();
    let [first, last] = [(); 2].map(|()| fake.driver.warm_staging(BYTES).unwrap());
    let address = last.as_ptr();
    drop(first);
    drop(last);
    fake.log();
    let warm = fake.driver.warm_staging(BYTES).unwrap();
    assert_eq!((warm.as_ptr(), fake.log().as_str()), (address, ""));
    drop(warm);
    // What passes by the caches gets memory that nothing has used, as long as little of it lies there.
    let fresh = fake.driver.staging(BYTES).unwrap();
    assert_eq!(fake.log(), format!("register {BYTES} flags 1 in 0xc1\n"));
    drop(fresh);
}

#[test]
fn network_cards_get_whole_pages_of_device_memory() {
    let fake = Fake::new();
    assert_eq!(fake.driver.direct_ways(1).usable.first(), Some(&DirectWay::DmaBuf));
    let memory = fake.driver.direct_memory(DirectWay::DmaBuf, 0x20_0010, 8192).unwrap();
    assert!(matches!(memory, DirectMemory::DmaBuf { offset: 0x10, .. }), "{memory:?}");
    assert_eq!(fake.log(), "dma-buf 200000 12288\n");
    let by_address = fake.driver.direct_memory(DirectWay::Peermem, 0x20_0010, 8192).unwrap();
    assert!(matches!(by_address, DirectMemory::Addresses));
    assert!(fake.driver.direct_memory(DirectWay::HostMemory, 0x20_0010, 8192).is_err());
    assert_eq!(fake.log(), "");
    // The fake's ordering is less than the owner's.
    fake.driver.finish_direct_writes(fake.context).unwrap();
    assert_eq!(fake.log(), "flush 0 100\n");
}

#[test]
fn memory_of_another_process_is_mapped_as_the_driver_wants_it_and_undone_when_it_cannot_be_used() {
    let fake = Fake::new();
    let lent = || std::fs::File::open("/dev/null").unwrap().into();
    let borrowed = fake.driver.borrow_memory(lent(), 4 << 20, 0).unwrap();
    assert_eq!((borrowed.address, borrowed.size), (0x700_0000, 4 << 20));
    let mapped = "import\nreserve 4194304 0 0 0\nmap 7000000 4194304 0 a110c 0\n";
    assert_eq!(fake.log(), format!("{mapped}access 7000000 4194304 for 0 of 1: 3\nrelease a110c\n"));
    fake.driver.return_memory(borrowed).unwrap();
    let undone = "unmap 7000000 4194304\nfree addresses 7000000 4194304\n";
    assert_eq!(fake.log(), undone);
    // A device that does not reach the memory.
    let refused = fake.driver.borrow_memory(lent(), 4 << 20, 1).unwrap_err();
    assert!(refused.to_string().contains("does not reach"), "{refused}");
    assert_eq!(fake.log(), format!("{mapped}access 7000000 4194304 for 1 of 1: 3\n{undone}release a110c\n"));
}

#[test]
fn what_kernels_print_comes_before_the_completion() {
    let fake = Fake::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let output = Arc::clone(&seen);
    fake.driver.set_output(Box::new(move |_, bytes| output.lock().unwrap().extend_from_slice(bytes)));
    fake.driver.module_load(Form::Single.number(), &JitOptions::default(), b".extern .func vprintf").unwrap();
    fake.print(c"a line from a kernel\n");
    let (sender, result) = mpsc::channel();
    let at_completion = Arc::clone(&seen);
    let done = Box::new(move |_| sender.send(at_completion.lock().unwrap().clone()).unwrap());
    fake.driver.after(Native::NULL, done).unwrap();
    let text = String::from_utf8(result.recv().unwrap()).unwrap();
    assert!(text.contains("a line from a kernel\n"), "{text}");
}

#[test]
fn pools_have_numbers_of_two_widths() {
    let fake = Fake::new();
    let pool = fake.driver.memory_pool_create(1, 4096).unwrap();
    assert_eq!(fake.log(), "pool type 1 handles 0 location 1 1 limit 4096\n");
    let value = |number| fake.driver.memory_pool_attribute_get(pool, CUmemPool_attribute(number));
    assert_eq!((value(2), value(4)), (Ok(1), Ok(5_000_000_000)));
    assert_eq!(value(99), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn libraries_that_are_not_the_driver_are_refused() {
    let missing = Driver::load_from(Path::new("/nowhere/libcuda.so.1")).err().unwrap();
    assert!(matches!(missing, LoadError::NotFound { .. }), "{missing}");
    assert_eq!(missing.status(), CUresult::CUDA_ERROR_NO_DEVICE);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let client = directory.join("client.c");
    std::fs::write(&client, "int causeway_client_marker(void) { return 1; }\n").unwrap();
    let own = Driver::load_from(&build("libcuda_client.so", &client, &[])).err().unwrap();
    assert!(matches!(own, LoadError::OwnClient { .. }) && own.to_string().contains("own client"), "{own}");
    let broken = directory.join("broken.c");
    std::fs::write(&broken, "int cuInit(unsigned flags) { return 803 + (int)flags; }\n").unwrap();
    let failed = Driver::load_from(&build("libcuda_broken.so", &broken, &[])).err().unwrap();
    assert_eq!(failed.status(), CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    assert!(failed.to_string().contains("803"), "{failed}");
}
