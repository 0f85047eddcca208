//! Merging of adjacent transfers of a batch. Pure.

use super::layout::MAX_REQUEST_BYTES;
use super::request::Request;

/// Joins transfers that go the same way and whose bytes lie one behind the other at both ends. Requests that
/// are under way together have no order among each other, so a transfer may join one that is not the last.
/// What `packed` held before is gone; its room is used again.
pub fn pack(transfers: impl IntoIterator<Item = Request>, packed: &mut Vec<Request>) {
    packed.clear();
    for next in transfers {
        let joined = packed.last_mut().is_some_and(|last| join(last, &next));
        if !joined {
            packed.push(next);
        }
    }
}

/// Makes `first` both, if they are neighbours.
fn join(first: &mut Request, next: &Request) -> bool {
    let Request::Transfer { is_get, there, local, local_offset, bytes } = first else { return false };
    let Request::Transfer { is_get: get, there: to, local: from, local_offset: offset, bytes: more } = next
    else {
        return false;
    };
    let is_neighbour = *is_get == *get
        && (there.peer, there.window, *local) == (to.peer, to.window, *from)
        && there.offset + *bytes == to.offset
        && *local_offset + *bytes == *offset
        && *bytes + *more <= MAX_REQUEST_BYTES;
    if is_neighbour {
        *bytes += *more;
    }
    is_neighbour
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::request::RemoteRange;
    use super::*;

    fn put(peer: u32, offset: u64, local_offset: u64, bytes: u64) -> Request {
        let there = RemoteRange { peer, window: 2, offset };
        Request::Transfer { is_get: false, there, local: 3, local_offset, bytes }
    }

    fn pack(transfers: impl IntoIterator<Item = Request>) -> Vec<Request> {
        let mut packed = vec![put(9, 0, 0, 1)];
        super::pack(transfers, &mut packed);
        packed
    }

    #[test]
    fn neighbours_become_one() {
        let packed = pack([put(1, 0, 64, 8), put(1, 8, 72, 8), put(1, 16, 80, 100), put(2, 116, 180, 4)]);
        assert_eq!(packed, [put(1, 0, 64, 116), put(2, 116, 180, 4)]);
        // Neighbours at one end alone are two.
        assert_eq!(pack([put(1, 0, 64, 8), put(1, 8, 80, 8)]).len(), 2);
        assert_eq!(
            pack([put(1, 0, 0, MAX_REQUEST_BYTES), put(1, MAX_REQUEST_BYTES, MAX_REQUEST_BYTES, 1)]).len(),
            2
        );
    }

    fn apply(requests: &[Request], memory: &mut [[u8; 64]; 4]) {
        for request in requests {
            let Request::Transfer { is_get, there, local_offset, bytes, .. } = *request else { continue };
            for at in 0..bytes {
                let (there_at, here_at) = ((there.offset + at) as usize, (local_offset + at) as usize);
                if is_get {
                    memory[3][here_at] = memory[there.peer as usize][there_at];
                } else {
                    memory[there.peer as usize][there_at] = memory[3][here_at];
                }
            }
        }
    }

    proptest! {
        #[test]
        fn packed_transfers_do_the_same(
            parts in proptest::collection::vec((0..3_u32, 0..3_u64, 0..4_u64, any::<bool>()), 0..12),
        ) {
            // Runs of neighbours and breaks between them.
            let (mut offset, mut requests) = (0, Vec::new());
            for (peer, gap, bytes, is_get) in parts {
                let there = RemoteRange { peer, window: 2, offset: offset + gap };
                requests.push(Request::Transfer { is_get, there, local: 3, local_offset: offset, bytes });
                offset += bytes + gap;
            }
            let of_rank = |rank| core::array::from_fn(|at| (rank * 64 + at) as u8);
            let start: [[u8; 64]; 4] = core::array::from_fn(of_rank);
            let (mut one, mut other) = (start, start);
            apply(&requests, &mut one);
            apply(&pack(requests), &mut other);
            prop_assert_eq!(one, other);
        }
    }
}
