//! What should a link over verbs reach? A model on paper, for `docs/src/reference/verbs-model.md`, whose
//! tables are printed from here.
//!
//! A message passes the processor that posts it (and copies it into staging memory), the card's engine for
//! its queue pair, PCI Express and the wire. With enough messages under way the slowest of these sets the
//! rate; with few, their sum and the round trip do. Times are in seconds, sizes in bytes, rates in bytes a
//! second.

/// A network card in its slot, with the machine around it. Where a number comes from stands in the document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Card {
    /// Its name.
    pub name: &'static str,
    /// Bytes a second on the wire, headers included, line coding not.
    pub wire: f64,
    /// Lanes of PCI Express.
    pub lanes: f64,
    /// Bits a second of a lane, line coding not included.
    pub lane: f64,
    /// Messages a second that the card can carry, all queue pairs together.
    pub messages: f64,
    /// From posting a short message to its completion.
    pub round_trip: f64,
    /// What a queue pair's engine needs between packets, in which another queue pair can send.
    pub gap: f64,
    /// Bytes a second of one thread's copies into staging memory.
    pub copy: f64,
}

const GIGABIT: f64 = 1e9 / 8.0;

/// Connect-IB, which the model takes for a ConnectX-3 with twice its lanes.
const CONNECT_IB: Card = Card {
    name: "Connect-IB, FDR, PCIe 3.0 x16",
    wire: 56.25 * 64.0 / 66.0 * GIGABIT,
    lanes: 16.0,
    lane: 8e9 * 128.0 / 130.0,
    messages: 90e6,
    round_trip: 1.8e-6,
    gap: 30e-9,
    copy: 11e9,
};

/// The published cards and a current one.
pub const CARDS: [Card; 4] = [
    Card { name: "ConnectX-3, FDR, PCIe 3.0 x8", lanes: 8.0, ..CONNECT_IB },
    CONNECT_IB,
    Card {
        name: "ConnectX-4, EDR, PCIe 3.0 x16",
        wire: 4.0 * 25.78125 * 64.0 / 66.0 * GIGABIT,
        lanes: 16.0,
        lane: 8e9 * 128.0 / 130.0,
        messages: 150e6,
        round_trip: 1.7e-6,
        gap: 40e-9,
        copy: 12e9,
    },
    Card {
        name: "ConnectX-7, NDR, PCIe 5.0 x16",
        wire: 400.0 * GIGABIT,
        lanes: 16.0,
        lane: 32e9 * 128.0 / 130.0,
        messages: 150e6,
        round_trip: 1.5e-6,
        gap: 35e-9,
        copy: 11.5e9,
    },
];

/// How a link uses a card.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Queue pairs.
    pub queue_pairs: f64,
    /// Messages that may be under way.
    pub capacity: f64,
    /// Bytes of a packet's content.
    pub mtu: f64,
    /// Threads that copy into staging memory; 0 where the card reads the program's memory itself.
    pub copiers: f64,
}

/// How room in a queue becomes free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Each completion makes room for one message, as in `causeway-transport-verbs`.
    Sliding,
    /// The queue is filled, and is filled again when all of it is done.
    Drained,
}

/// Headers and check sums of a packet of a reliable connection: local route 8, transport 12, invariant and
/// variant check sums 4 and 2 (InfiniBand Architecture Specification, volume 1).
const PACKET_OVERHEAD: f64 = 26.0;
/// Content of a PCI Express packet, and what is around it: framing, sequence, header, check sum.
const PCIE_PAYLOAD: f64 = 256.0;
const PCIE_OVERHEAD: f64 = 26.0;
/// The processor's time for one request: to build it, its share of a doorbell, its share of a completion.
const POST: f64 = 0.2e-6;

impl Card {
    fn packets(bytes: f64, mtu: f64) -> f64 {
        (bytes / mtu).ceil().max(1.0)
    }

    /// Bytes a second of data through PCI Express.
    pub fn pcie(&self) -> f64 {
        self.lanes * self.lane / 8.0 * PCIE_PAYLOAD / (PCIE_PAYLOAD + PCIE_OVERHEAD)
    }

    /// Seconds that the card needs for a message when the next one waits already.
    fn card_time(&self, bytes: f64, setting: &Setting) -> f64 {
        let packets = Self::packets(bytes, setting.mtu);
        let wire = (bytes + packets * PACKET_OVERHEAD) / self.wire;
        let engine = (wire + packets * self.gap) / setting.queue_pairs;
        wire.max(engine).max(bytes / self.pcie()).max(1.0 / self.messages)
    }

    fn copy_time(&self, bytes: f64, setting: &Setting) -> f64 {
        if setting.copiers == 0.0 { 0.0 } else { bytes / (self.copy * setting.copiers) }
    }

    /// Seconds a message, one after the other.
    pub fn time(&self, bytes: f64, setting: &Setting, window: Window) -> f64 {
        let (card, copy) = (self.card_time(bytes, setting), self.copy_time(bytes, setting));
        let slowest = card.max(POST + copy);
        let alone = POST + copy + card + self.round_trip;
        match window {
            Window::Sliding => slowest.max(alone / setting.capacity),
            // The first of a filling passes alone, the others behind it as fast as the slowest part lets
            // them.
            Window::Drained => (alone + (setting.capacity - 1.0) * slowest) / setting.capacity,
        }
    }

    /// Bytes a second of messages of this size.
    pub fn rate(&self, bytes: f64, setting: &Setting, window: Window) -> f64 {
        bytes / self.time(bytes, setting, window)
    }

    /// Messages under way from which on more of them give nothing: what a message takes alone, over what it
    /// takes in a row.
    pub fn needed_capacity(&self, bytes: f64, setting: &Setting) -> f64 {
        let (card, copy) = (self.card_time(bytes, setting), self.copy_time(bytes, setting));
        ((POST + copy + card + self.round_trip) / card.max(POST + copy)).ceil()
    }

    /// Queue pairs from which on more give nothing for long messages.
    pub fn needed_queue_pairs(&self, mtu: f64) -> f64 {
        let wire = (mtu + PACKET_OVERHEAD) / self.wire;
        ((wire + self.gap) / wire.max(mtu / self.pcie())).ceil()
    }

    /// The size of a piece from which on what is spent once a piece (posting it, and the message that
    /// announces it) is less than this share of its time.
    pub fn piece(&self, share: f64) -> f64 {
        let fixed = 2.0 * POST;
        fixed / share * self.wire.min(self.pcie())
    }

    /// Bytes of staging that keep the wire busy while the other end does not look for so long.
    pub fn staging(&self, pause: f64) -> f64 {
        self.wire * pause
    }
}

/// Seconds to register (and later to release) memory that is used once: what the kernel spends on a page,
/// twice.
pub fn registration(bytes: f64, page: f64) -> f64 {
    /// For looking a page up, pinning it, and telling the card; assumed, and the same for its release.
    const A_PAGE: f64 = 0.15e-6;
    2.0 * A_PAGE * (bytes / page).ceil()
}

/// Sizes from `from` to `to`, doubling.
pub fn sizes(from: f64, to: f64) -> Vec<f64> {
    core::iter::successors(Some(from), |size| Some(size * 2.0)).take_while(|size| *size <= to).collect()
}

/// The mean gain of one setting over another, over sizes.
pub fn mean_gain(card: &Card, from: &Setting, to: &Setting, window: Window, sizes: &[f64]) -> f64 {
    let gain = |size: &f64| card.rate(*size, to, window) / card.rate(*size, from, window) - 1.0;
    sizes.iter().map(gain).sum::<f64>() / sizes.len() as f64
}

/// How much the mean of the rates over all sizes grows when parts of them grow by so much: (sizes, gain)
/// each. The rates after the growth are taken to be those of the wire from the second part on, and nothing in
/// the first.
pub fn combined_gain(parts: &[(f64, f64)]) -> f64 {
    let after: f64 = parts.iter().map(|(sizes, _)| sizes).sum();
    let before: f64 = parts.iter().map(|(sizes, gain)| sizes / (1.0 + gain)).sum();
    after / before - 1.0
}
