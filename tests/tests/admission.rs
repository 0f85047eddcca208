//! What one program may take of a server, and what is left for the others then.

use causeway_api::calls;
use causeway_api::handle::{Allocation, Handle};
use causeway_api::image::Form;
use causeway_api::sys::CUresult;
use causeway_api::types::{AllocationProperties, ExportToken, JitOptions, LaunchShape, Payload};
use causeway_tests::hostile;
use causeway_tests::process::eventually;
use causeway_tests::raw_session::RawSession;
use causeway_tests::server::Server;
use causeway_wire::codec::Decoder;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The granularity of the software GPU.
const UNIT: usize = 2 << 20;

/// Descriptors, so few that a session reaches its part of them soon.
const DESCRIPTORS: u64 = 400;

fn server_with_few_descriptors() -> Server {
    let mut command = Server::command(&["--listen", "127.0.0.1:0", "--insecure-no-key"]);
    // SAFETY: between fork and exec only this call is made, which takes a record that lives here.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: DESCRIPTORS / 2, rlim_max: DESCRIPTORS };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    Server::start_command(command)
}

/// A session that exports the same memory as often as it may.
struct Exporter {
    session: RawSession,
    tokens: Vec<ExportToken>,
}

impl Exporter {
    fn new(server: &Server) -> Self {
        let mut session = RawSession::open(server.target());
        session.call(&calls::allocation_create {
            allocation: memory(),
            size: UNIT,
            properties: properties(),
        });
        Self { session, tokens: Vec::new() }
    }

    /// Exports once more; false when that is refused.
    fn export(&mut self) -> bool {
        let export = calls::allocation_export { allocation: memory(), size: UNIT, properties: properties() };
        let call = self.session.begin(&export);
        let reply = self.session.reply(call).expect("the worker answers");
        match CUresult(reply.status) {
            CUresult::CUDA_SUCCESS => {
                self.tokens.push(Decoder::new(&reply.payload).value().expect("a token"));
                true
            }
            error => {
                assert_eq!(error, CUresult::CUDA_ERROR_OPERATING_SYSTEM);
                false
            }
        }
    }

    fn export_until_refused(&mut self) -> usize {
        while self.export() {
            assert!(self.tokens.len() < DESCRIPTORS as usize, "it is never refused");
        }
        self.tokens.len()
    }
}

fn memory() -> Handle<Allocation> {
    Handle::new(1, 0)
}

/// Memory of a device, as `cuMemCreate` asks for it: pinned, with descriptors, on device 0.
fn properties() -> AllocationProperties {
    AllocationProperties { kind: 1, handle_types: 1, location: 1, ..AllocationProperties::default() }
}

#[test]
fn who_exports_until_it_is_refused_takes_nothing_from_others() {
    let server = server_with_few_descriptors();
    let mut greedy = Exporter::new(&server);
    let part = greedy.export_until_refused();
    assert!(part >= 8, "{part} exports are too few");
    // Others have their part, and the last memory of each is really there.
    let mut others: Vec<Exporter> = (0..3).map(|_| Exporter::new(&server)).collect();
    for (index, other) in (2..).zip(&mut others) {
        assert!(other.export_until_refused() >= part / 2);
        let token = *other.tokens.last().expect("it has exported something");
        let import = calls::allocation_import { allocation: Handle::new(index, 0), token };
        let call = greedy.session.begin(&import);
        assert_eq!(greedy.session.reply(call).map(|reply| reply.status), Some(0));
    }
    // With nothing left to export the server serves one more.
    drop(RawSession::open(server.target()));
    let token = greedy.tokens.pop().expect("it has exported something");
    greedy.session.call(&calls::export_withdraw { token });
    eventually("what it takes back it can export again", LIMIT, || greedy.export());
    assert!(!greedy.export());
    drop(greedy);
    let mut next = Exporter::new(&server);
    eventually("what it had goes to others when it has ended", LIMIT, || next.export());
    server.must_be_well();
}

#[test]
fn a_session_too_many_is_refused_with_the_option_that_allows_it() {
    let server =
        Server::start_with(&["--listen", "127.0.0.1:0", "--insecure-no-key", "--max-sessions-per-peer", "1"]);
    let _session = RawSession::open(server.target());
    let (_, answer) = hostile::ask_for_session(server.target(), &hostile::hello());
    assert!(format!("{answer:?}").contains("--max-sessions-per-peer"), "{answer:?}");
}

#[test]
fn a_session_without_commands_or_with_an_endless_kernel_is_no_worker_that_hangs() {
    const ENDLESS: &str =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry endless() {\nagain: bra again;\n}\n";
    let server =
        Server::start_with(&["--listen", "127.0.0.1:0", "--insecure-no-key", "--hung-worker", "kill:1"]);
    let mut idle = RawSession::open(server.target());
    let mut busy = RawSession::open(server.target());
    let (context, module, function) = (Handle::new(1, 0), Handle::new(1, 0), Handle::new(1, 0));
    busy.call(&calls::primary_context_retain { context, device: 0, flags: 0 });
    busy.context = context.value();
    let (form, image) = (Form::Single.number(), Payload::Inline(ENDLESS.as_bytes()));
    busy.call(&calls::module_load { module, form, options: JitOptions::default(), image });
    busy.call(&calls::module_function { function, module, name: "endless" });
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    busy.call(&calls::launch { function, shape, stream: Handle::NULL, attributes: Vec::new(), params: &[] });
    busy.begin(&calls::context_synchronize {});
    // Several times as long as a command may take.
    std::thread::sleep(Duration::from_secs(4));
    idle.call(&calls::allocation_create { allocation: memory(), size: UNIT, properties: properties() });
    busy.call(&calls::allocation_create { allocation: memory(), size: UNIT, properties: properties() });
    server.must_be_well();
}
