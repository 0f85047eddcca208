//! The functions of `libcauseway_comm.so` by which the interposer exchanges words. `mpi/causeway_comm.h` declares
//! and describes them.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::capi::{fail, world};
use crate::collective::mail::Mail;
use crate::world::Mailboxes;

/// Opens the mailboxes of a group, or gives null.
///
/// # Safety
/// There are so many members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_open_mail(
    members: *const u32,
    ranks: u32,
    me: u32,
    mailbox: u32,
    generation: u32,
) -> *mut Mail {
    let (Some(world), Ok(mailbox)) = (world(), u16::try_from(mailbox)) else { return ptr::null_mut() };
    if me >= ranks || mailbox >= Mailboxes::COUNT {
        return ptr::null_mut();
    }
    // SAFETY: as promised.
    let members = unsafe { core::slice::from_raw_parts(members, ranks as usize) };
    let mail = Mail::open(&world, members, me as usize, mailbox, generation);
    mail.map_or(ptr::null_mut(), |mail| Box::into_raw(Box::new(mail)))
}

/// Exchanges words. 1 where all have come, 0 where it is to be called again, -1 where it has failed.
///
/// # Safety
/// The mail is open, and no other thread uses it; both places have room for so many bytes of each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_exchange_mail(
    mail: *mut Mail,
    out: *const c_void,
    into: *mut c_void,
    bytes: u64,
) -> c_int {
    // SAFETY: as promised.
    let mail = unsafe { &mut *mail };
    let Some(all) = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_mul(mail.ranks())) else {
        return fail("so many words cannot be exchanged");
    };
    // SAFETY: as promised.
    let (words, heard) = unsafe {
        (core::slice::from_raw_parts(out.cast(), all), core::slice::from_raw_parts_mut(into.cast(), all))
    };
    match mail.exchange(words, heard, bytes as usize) {
        Ok(are_here) => c_int::from(are_here),
        Err(error) => fail(error),
    }
}

/// Closes it.
///
/// # Safety
/// It is open, or null, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_close_mail(mail: *mut Mail) {
    if !mail.is_null() {
        // SAFETY: as promised; it was made by `causeway_comm_open_mail`.
        drop(unsafe { Box::from_raw(mail) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../../../../../mpi/causeway_comm.h");
        let (count, bytes) = (Mailboxes::COUNT, Mailboxes::MAX_BYTES);
        let line =
            format!("enum {{ CAUSEWAY_COMM_MAILBOXES = {count}, CAUSEWAY_COMM_MAIL_BYTES = {bytes} }};");
        assert!(header.contains(&line), "{line}");
    }
}
