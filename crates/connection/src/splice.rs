//! Zero-copy sending with `vmsplice` and `splice`.
//!
//! A pipe takes references to the pages of memory, and the socket takes them from the pipe. So nothing is
//! copied when bytes are sent: a network card reads them where they are, and where both ends are on one
//! machine the receiver's copy does. The memory must therefore stay as it is until the peer has the bytes. On
//! a virtual machine with an H200 eight lanes carried 27 GB/s of memory that is in no cache when it was
//! copied, and 30 to 36 this way (2026-11-22).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};

use memmap2::MmapMut;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::transmit::{interrupted_or_failed, io_vector};
use causeway_sync::descriptors::above_stdio;
use causeway_sync::threads;

/// Bytes that a pipe holds: a chunk and its header, as a rule, so that two system calls send them. With 256
/// KiB, and headers that were copied by a call of their own, 16 MiB to a device took 3 to 4 % longer (a
/// virtual machine with an H200, 2026-11-24). A user may have 64 MiB of pipes.
const SPLICE_CAPACITY: usize = 512 << 10;

/// What a user gets who has many pipes, before all further ones have 64 KiB.
const SPLICE_FALLBACK_CAPACITY: usize = 256 << 10;

/// Bytes of memory for headers at a time.
const HEADERS: usize = 64 << 10;

/// A pipe between memory and a socket, empty between two uses.
#[derive(Debug)]
pub(super) struct SplicePipe {
    end: OwnedFd,
    start: OwnedFd,
    headers: Headers,
}

/// Memory for headers. The kernel reads one until the peer has it, and does not say when that is: so each
/// place is written once, and memory that is full is unmapped, which leaves its pages to the kernel for as
/// long as it needs them.
#[derive(Debug)]
struct Headers {
    memory: MmapMut,
    used: usize,
}

impl Headers {
    fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { memory: MmapMut::map_anon(bytes)?, used: 0 })
    }

    /// A copy of `header` that stays as it is.
    fn keep(&mut self, header: &[u8]) -> io::Result<&[u8]> {
        if self.memory.len() - self.used < header.len() {
            *self = Self::new(header.len().max(HEADERS))?;
        }
        let range = self.used..self.used + header.len();
        self.used = range.end;
        let prefix = &mut self.memory[range];
        prefix.copy_from_slice(header);
        Ok(prefix)
    }
}

impl SplicePipe {
    pub fn new() -> io::Result<Self> {
        let (end, start) = pipe_with(PipeFlags::CLOEXEC)?;
        let (end, start) = (above_stdio(end)?, above_stdio(start)?);
        // Less serves as well, with more steps.
        let _ = fcntl_setpipe_size(&start, SPLICE_CAPACITY)
            .or_else(|_| fcntl_setpipe_size(&start, SPLICE_FALLBACK_CAPACITY));
        Ok(Self { end, start, headers: Headers::new(HEADERS)? })
    }

    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.end.as_raw_fd(), self.start.as_raw_fd()]
    }

    /// Sends `header` and the `length` bytes at `data`, and returns how many bytes of both: not all where the
    /// kernel gives no references to the data, as to memory of a device. After an error the pipe is of no use
    /// any more, as the connection is.
    ///
    /// # Safety
    /// The data must be readable, and stay so until the peer has them.
    pub unsafe fn send(
        &mut self,
        socket: impl AsFd,
        header: &[u8],
        data: *const u8,
        length: usize,
    ) -> io::Result<usize> {
        let Self { end, start, headers } = self;
        let header = headers.keep(header)?;
        let total = header.len() + length;
        // A splice has no MSG_NOSIGNAL.
        threads::without_sigpipe(|| {
            let mut sent = 0;
            while sent < total {
                let header = &header[sent.min(header.len())..];
                let of_data = sent.saturating_sub(total - length);
                let rest = io_vector(data.wrapping_add(of_data), (length - of_data).min(SPLICE_CAPACITY));
                // SAFETY: what was kept of headers is never written again; the caller vouches for the data.
                match unsafe { refer(start, [io_vector(header.as_ptr(), header.len()), rest]) } {
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        pass(end, &socket, count, sent + count < total)?;
                        sent += count;
                    }
                }
            }
            Ok(sent)
        })
    }
}

/// Puts references to as much of the memory into a pipe as it takes.
///
/// # Safety
/// The parts must be readable, and stay so until the peer has the bytes.
unsafe fn refer(pipe: &OwnedFd, parts: [libc::iovec; 2]) -> io::Result<usize> {
    // The kernel takes a first part of no bytes for the end.
    let parts = if parts[0].iov_len == 0 { &parts[1..] } else { &parts[..] };
    loop {
        // SAFETY: the vectors live as long as the call; the caller vouches for what they point at.
        let count = unsafe { libc::vmsplice(pipe.as_raw_fd(), parts.as_ptr(), parts.len(), 0) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => interrupted_or_failed()?,
        }
    }
}

/// Passes `length` bytes from a pipe to a socket.
fn pass(pipe: &OwnedFd, socket: impl AsFd, mut length: usize, more: bool) -> io::Result<()> {
    let flags = if more { SpliceFlags::MORE } else { SpliceFlags::empty() };
    while length > 0 {
        match splice(pipe, None, &socket, None, length, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => length -= count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn read(mut from: TcpStream, length: usize) -> Vec<u8> {
        let mut into = vec![0; length];
        from.read_exact(&mut into).unwrap();
        into
    }

    #[test]
    fn bytes_of_any_place_and_length_come_as_they_are() {
        let (near, mut far) = pair();
        let mut pipe = SplicePipe::new().unwrap();
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
        let places = [
            (0, 1),
            (1, 4096),
            (5, SPLICE_CAPACITY + 1),
            (4095, 2 * SPLICE_CAPACITY),
            (3, 2_999_990),
            (7, 0),
        ];
        for ((start, length), header) in places.into_iter().zip([0, 32, 1, 0, 3 * HEADERS, 5]) {
            let (header, data) = (&bytes[..header], &bytes[start..start + length]);
            let expected = [header, data].concat();
            let reader = std::thread::spawn({
                let (far, length) = (far.try_clone().unwrap(), expected.len());
                move || read(far, length)
            });
            // SAFETY: `bytes` outlives the test.
            let sent = unsafe { pipe.send(&near, header, data.as_ptr(), length) };
            assert_eq!((sent.unwrap(), reader.join().unwrap() == expected), (expected.len(), true));
        }
        drop(near);
        assert_eq!(far.read(&mut [0]).unwrap(), 0, "nothing came twice");
    }

    #[test]
    fn headers_that_are_on_their_way_stay_as_they_are() {
        const COUNT: usize = 3 * HEADERS / 32;
        let (near, far) = pair();
        let mut pipe = SplicePipe::new().unwrap();
        let data = [0x55; 64];
        let expected: Vec<u8> =
            (0..COUNT).flat_map(|number| [[number as u8; 16], [(number >> 8) as u8; 16]].concat()).collect();
        let sender = std::thread::spawn({
            let expected = expected.clone();
            move || {
                for header in expected.chunks(32) {
                    // SAFETY: `data` lives until this thread has been joined, when all has come.
                    assert_eq!(unsafe { pipe.send(&near, header, data.as_ptr(), 64) }.unwrap(), 96);
                }
            }
        });
        // As much as the connection takes is on its way then.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let came = read(far, COUNT * 96);
        sender.join().unwrap();
        assert!(came.chunks(96).zip(expected.chunks(32)).all(|(came, header)| came[..32] == *header));
    }

    #[test]
    fn of_memory_that_is_none_the_header_alone_is_sent() {
        let (near, far) = pair();
        let mut pipe = SplicePipe::new().unwrap();
        // SAFETY: the kernel refuses the address.
        let sent = unsafe { pipe.send(&near, b"header", core::ptr::without_provenance(8), 4096) };
        assert_eq!(sent.unwrap(), 6);
        drop(near);
        assert_eq!(read(far, 6), b"header");
    }

    #[test]
    fn a_connection_that_has_ended_is_an_error_and_no_signal() {
        let (near, far) = pair();
        drop(far);
        let mut pipe = SplicePipe::new().unwrap();
        let bytes = vec![1; SPLICE_CAPACITY];
        // Rust's own start-up code ignores SIGPIPE, which would hide it.
        // SAFETY: sets the disposition that programs have by default.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        // SAFETY: `bytes` outlives the calls.
        let failed =
            (0..100).any(|_| unsafe { pipe.send(&near, &[], bytes.as_ptr(), SPLICE_CAPACITY) }.is_err());
        assert!(failed);
    }
}
