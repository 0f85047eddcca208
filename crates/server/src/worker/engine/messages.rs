//! Messages of the client, frame by frame.

use std::sync::Arc;

use causeway_sync::delays;
use causeway_wire::message::{ClientMessage, Messages};

use super::parts::{Engine, ProtocolError};

/// Handles the messages of one frame; `false` when the client said goodbye.
pub fn handle(engine: &Arc<Engine>, body: &[u8]) -> Result<bool, ProtocolError> {
    for message in Messages::<ClientMessage<'_>>::new(body) {
        match message? {
            ClientMessage::Command(command) => {
                delays::inject();
                engine.command(&command)?;
            }
            ClientMessage::HostDone { token } => engine.host_functions().returned(token),
            ClientMessage::Image { transfer, bytes } => {
                engine.uploads().image_received(engine.session(), transfer, bytes)
            }
            ClientMessage::Goodbye => return Ok(false),
        }
    }
    Ok(true)
}
