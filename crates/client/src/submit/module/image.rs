//! Images of modules and libraries: their load, the lifetime of their bytes, and which servers have one.

use std::sync::atomic::{AtomicU32, Ordering};

use causeway_api::calls;
use causeway_api::handle::{Handle, Library};
use causeway_api::sys::CUresult;
use causeway_api::types::{JitOptions, Payload};

use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::remote::image::pending_images::{self, PendingImage};
use crate::remote::image::{self, Image};
use crate::remote::mirrored;
use crate::remote::session::{self, Session};
use crate::submit::send;

/// The image of a library, on servers and here.
pub(super) struct LibraryImage {
    handle: Handle<Library>,
    /// The servers that have it.
    servers: Servers,
    /// Address and length of its image, when the program leaves it where it is until the library is unloaded.
    preserved: Option<(usize, usize)>,
    /// How it is compiled.
    options: JitOptions,
    /// The pending images of its image, when the program leaves the bytes as they are until the library is
    /// unloaded.
    pending: Mutex<rank::LibraryImages, Vec<PendingImage>>,
}

impl LibraryImage {
    /// Loads a library on the server of the current context; on the others, too, unless its bytes stay where
    /// they are.
    pub(super) fn load(
        library: Handle<Library>,
        image: &Image<'_>,
        lifetime: ImageLifetime,
        options: &JitOptions,
    ) -> Result<Self, CUresult> {
        let owner = session::current()?;
        let pending = load_on(owner, library, image, lifetime, options)?;
        let loaded = Self {
            handle: library,
            servers: Servers::only(owner.server()),
            preserved: match (lifetime, image) {
                (ImageLifetime::UntilUnload, Image::Single(bytes)) => {
                    Some((bytes.as_ptr() as usize, bytes.len()))
                }
                _ => None,
            },
            options: JitOptions { report: 0, ..options.clone() },
            pending: Mutex::new(pending.into_iter().collect()),
        };
        if loaded.preserved.is_none() {
            for session in session::all().filter(|session| !loaded.is_on(session.server())) {
                // A server that cannot have it says so when the library is used there.
                let _ = loaded.load_on(session, image, ImageLifetime::Call);
            }
        }
        Ok(loaded)
    }

    /// Whether a server has the library.
    pub(super) fn is_on(&self, server: usize) -> bool {
        self.servers.contain(server)
    }

    /// Waits until no server asks for bytes of the image any more.
    pub(super) fn wait_for_pending(&self) {
        self.pending.lock().drain(..).for_each(|pending| pending.wait());
    }

    /// Makes sure that a server has the library.
    pub(super) fn require_on(&self, server: usize) -> Result<(), CUresult> {
        if self.servers.contain(server) {
            return Ok(());
        }
        let (address, length) = self.preserved.ok_or(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)?;
        // SAFETY: the program has promised that its image stays as it is until the library is unloaded.
        let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, length) };
        self.load_on(session::with(server)?, &Image::Single(bytes), ImageLifetime::UntilUnload)
    }

    fn load_on(&self, session: &Session, image: &Image<'_>, lifetime: ImageLifetime) -> Result<(), CUresult> {
        let mut pending = self.pending.lock();
        // Another thread may have been faster.
        if !self.servers.contain(session.server()) {
            pending.extend(load_on(session, self.handle, image, lifetime, &self.options)?);
            self.servers.add(session.server());
        }
        Ok(())
    }
}

/// Loads a library on one server; gives the pending image of its image if the bytes must stay beyond the
/// call.
fn load_on(
    session: &Session,
    library: Handle<Library>,
    image: &Image<'_>,
    lifetime: ImageLifetime,
    options: &JitOptions,
) -> Result<Option<PendingImage>, CUresult> {
    let context = context::anywhere_on(session.server());
    send_image(session, image, lifetime, options, |payload, posted| {
        let form = image.form().number();
        let request = calls::library_load { library, form, options: options.clone(), image: payload };
        if posted { send::post_in(context, &request) } else { send::call_in(context, &request) }
    })
}

/// How long the bytes of an image stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageLifetime {
    /// They may be gone when the call returns.
    Call,
    /// Until the program unloads what was made of them (`CU_LIBRARY_BINARY_IS_PRESERVED`).
    UntilUnload,
}

/// Offers an image to a server and lets `send` send the command that loads it, posted or waiting. The load is
/// posted when its outcome is certain and the program does not ask what the compiler said. Returns the
/// pending image if the bytes must stay beyond the call.
pub(super) fn send_image(
    session: &Session,
    image: &Image<'_>,
    lifetime: ImageLifetime,
    options: &JitOptions,
    send: impl FnOnce(Payload<'_>, bool) -> Result<(), CUresult>,
) -> Result<Option<PendingImage>, CUresult> {
    /// Copying a larger image costs more than waiting for the server's word that it has it.
    const MAX_COPIED_BYTES: usize = 1 << 20;
    if !image.is_of_file() {
        // Code that was made at run time may hold addresses.
        mirrored::note_unknown();
    }
    let posted = options.report == 0 && image::all_devices(session, image);
    let stays = lifetime == ImageLifetime::UntilUnload && matches!(image, Image::Single(_));
    let is_copied = posted && !stays && image.bytes().len() <= MAX_COPIED_BYTES;
    let server = session.server();
    let offered = if is_copied {
        pending_images::copy_of(server, image)
    } else {
        pending_images::refer_to(server, image)
    };
    let Ok(pending) = offered else {
        // Nobody could send it when the server asks: so it goes along.
        let payload = pending_images::send_inline(session, image.bytes())?;
        return send(payload, posted).map(|()| None);
    };
    let sent = send(pending.payload(), posted);
    if sent.is_err() || !posted {
        pending.withdraw();
        return sent.map(|()| None);
    }
    if stays {
        return Ok(Some(pending));
    }
    if !is_copied {
        pending.wait();
    }
    Ok(None)
}

/// Some of the program's servers.
#[derive(Default)]
pub(super) struct Servers(AtomicU32);

impl Servers {
    /// One of them.
    pub(super) fn only(server: usize) -> Self {
        Self(AtomicU32::new(1 << server))
    }

    /// Whether a server is among them.
    #[inline]
    pub(super) fn contain(&self, server: usize) -> bool {
        self.0.load(Ordering::Acquire) & 1 << server != 0
    }

    /// Adds a server.
    pub(super) fn add(&self, server: usize) {
        self.0.fetch_or(1 << server, Ordering::AcqRel);
    }
}
