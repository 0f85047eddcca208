//! Syndromes of failed completions. The syndromes of a card's completions, which `mlx5.h` names.

use core::ffi::CStr;

/// What a completion's syndrome says; 0 is no error.
pub fn text(syndrome: u32) -> &'static CStr {
    match syndrome {
        0 => c"success",
        0x01 => c"a message was longer than the memory that waited for it, or than the card allows",
        0x02 => c"the queue pair met an inconsistency in a request of its own",
        0x04 => c"a request named memory of this side that is not registered for it, or bytes beyond it",
        0x05 => c"an earlier request of the queue pair had failed, so this one was flushed",
        0x06 => c"a memory window could not be bound",
        0x10 => c"the peer answered something that does not belong here",
        0x11 => c"the peer's message could not be written to the memory that waited for it",
        0x12 => c"the peer cannot carry out such a request",
        0x13 => c"the peer does not allow access to the memory that was named",
        0x14 => c"the peer failed in carrying out a request",
        0x15 => c"the peer did not answer, however often it was asked: it or the path to it is down",
        0x16 => c"the peer took no message, however often it was asked: it had posted no receive",
        0x22 => c"the peer has aborted the request",
        _ => c"the card reports a failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_of_the_header_has_a_text_of_its_own() {
        let header = include_str!("../../../../../device/include/causeway/mlx5.h");
        let (_, rest) = header.split_once("// Why a request has failed.").unwrap();
        let (list, _) = rest.split_once("};").unwrap();
        let numbers: Vec<u32> = list
            .lines()
            .filter_map(|line| line.split_once(" = 0x"))
            .map(|(_, rest)| u32::from_str_radix(rest.split(',').next().unwrap(), 16).unwrap())
            .collect();
        assert_eq!(numbers.len(), 12);
        let unknown = text(0xff);
        assert!(numbers.iter().all(|number| text(*number) != unknown));
    }
}
