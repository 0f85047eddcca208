//! A worker without a GPU, for tests of the broker: what it does depends on the program name that its
//! client gives.
//!
//! `echo` sends every message and transfer back; `refuse` turns the client away; `exit` and `crash` end
//! before the client is answered; `stay` goes on when its client has gone; `stop` is stopped by a signal, and
//! `hang` does not come to the end of its first command.

use std::process::ExitCode;
use std::time::Duration;

use causeway_link::{Destination, Link, LinkError, LinkEvents};
use causeway_server::worker_process::WorkerStart;

struct SendBack(Link);

impl LinkEvents for SendBack {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let link = self.0.clone();
        Some(Destination::buffer(vec![0; total as usize], move |bytes| {
            // A callback must not wait, so the way back has a thread of its own.
            std::thread::spawn(move || link.send_transfer(transfer, &bytes.unwrap()));
        }))
    }

    fn lost(&self, _cause: &LinkError) {}
}

fn main() -> ExitCode {
    let start = match WorkerStart::receive(causeway_server::worker::prepare) {
        Ok(start) => start,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let program = start.hello().program.clone();
    match program.as_str() {
        "refuse" => return start.refuse("no GPU for you"),
        "exit" => return ExitCode::from(42),
        "crash" => std::process::abort(),
        _ => {}
    }
    let mut snapshot = format!("{} {:?}", start.gpu(), start.hello().environment);
    // What it has been started with.
    if let Ok(percentage) = std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
        snapshot += &format!(" {percentage}%");
    }
    let (link, mut receiver, exchange) = start.welcome(snapshot.into_bytes()).unwrap();
    link.start(std::sync::Arc::new(SendBack(link.clone())));
    while let Ok(body) = receiver.recv() {
        match program.as_str() {
            "stop" => rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
                .expect("a process may stop itself"),
            "hang" => exchange.progress().at_work(|| std::thread::sleep(Duration::from_secs(600))),
            _ => {}
        }
        let body = body.to_vec();
        if link.send(|out| out.extend_from_slice(&body)).is_err() {
            break;
        }
    }
    if &*program == "stay" {
        std::thread::sleep(Duration::from_secs(600));
    }
    ExitCode::SUCCESS
}
