//! Senseless commands: they can be decoded and make no sense.
//!
//! Each is refused or carried out; none ends or hangs the worker, and the session can be used afterwards.

use causeway_api::calls::{self, Opcode, Request};
use causeway_api::handle::{Context, Event, Function, Handle, MemoryPool, Module, Stream};
use causeway_api::image::Form;
use causeway_api::types::{JitOptions, Payload};
use causeway_tests::hostile::Random;
use causeway_tests::raw_session::RawSession;
use causeway_tests::server::Server;

/// How many commands of each kind are sent.
const COMMANDS: usize = 60;

/// The longest arguments that are tried.
const MAX_COMMANDS: usize = 400;

const PTX: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry store(.param .u64 where) {\n\
    .reg .u64 %address;\nld.param.u64 %address, [where];\nst.global.u64 [%address], %address;\nret;\n}\n";

/// A session in which one object of every common kind exists, and the numbers that name them.
fn furnished(server: &Server) -> (RawSession, Vec<u64>) {
    let mut session = RawSession::open(server.target());
    let context = Handle::<Context>::new(1, 0);
    session.call(&calls::primary_context_retain { context, device: 0, flags: 0 });
    session.context = context.value();
    let (stream, event) = (Handle::<Stream>::new(1, 0), Handle::<Event>::new(1, 0));
    session.call(&calls::stream_create { stream, flags: 0, priority: 0 });
    session.call(&calls::event_create { event, flags: 0 });
    let module = Handle::<Module>::new(1, 0);
    let image = Payload::Inline(PTX.as_bytes());
    session.call(&calls::module_load {
        module,
        form: Form::Single.number(),
        options: JitOptions::default(),
        image,
    });
    let function = Handle::<Function>::new(1, 0);
    session.call(&calls::module_function { function, module, name: "store" });
    let pool = Handle::<MemoryPool>::new(1, 0);
    session.call(&calls::memory_pool_default { pool, device: 0 });
    let memory = session.call(&calls::memory_allocate { size: 4096 });
    let handles = [
        context.value(),
        stream.value(),
        event.value(),
        module.value(),
        function.value(),
        pool.value(),
        memory,
    ];
    (session, handles.to_vec())
}

/// Arguments of random words that can be decoded, if a number of attempts finds any.
fn arguments(opcode: Opcode, words: &[u64], random: &mut Random) -> Option<Vec<u8>> {
    let decodes = |bytes: &[u8]| Request::decode(opcode, bytes).is_ok();
    let length = (0..MAX_COMMANDS).find(|length| decodes(&vec![0; *length]))?;
    (0..50).find_map(|_| {
        let mut bytes = vec![0; length];
        let mut at = 0;
        while at + 8 <= length {
            let word = words[random.below(words.len())];
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            at += [4, 8][random.below(2)];
        }
        decodes(&bytes).then_some(bytes)
    })
}

/// Whether a command may rightly wait for ever: for a value in memory, for the client, or for a bulk lane.
fn may_wait(opcode: Opcode, arguments: &[u8]) -> bool {
    let lanes = matches!(
        Request::decode(opcode, arguments).map(|request| request.payload()),
        Ok(Some(Payload::Transfer { .. } | Payload::Image { .. }))
    );
    lanes
        || matches!(opcode, Opcode::host_function | Opcode::copy_from_device)
        || opcode.name().starts_with("cuStreamWaitValue")
}

#[test]
fn every_command_survives_arguments_of_any_value() {
    let server = Server::start();
    let mut random = Random::new(5);
    let mut untried = Vec::new();
    for opcode in Opcode::ALL {
        let (mut session, mut words) = furnished(&server);
        words.extend([
            0,
            0,
            0,
            1,
            2,
            16,
            4096,
            1 << 20,
            1 << 31,
            1 << 40,
            1 << 63,
            u64::MAX,
            u64::MAX - 4095,
        ]);
        let mut tried = 0;
        for _ in 0..COMMANDS {
            if let Some(bytes) = arguments(*opcode, &words, &mut random)
                && !may_wait(*opcode, &bytes)
            {
                session.send(*opcode as u16, &bytes);
                tried += 1;
            }
        }
        if tried < COMMANDS / 2 {
            untried.push(opcode.name());
        }
        let last = session.begin(&calls::jit_report { report: 1 });
        assert!(session.reply(last).is_some(), "the session did not survive {}", opcode.name());
    }
    println!("hardly tried: {untried:?}");
    assert!(untried.len() * 10 < Opcode::ALL.len(), "hardly tried: {untried:?}");
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn commands_that_wait_for_ever_end_with_their_session() {
    let server = Server::start();
    let mut random = Random::new(6);
    for opcode in Opcode::ALL {
        let (mut session, words) = furnished(&server);
        let mut any = false;
        for _ in 0..COMMANDS {
            if let Some(bytes) = arguments(*opcode, &words, &mut random)
                && may_wait(*opcode, &bytes)
            {
                session.send(*opcode as u16, &bytes);
                any = true;
            }
        }
        if !any {
            continue;
        }
        drop(session);
        server.must_have_workers(0);
    }
    server.must_be_well();
}
