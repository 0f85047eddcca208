//! Number of bulk lanes: TCP connections that carry the transfers of a session.

use std::time::Duration;

/// Bulk lanes that a client opens at least unless `CAUSEWAY_LANES` says otherwise. Measured over TCP on a
/// machine with an H200, 1 / 2 / 4 / 8 lanes carry 6.9 / 12.9 / 24.6 / 39.0 GB/s; a lane costs a thread at
/// each end.
pub const DEFAULT_LANES: u32 = 4;

/// The same where there are cores for that many threads.
const LANES_OF_MANY_CORES: u32 = 8;

/// How many lanes a client with so many cores opens at least.
fn min_lanes(cores: usize) -> u32 {
    if cores >= LANES_OF_MANY_CORES as usize { LANES_OF_MANY_CORES } else { DEFAULT_LANES }
}

/// The most lanes a session may have.
pub const MAX_LANES: u32 = causeway_config::table::MAX_LANES as u32;

/// The most lanes that a session opens because its network is long.
pub const MAX_LANES_FOR_DISTANCE: u32 = 16;

/// The round trip that one more lane is opened for. The kernel keeps up to 4 MiB under way on a connection
/// (the third number of `net.ipv4.tcp_wmem`), and fills two thirds of it with data, so that a lane carries
/// 2.7 MiB in each round trip: 2.2 GB/s at this one, and with [`DEFAULT_LANES`] 10 Gbit/s up to 8 ms.
const A_LANE_EACH: Duration = Duration::from_micros(1250);

/// How many lanes keep a network full whose round trip is this long: what is under way must grow with it.
pub fn lanes_by_distance(round_trip: Duration) -> u32 {
    let required = round_trip.as_micros().div_ceil(A_LANE_EACH.as_micros());
    required.min(MAX_LANES_FOR_DISTANCE.into()) as u32
}

/// Whether the length of a network asks for more lanes than every session has.
pub fn is_long(round_trip: Duration) -> bool {
    lanes_by_distance(round_trip) > DEFAULT_LANES
}

/// How many lanes a session opens over a network whose round trip is this long.
pub fn lanes_for(round_trip: Duration, cores: usize) -> u32 {
    lanes_by_distance(round_trip).max(min_lanes(cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_follow_the_length_of_the_network() {
        let lanes = |microseconds| lanes_for(Duration::from_micros(microseconds), 2);
        assert_eq!([0, 50, 5_000].map(lanes), [DEFAULT_LANES; 3]);
        assert_eq!([5_001, 10_000, 20_000, 300_000].map(lanes), [5, 8, 16, 16]);
        assert_eq!(
            [0, 5_000, 5_001].map(|length| is_long(Duration::from_micros(length))),
            [false, false, true]
        );
        assert_eq!(lanes_for(Duration::ZERO, 16), 8);
    }
}
