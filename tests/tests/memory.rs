//! Memory: allocation, access, and addresses that cannot be reserved.

use causeway_api::calls;
use causeway_api::handle::{Allocation, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::{AllocationProperties, ExportToken};
use causeway_tests::built::cuda_program;
use causeway_tests::client::through_run;
use causeway_tests::process::{eventually, run};
use causeway_tests::raw_session::RawSession;
use causeway_tests::server::Server;
use causeway_wire::codec::Decoder;
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// The granularity of the software GPU.
const UNIT: usize = 2 << 20;

/// Memory of a device, as `cuMemCreate` asks for it: pinned, with descriptors, on device 0.
fn properties() -> AllocationProperties {
    AllocationProperties { kind: 1, handle_types: 1, location: 1, ..AllocationProperties::default() }
}

fn status<C: calls::Call>(session: &mut RawSession, request: &C) -> CUresult {
    let call = session.begin(request);
    CUresult(session.reply(call).expect("the worker answers").status)
}

#[test]
fn small_allocations_do_not_wait_for_the_server() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("statistics.json");
    let mut command = through_run(Some(&server.connect_string()), &cuda_program("allocation"));
    run(command.env("CAUSEWAY_STATS", &file), LIMIT).must_succeed();
    let text = std::fs::read_to_string(&file).expect("the program wrote its statistics");
    let report: Value = serde_json::from_str(&text).expect("the statistics are JSON");
    let count = |name: &str, kind: &str| report["calls"][name][kind].as_u64().unwrap_or(0);
    for name in ["cuMemAlloc_v2", "cuMemAllocAsync"] {
        let (local, called) = (count(name, "local"), count(name, "called"));
        assert!(local > 60 && called < 12, "{name}: {local} local, {called} called in {report:#}");
    }
    assert_eq!(count("cuMemFreeAsync", "called"), 0, "{report:#}");
}

#[test]
fn host_memory_for_other_processes_is_refused_by_name() {
    let server = Server::start();
    let mut command = through_run(Some(&server.connect_string()), &cuda_program("host_virtual_memory"));
    // NCCL tries, and goes on with other memory: nothing is said of that by default.
    let outcome = run(command.arg("exported").env("CAUSEWAY_LOG", "info"), LIMIT).must_succeed();
    assert!(outcome.stderr.contains("memory of the host with handles for other processes"), "{outcome}");
    server.must_be_well();
}

#[test]
fn handles_that_hardly_any_machine_has_are_refused_without_a_word() {
    let server = Server::start();
    // As UCX tries them for all memory: CU_MEM_HANDLE_TYPE_FABRIC is 8, CU_MEM_HANDLE_TYPE_WIN32 2.
    let text = "import ctypes, sys\n\
                cuda = ctypes.CDLL('libcuda.so.1')\n\
                assert cuda.cuInit(0) == 0\n\
                room = ctypes.create_string_buffer(64)\n\
                error = cuda.cuMemExportToShareableHandle(room, ctypes.c_uint64(1), int(sys.argv[1]), ctypes.c_uint64(0))\n\
                assert error == int(sys.argv[2]), error";
    for (kind, error, level, said) in [
        ("8", "800", "error", ""),
        ("8", "800", "info", "for a fabric"),
        ("2", "801", "error", "that are not file descriptors"),
    ] {
        let mut command = through_run(Some(&server.connect_string()), Path::new("python3"));
        command.args(["-c", text, kind, error]).env("CAUSEWAY_LOG", level);
        let outcome = run(&mut command, LIMIT).must_succeed();
        assert!(
            outcome.stderr.contains(said) && (!said.is_empty() || outcome.stderr.is_empty()),
            "{outcome}"
        );
    }
}

#[test]
fn without_addresses_of_its_own_a_client_asks_the_server_and_says_so() {
    let server = Server::start();
    // Without the addresses, handles must still be such at which nothing lies.
    for (name, arguments) in [("allocation", &[][..]), ("async_alloc", &[]), ("handle_values", &["nowhere"])]
    {
        let mut command = through_run(Some(&server.connect_string()), &cuda_program(name));
        command.args(arguments).env("CAUSEWAY_LOG", "info");
        // SAFETY: between fork and exec only this call is made, which takes a record that lives here.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 4 << 30, rlim_max: 4 << 30 };
                if libc::setrlimit(libc::RLIMIT_AS, &limit) == 0 {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
        let outcome = run(&mut command, LIMIT).must_succeed();
        assert!(outcome.stderr.contains("cannot reserve"), "{outcome}");
        assert!(
            outcome.stderr.contains("handles have") && outcome.stderr.contains("not reserved"),
            "{outcome}"
        );
    }
}

#[test]
fn memory_is_another_sessions_only_by_its_token_and_while_its_owner_is_there() {
    let server = Server::start();
    let (mut owner, mut other) = (RawSession::open(server.target()), RawSession::open(server.target()));
    let made = Handle::<Allocation>::new(1, 0);
    owner.call(&calls::allocation_create { allocation: made, size: UNIT, properties: properties() });
    let export = calls::allocation_export { allocation: made, size: UNIT, properties: properties() };
    let token = owner.call(&export);
    let import = |index, token| calls::allocation_import { allocation: Handle::new(index, 0), token };

    let guessed = ExportToken(token.0.map(|byte| byte ^ 1));
    assert_eq!(status(&mut other, &import(1, guessed)), CUresult::CUDA_ERROR_INVALID_HANDLE);
    let call = other.begin(&import(2, token));
    let reply = other.reply(call).expect("the worker answers");
    let known: (usize, AllocationProperties) =
        Decoder::new(&reply.payload).value().expect("a size and properties");
    assert_eq!((reply.status, known), (0, (UNIT, properties())));
    // The token is for memory.
    let event = calls::event_import { event: Handle::new(3, 0), token };
    assert_ne!(status(&mut other, &event), CUresult::CUDA_SUCCESS);

    // The broker hears of the end of an export from another process than of the next import.
    let mut index = 10;
    let mut is_gone = |token| {
        index += 1;
        status(&mut other, &import(index, token)) == CUresult::CUDA_ERROR_INVALID_HANDLE
    };
    owner.call(&calls::export_withdraw { token });
    eventually("a withdrawn export is gone", LIMIT, || is_gone(token));
    let token = owner.call(&export);
    drop(owner);
    eventually("the export is gone with its session", LIMIT, || is_gone(token));
}

#[test]
fn blocks_lie_in_the_window_and_nowhere_else() {
    let server = Server::start();
    let mut session = RawSession::open(server.target());
    let block = |index, address, size| calls::memory_block_create {
        block: Handle::new(index, 0),
        address,
        size,
        device: 0,
        accessors: Vec::new(),
    };
    for (index, address) in [0, 4096, 0x7fff_0000_0000, u64::MAX - 4095].into_iter().enumerate() {
        assert_ne!(status(&mut session, &block(index as u32, address, UNIT)), CUresult::CUDA_SUCCESS);
    }
    // More than the device has is refused at once.
    let made = Handle::<Allocation>::new(9, 0);
    let create = calls::allocation_create { allocation: made, size: 1 << 45, properties: properties() };
    assert_eq!(status(&mut session, &create), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
}
