//! Library image: which servers have it, and loading on the others.

use super::load::{ImageLifetime, send_image};
use super::servers::Servers;
use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::remote::image::Image;
use crate::remote::image::pending_images::PendingImage;
use crate::remote::session::{self, Session};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Handle, Library};
use causeway_api::sys::CUresult;
use causeway_api::types::JitOptions;

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
