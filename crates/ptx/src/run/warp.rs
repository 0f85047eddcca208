//! What the operations of a warp compute, once all lanes they name have come.

use super::context::{WarpOperation, WarpRequest};

/// Computes what `receivers` (a bit each) get from the lanes in `lanes`, which their mask names; `requests` holds
/// the requests of all that execute the operation together. Usually both are the same lanes.
pub(super) fn warp_results(requests: &[WarpRequest; 32], lanes: u32, receivers: u32) -> [u64; 32] {
    let mut warp_results = [0_u64; 32];
    let first = requests[lanes.trailing_zeros() as usize & 31];
    let values = || lanes_in(lanes).map(|lane| requests[lane].value);
    let words = || values().map(|value| value as u32);
    let common = match first.operation {
        WarpOperation::Synchronise => 0,
        // What they give lies in the requests.
        WarpOperation::MultiplyMatrices | WarpOperation::RearrangeTiles => 0,
        WarpOperation::ShuffleUp
        | WarpOperation::ShuffleDown
        | WarpOperation::ShuffleButterfly
        | WarpOperation::ShuffleIndex => {
            for lane in lanes_in(receivers) {
                warp_results[lane] = shuffled(requests, lane as u32);
            }
            return warp_results;
        }
        WarpOperation::VoteAll => u64::from(values().all(|value| value != 0)),
        WarpOperation::VoteAny => u64::from(values().any(|value| value != 0)),
        WarpOperation::VoteUniform => u64::from(values().all(|value| (value != 0) == (first.value != 0))),
        WarpOperation::Ballot => {
            lanes_in(lanes).filter(|&lane| requests[lane].value != 0).map(|lane| 1 << lane).sum()
        }
        WarpOperation::MatchAny => {
            for lane in lanes_in(receivers) {
                let same = lanes_in(lanes).filter(|&other| requests[other].value == requests[lane].value);
                warp_results[lane] = same.map(|other| 1_u64 << other).sum();
            }
            return warp_results;
        }
        WarpOperation::MatchAll => {
            if values().all(|value| value == first.value) {
                1 << 32 | u64::from(lanes)
            } else {
                0
            }
        }
        WarpOperation::Elect => {
            let leader = lanes.trailing_zeros();
            for lane in lanes_in(receivers) {
                warp_results[lane] = u64::from(leader) | u64::from(lane as u32 == leader) << 32;
            }
            return warp_results;
        }
        WarpOperation::SumUnsigned => u64::from(words().fold(0, u32::wrapping_add)),
        WarpOperation::MinUnsigned => u64::from(words().min().unwrap_or(0)),
        WarpOperation::MaxUnsigned => u64::from(words().max().unwrap_or(0)),
        WarpOperation::MinSigned => words().map(|word| word as i32).min().unwrap_or(0) as u32 as u64,
        WarpOperation::MaxSigned => words().map(|word| word as i32).max().unwrap_or(0) as u32 as u64,
        WarpOperation::And => u64::from(words().fold(u32::MAX, |a, b| a & b)),
        WarpOperation::Or => u64::from(words().fold(0, |a, b| a | b)),
        WarpOperation::Xor => u64::from(words().fold(0, |a, b| a ^ b)),
    };
    for lane in lanes_in(receivers) {
        warp_results[lane] = common;
    }
    warp_results
}

/// The indices of the bits that are set.
pub(super) fn lanes_in(mut lanes: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if lanes == 0 {
            return None;
        }
        let lane = lanes.trailing_zeros();
        lanes &= lanes - 1;
        Some(lane as usize)
    })
}

/// The value that `lane` receives, with bit 32 set when its source lane was in range.
///
/// `clamp` is PTX's operand `c`: the clamp value in bits 0-4 and the segment mask in bits 8-12.
fn shuffled(requests: &[WarpRequest; 32], lane: u32) -> u64 {
    let request = &requests[lane as usize];
    let offset = request.lane & 0x1f;
    let clamp = request.clamp & 0x1f;
    let segment = request.clamp >> 8 & 0x1f;
    let highest = (lane & segment) | (clamp & !segment);
    let lowest = lane & segment;
    let (source, valid) = match request.operation {
        WarpOperation::ShuffleUp => {
            let source = lane.wrapping_sub(offset) as i32;
            (source as u32, source >= highest as i32)
        }
        WarpOperation::ShuffleDown => (lane + offset, lane + offset <= highest),
        WarpOperation::ShuffleButterfly => (lane ^ offset, lane ^ offset <= highest),
        _ => {
            let source = lowest | (offset & !segment);
            (source, source <= highest)
        }
    };
    let source = if valid { source & 31 } else { lane };
    u64::from(requests[source as usize].value as u32) | u64::from(valid) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffle(operation: WarpOperation, lane: u32, clamp: u32) -> [u64; 32] {
        let requests = std::array::from_fn(|index| WarpRequest {
            operation,
            mask: u32::MAX,
            value: 100 + index as u64,
            lane,
            clamp,
        });
        warp_results(&requests, u32::MAX, u32::MAX)
    }

    #[test]
    fn shuffles_stay_inside_their_segment() {
        const VALID: u64 = 1 << 32;
        // As `__shfl_down_sync(.., 4, 8)`: segments of 8 lanes.
        let down = shuffle(WarpOperation::ShuffleDown, 4, (32 - 8) << 8 | 0x1f);
        assert_eq!((down[0], down[3], down[4], down[9]), (VALID | 104, VALID | 107, 104, VALID | 113));
        let up = shuffle(WarpOperation::ShuffleUp, 1, (32 - 8) << 8);
        assert_eq!((up[0], up[1], up[8], up[31]), (100, VALID | 100, 108, VALID | 130));
        let index = shuffle(WarpOperation::ShuffleIndex, 3, (32 - 4) << 8 | 0x1f);
        assert_eq!((index[0], index[7], index[30]), (VALID | 103, VALID | 107, VALID | 131));
        let butterfly = shuffle(WarpOperation::ShuffleButterfly, 16, 0x1f);
        assert_eq!((butterfly[0], butterfly[31]), (VALID | 116, VALID | 115));
    }
}
