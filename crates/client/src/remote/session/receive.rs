//! Receive loop of a session: a thread dispatches messages, and waiting callers take replies, too.
//!
//! Output of kernels (`printf`): written to the program's standard output and error.
//!
//! Through its own `stdout` and `stderr`, so that it appears in order with what the program itself prints, as
//! with a GPU of its own. A terminal gets it without what a terminal acts on: the server says what a kernel
//! has printed, and it does not reach the user's terminal.

use core::ffi::c_int;
use std::borrow::Cow;

use causeway_api::calls::Opcode;
use causeway_api::sys::CUresult;
use causeway_link::{Awaited, IdleHook, LinkError, LinkEvents};
use causeway_sync::fork::in_background;
use causeway_sync::{delays, spin};
use causeway_wire::message::{HOST_DONE_TRANSFER, Messages, WorkerMessage};
use causeway_wire::relocation::Relocation;
use causeway_wire::text::Printable;

use crate::log::{error, info};
use crate::model::{completion, transfers};
use crate::process;
use crate::remote::session::Session;
use crate::remote::session::faults::LOST;
use crate::remote::session::replies::Waiting;

/// Hears from the link when it is lost.
pub struct Events(pub &'static Session);

impl LinkEvents for Events {
    fn lost(&self, cause: &LinkError) {
        // When the process ends, the server may be the first to hang up.
        if process::is_ready() {
            self.0.lose(format_args!("the connection to the server is lost: {cause}"));
        }
    }
}

/// The thread stays awake while a call of the program waits.
struct KeepSpinning(&'static Session);

impl IdleHook for KeepSpinning {
    fn is_waited_for(&self) -> bool {
        self.0.replies.are_awaited() || transfers::are_awaited()
    }
}

/// Deals with messages until the link ends. An error of it is reported through [`Events`].
pub fn run(session: &'static Session) {
    session.receiver.receive(&mut KeepSpinning(session), |body| {
        Messages::<WorkerMessage<'_>>::new(body).all(|message| match message {
            Ok(message) => {
                deal_with(session, message);
                true
            }
            Err(cause) => {
                session.lose(format_args!("the server sent a malformed message: {cause}"));
                session.link.close_at_once();
                false
            }
        })
    });
}

fn deal_with(session: &Session, message: WorkerMessage<'_>) {
    delays::inject();
    let _work = in_background();
    match message {
        WorkerMessage::Reply { call, status, payload } => session.replied(call, status, payload),
        WorkerMessage::Failed { opcode, status } => {
            let name = Opcode::from_number(opcode).map_or("an unknown call", Opcode::name);
            info!("{name} failed with error {status}; the next call that waits reports it");
            session.faults.record(CUresult(status));
        }
        WorkerMessage::HostCall { token } => session.callbacks.on_host_call(session.server, token),
        WorkerMessage::Reached { token, status } if token & HOST_DONE_TRANSFER != 0 => {
            session.callbacks.on_host_call_failed(
                session.server,
                token & !HOST_DONE_TRANSFER,
                CUresult(status),
            );
        }
        WorkerMessage::Reached { token, status } => completion::report_received(token, CUresult(status)),
        WorkerMessage::Output { bytes } => print(OutputStream::Standard, bytes),
        WorkerMessage::ErrorOutput { bytes } => print(OutputStream::Error, bytes),
        WorkerMessage::TransferFailed { transfer, status } => {
            session.faults.record(CUresult(status));
            transfers::failed(transfer, CUresult(status));
        }
        WorkerMessage::ImageRequested { transfer } => {
            session.callbacks.on_image_requested(session.server, transfer)
        }
        WorkerMessage::ImageKnown { transfer } => session.callbacks.on_image_known(transfer),
        WorkerMessage::Direct { is_on, text } => session.direct.set(is_on, text),
        WorkerMessage::Moving(relocation) => session.move_to(&relocation),
        WorkerMessage::Relocated => {
            if let Some(target) = session.relocations.confirm() {
                info!("the session is at {target} now");
            }
        }
        WorkerMessage::Fatal { text } => session.lose(format_args!("the server ended the session: {text}")),
    }
}

impl Session {
    /// The worker says that the session goes elsewhere.
    fn move_to(&self, relocation: &Relocation) {
        match self.relocations.begin(&self.target, relocation) {
            Ok(()) => info!("the session moves to {}", Printable::from(relocation.address.as_str())),
            Err(cause) => info!("the session cannot move: {cause}"),
        }
        // Where it cannot, the old server hears of it by that this end comes back.
        self.link.reconnect();
    }

    /// The worker's reply to a call.
    fn replied(&self, call: u32, status: u32, payload: &[u8]) {
        if !self.replies.deliver(call, status, payload) {
            info!("the server replied to call {call}, which has no waiter");
        }
    }

    /// Deals with the replies at the front of a frame; how many bytes they are. Anything else may take
    /// longer, or need what the calling thread holds while it waits.
    fn take_replies(&self, body: &[u8]) -> usize {
        let mut messages = Messages::<WorkerMessage<'_>>::new(body);
        loop {
            let rest = messages.remaining();
            let Some(Ok(WorkerMessage::Reply { call, status, payload })) = messages.next() else {
                return body.len() - rest;
            };
            self.replied(call, status, payload);
        }
    }

    /// Receives until the reply that the calling thread waits for is there, or for as long as it makes sense
    /// to stay awake for one.
    pub(super) fn look_for_reply(&self, waiting: &Waiting<'_>) {
        let spin_time = spin::while_waited_for();
        if spin_time.is_zero() {
            return;
        }
        let inline = self.receiver.receive_inline();
        self.wake_receiver(Awaited::Message);
        spin::until(spin_time, || {
            inline.poll(|body| self.take_replies(body));
            waiting.is_answered()
        });
    }

    /// A thread begins to wait for what the worker will say or send: this one is to be awake by then.
    pub(crate) fn wake_receiver(&self, awaited: Awaited) {
        // Otherwise it would go to sleep again at once.
        if !spin::while_waited_for().is_zero() {
            self.link.wake_receiver(awaited);
        }
    }

    /// Nothing can be done any more: every call that waits, and every later one, fails.
    pub(super) fn lose(&self, why: core::fmt::Arguments<'_>) {
        // Said before any call can fail because of it: a program that ends at its first error must not end
        // before the reason is on its standard error. Who comes second waits here for the first.
        self.end.get_or_init(|| {
            let concerned = match super::all().count() {
                0 | 1 => String::new(),
                _ => format!(" that concerns devices of server {}", self.server + 1),
            };
            error!(
                "{why}. Every further CUDA call{concerned} fails with error {} (device unavailable)",
                LOST.0
            );
            why.to_string()
        });
        self.faults.lose();
        self.replies.fail_all(LOST);
        completion::server_lost(self.server);
        self.callbacks.on_server_lost(self.server);
    }
}

/// Which of the program's streams something is printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// `stdout`.
    Standard,
    /// `stderr`.
    Error,
}

/// Prints what a kernel has printed.
pub fn print(stream: OutputStream, bytes: &[u8]) {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        static stderr: *mut libc::FILE;
        fn fileno(stream: *mut libc::FILE) -> c_int;
    }
    // SAFETY: the C library's streams live as long as the process, and lock themselves.
    unsafe {
        let stream = match stream {
            OutputStream::Standard => stdout,
            OutputStream::Error => stderr,
        };
        let sanitized =
            if libc::isatty(fileno(stream)) == 1 { for_terminal(bytes) } else { Cow::Borrowed(bytes) };
        libc::fwrite(sanitized.as_ptr().cast(), 1, sanitized.len(), stream);
    }
}

/// The same with `?` in the place of each character that a terminal acts on, but for tabs and the ends of lines. What is
/// no UTF-8 is such a character, too, as some terminals act on single bytes from 0x80 on.
fn for_terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    let acts = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if core::str::from_utf8(bytes).is_ok_and(|text| !text.contains(acts)) {
        return Cow::Borrowed(bytes);
    }
    let mut sanitized = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let character = if acts(character) { '?' } else { character };
            sanitized.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        if !chunk.invalid().is_empty() {
            sanitized.push(b'?');
        }
    }
    Cow::Owned(sanitized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_gets_nothing_that_it_acts_on() {
        let plain = "x = 1\t\u{e9}\u{65e5}\r\n".as_bytes();
        assert!(matches!(for_terminal(plain), Cow::Borrowed(same) if same == plain));
        assert_eq!(&*for_terminal(b"a\x1b]0;title\x07b\x08\x00\n"), b"a?]0;title?b??\n");
        // The control sequence introducer, as a character and as a byte, and cut in two by the end of a message.
        assert_eq!(&*for_terminal("\u{9b}31m".as_bytes()), b"?31m");
        assert_eq!(&*for_terminal(b"\x9b31m"), b"?31m");
        assert_eq!(&*for_terminal(b"\xc2"), b"?");
    }
}
