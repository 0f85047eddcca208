//! Commands as a client sends them.

use causeway_link::Receiver;
use causeway_wire::message::{ClientMessage, CommandHead, Messages, begin_command};

pub fn command(call: u32, thread: u32, payload: &[u8]) -> impl FnOnce(&mut Vec<u8>) + '_ {
    move |out| {
        let open = begin_command(out, &CommandHead { call, thread, context: 0, opcode: 1 });
        out.extend_from_slice(payload);
        open.finish(out);
    }
}

/// Receives until `Goodbye`; the thread and call number of every command, in order.
pub fn receive_commands(receiver: &mut Receiver) -> Vec<(u32, u32)> {
    let mut commands = Vec::new();
    loop {
        for message in Messages::<ClientMessage>::new(receiver.recv().unwrap()) {
            match message.unwrap() {
                ClientMessage::Command(command) => commands.push((command.thread, command.call)),
                ClientMessage::Goodbye => return commands,
                ClientMessage::HostDone { .. } | ClientMessage::Image { .. } => {
                    panic!("nobody sends this here")
                }
            }
        }
    }
}
