//! What is the client told?

use super::{Engine, Head};
use crate::worker::status;
use causeway_gpu::CuResult;
use causeway_wire::codec::Encode;
use causeway_wire::message::{WorkerMessage, begin_reply};

impl Engine {
    /// Tells the client whether network cards reach the devices' memory.
    pub(in crate::worker) fn tell_of_direct(&self) {
        let (is_on, text) = match &self.direct {
            Ok(direct) => {
                let text = direct.explain();
                tracing::info!("copies of this session: {text}");
                (true, text)
            }
            Err(why) => (false, why.clone()),
        };
        let message = WorkerMessage::Direct { is_on, text: text.into() };
        // A lost link is noticed by the receiving thread.
        let _ = self.link.append(|out| message.encode(out));
    }

    /// Answers a call, or reports the failure of a posted one.
    pub(in crate::worker) fn answer(&self, head: Head, outcome: CuResult<()>, payload: &[u8]) {
        let status = status(&outcome);
        // A lost link is noticed by the receiving thread.
        let _ = match (head.call, outcome) {
            (0, Ok(())) => return,
            (0, Err(_)) => {
                tracing::debug!(command = head.opcode.name(), status, "a posted call failed");
                let opcode = head.opcode as u16;
                self.link.append(|out| WorkerMessage::Failed { opcode, status }.encode(out))
            }
            (call, _) => self.link.send(|out| {
                let open = begin_reply(out, call, status);
                out.extend_from_slice(payload);
                open.finish(out);
            }),
        };
    }

    /// Answers a call with success and what `encode` appends.
    pub(in crate::worker) fn answer_with(&self, head: Head, encode: impl FnOnce(&mut Vec<u8>)) {
        let _ = self.link.send(|out| {
            let open = begin_reply(out, head.call, 0);
            encode(out);
            open.finish(out);
        });
    }
}
