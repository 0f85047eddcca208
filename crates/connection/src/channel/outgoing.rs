//! Send direction of a connection.

use std::io;
use std::os::fd::{AsFd as _, RawFd};

use rustix::net::SendFlags;

use super::socket::{RECORDS_AT_ONCE, Socket};
use crate::record::{Cipher, MAX_RECORD};
use crate::splice::SplicePipe;
use crate::transmit::{io_vector, send_all, send_vectored};

/// From this many bytes on, references to pages cost less than a copy.
const WORTH_REFERRING: usize = 64 << 10;

/// Bytes of a record of messages, sent by itself: the peer opens one while the next is encrypted. A message of
/// 64 KiB arrives in 48 us in two records and in 58 us in one (two threads on loopback, an Intel Xeon with 16
/// cores, 2026-11-29).
const MESSAGE_RECORD: usize = 32 << 10;

/// The direction to the peer.
#[derive(Debug)]
pub struct Outgoing {
    socket: Socket,
    cipher: Option<Cipher>,
    /// Sealed records on their way to the kernel.
    scratch: Vec<u8>,
    /// What steady memory goes through.
    pipe: Option<SplicePipe>,
}

impl Outgoing {
    pub(super) fn new(socket: Socket, cipher: Option<Cipher>) -> Self {
        Self { socket, cipher, scratch: Vec::new(), pipe: None }
    }

    /// From here on bytes go in the clear.
    pub(super) fn disable_encryption(&mut self) {
        self.cipher = None;
    }

    /// What encrypts, for another process that goes on with the connection.
    pub(super) fn into_cipher(self) -> Option<Cipher> {
        self.cipher
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// From here on steady memory is sent without being copied, where the system can and nothing is
    /// encrypted. The descriptors that this takes.
    pub fn send_by_reference(&mut self) -> Option<[RawFd; 2]> {
        if self.cipher.is_none() {
            self.pipe =
                SplicePipe::new().inspect_err(|error| tracing::info!("sending by copying: {error}")).ok();
        }
        self.pipe.as_ref().map(SplicePipe::descriptors)
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { socket, cipher, scratch, .. } = self;
        let Some(cipher) = cipher else {
            return send_all(socket.as_fd(), bytes, SendFlags::empty());
        };
        for record in bytes.chunks(MESSAGE_RECORD) {
            scratch.clear();
            cipher.append(scratch, record.len(), |out| out.extend_from_slice(record));
            send_all(socket.as_fd(), scratch, SendFlags::empty())?;
        }
        Ok(())
    }

    /// Sends `headers` and the `length` bytes at `data`, with one system call where the kernel takes them at
    /// once. On an encrypted connection each header is a record of its own and the data are cut into full
    /// records, which is what [`Incoming::receive_exact_raw`](super::Incoming::receive_exact_raw) counts on.
    ///
    /// # Safety
    /// The memory must be readable, if it is `steady` until the peer has it; other threads may write to it,
    /// and then either value is sent.
    pub unsafe fn send_with_data<const N: usize>(
        &mut self,
        headers: &[[u8; N]],
        data: *const u8,
        length: usize,
        steady: bool,
    ) -> io::Result<()> {
        let Self { socket, cipher, scratch, pipe } = self;
        let Some(cipher) = cipher else {
            let (mut header, mut data, mut length) = (headers.as_flattened(), data, length);
            if steady
                && length >= WORTH_REFERRING
                && let Some(pipe) = pipe
            {
                // SAFETY: the caller has `length` bytes readable at `data`, if they are steady until the peer
                // has them.
                let sent = unsafe { pipe.send(&**socket, header, data, length)? };
                let of_data = sent.saturating_sub(header.len());
                header = &header[sent.min(header.len())..];
                (data, length) = (data.wrapping_add(of_data), length - of_data);
            }
            let mut parts = [io_vector(header.as_ptr(), header.len()), io_vector(data, length)];
            // SAFETY: the headers are a live slice; the caller vouches for the data.
            return unsafe { send_vectored(socket.as_fd(), &mut parts) };
        };
        scratch.clear();
        for header in headers {
            cipher.append(scratch, N, |out| out.extend_from_slice(header));
        }
        let mut sent = 0;
        while sent < length {
            for _ in 0..RECORDS_AT_ONCE {
                let record = (length - sent).min(MAX_RECORD);
                if record == 0 {
                    break;
                }
                cipher.append(scratch, record, |out| {
                    out.reserve(record);
                    // SAFETY: the caller has the source readable; `reserve` made room behind the vector's
                    // end, and exactly the bytes copied become part of it.
                    unsafe {
                        let end = out.as_mut_ptr().add(out.len());
                        core::ptr::copy_nonoverlapping(data.add(sent), end, record);
                        out.set_len(out.len() + record);
                    }
                });
                sent += record;
            }
            send_all(socket.as_fd(), scratch, SendFlags::empty())?;
            scratch.clear();
        }
        if scratch.is_empty() { Ok(()) } else { send_all(socket.as_fd(), scratch, SendFlags::empty()) }
    }
}
