//! Sweep: the settings that are compared with each other.
//!
//! The comparisons are those of C. Reaño and F. Silla, "Tuning Remote GPU Virtualization for InfiniBand
//! Networks" (The Journal of Supercomputing, 2016): 1 to 4 queue pairs over which each message is split, the
//! path MTU with one and with two of them, the capacity of their queues, and what queue pairs and capacity
//! gain together.

use core::fmt;

use clap::ValueEnum;
use serde::Serialize;

use crate::case::{Quantity, Setting};

/// What differs between the settings of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Varied {
    /// Nothing: there is one setting.
    #[value(name = "default")]
    Nothing,
    /// How many queue pairs there are.
    QueuePairs,
    /// How many requests each holds.
    Capacity,
    /// How long packets are.
    Mtu,
    /// The same with two queue pairs.
    MtuOfTwo,
    /// Queue pairs and capacity together, from the least of both to the best published.
    Both,
}

impl Varied {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Nothing, Self::QueuePairs, Self::Capacity, Self::Mtu, Self::MtuOfTwo, Self::Both];

    /// Whether the sweep can change a quantity: one message at a time needs one queue pair and no depth.
    pub fn concerns(self, quantity: Quantity) -> bool {
        quantity == Quantity::Bandwidth || matches!(self, Self::Nothing | Self::Mtu)
    }
}

impl fmt::Display for Varied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "the default setting",
            Self::QueuePairs => "queue pairs",
            Self::Capacity => "queue capacity",
            Self::Mtu => "path MTU",
            Self::MtuOfTwo => "path MTU with two queue pairs",
            Self::Both => "queue pairs and capacity",
        })
    }
}

/// Settings that are compared with one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sweep {
    /// What differs.
    pub varied: Varied,
    /// All settings, in the order of what differs.
    pub settings: Vec<Setting>,
    /// The index of the one that gains are relative to.
    pub base: usize,
}

impl Sweep {
    /// The settings that are compared with the base, each with its index.
    pub fn others(&self) -> impl Iterator<Item = (usize, Setting)> {
        self.settings.iter().copied().enumerate().filter(|(index, _)| *index != self.base)
    }

    /// What the settings are called among each other.
    pub fn names(&self) -> Vec<String> {
        let name = |setting: &Setting| match self.varied {
            Varied::Nothing => setting.to_string(),
            Varied::QueuePairs if setting.queue_pairs == 1 => "1 queue pair".to_owned(),
            Varied::QueuePairs => format!("{} queue pairs", setting.queue_pairs),
            Varied::Capacity => format!("capacity {}", setting.capacity),
            Varied::Mtu | Varied::MtuOfTwo => format!("MTU {}", setting.mtu),
            Varied::Both => format!("{} x {}", setting.queue_pairs, setting.capacity),
        };
        self.settings.iter().map(name).collect()
    }
}

/// The capacity beyond which the paper found no gain.
pub const BEST_CAPACITY: u32 = 128;

/// The number of queue pairs beyond which the paper found no gain.
pub const BEST_QUEUE_PAIRS: u32 = 2;

/// A sweep on a path whose packets carry at most `max_mtu` bytes. All but what is varied is as in the
/// default: one queue pair, the best published capacity, the path's own MTU.
pub fn sweep(varied: Varied, max_mtu: u32) -> Sweep {
    let default = Setting { queue_pairs: 1, capacity: BEST_CAPACITY, mtu: max_mtu };
    let settings: Vec<Setting> = match varied {
        Varied::Nothing => vec![default],
        Varied::QueuePairs => [1, 2, 3, 4].map(|queue_pairs| Setting { queue_pairs, ..default }).to_vec(),
        Varied::Capacity => (1..=8).map(|power| Setting { capacity: 1 << power, ..default }).collect(),
        Varied::Mtu | Varied::MtuOfTwo => {
            let queue_pairs = if varied == Varied::Mtu { 1 } else { 2 };
            let mtus = Setting::MTUS.into_iter().filter(|mtu| *mtu <= max_mtu);
            mtus.map(|mtu| Setting { queue_pairs, mtu, ..default }).collect()
        }
        Varied::Both => {
            vec![Setting { capacity: 2, ..default }, Setting { queue_pairs: BEST_QUEUE_PAIRS, ..default }]
        }
    };
    // A card's own MTU is its default, and the largest that the path carries.
    let base =
        if matches!(varied, Varied::Mtu | Varied::MtuOfTwo) { settings.len().saturating_sub(1) } else { 0 };
    Sweep { varied, settings, base }
}

/// Every setting of the sweeps that concern a quantity once, in the order in which they first appear.
pub fn settings(sweeps: &[Sweep], quantity: Quantity) -> Vec<Setting> {
    let mut all = Vec::new();
    let concerned = sweeps.iter().filter(|sweep| sweep.varied.concerns(quantity));
    for setting in concerned.flat_map(|sweep| &sweep.settings) {
        if !all.contains(setting) {
            all.push(*setting);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweeps_are_those_of_the_paper() {
        let all = Varied::ALL.map(|varied| sweep(varied, 4096));
        assert_eq!(all.each_ref().map(|sweep| sweep.settings.len()), [1, 4, 8, 5, 5, 2]);
        let capacities: Vec<_> = all[2].settings.iter().map(|setting| setting.capacity).collect();
        assert_eq!(capacities, [2, 4, 8, 16, 32, 64, 128, 256]);
        assert!(all[4].settings.iter().all(|setting| setting.queue_pairs == 2));
        let [min, best] = all[5].settings[..] else { panic!("two settings") };
        assert_eq!((min.queue_pairs, min.capacity), (1, 2));
        assert_eq!((best.queue_pairs, best.capacity), (2, 128));
        assert!(all.iter().flat_map(|sweep| &sweep.settings).all(|setting| setting.is_sane()));
    }

    #[test]
    fn settings_that_sweeps_share_are_measured_once() {
        let all = Varied::ALL.map(|varied| sweep(varied, 4096));
        // The default is in four of them, (1, 2) in two, and (2, 128) in three.
        assert_eq!(settings(&all, Quantity::Bandwidth).len(), 1 + 3 + 7 + 4 + 4);
        assert_eq!(settings(&all, Quantity::Latency).len(), 5);
    }

    #[test]
    fn a_path_has_no_mtu_above_its_own_and_is_compared_with_it() {
        let small = sweep(Varied::Mtu, 1024);
        assert_eq!(small.settings.iter().map(|setting| setting.mtu).collect::<Vec<_>>(), [256, 512, 1024]);
        assert_eq!(small.settings[small.base].mtu, 1024);
    }
}
