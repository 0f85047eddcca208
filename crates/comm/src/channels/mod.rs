//! Channels between two GPUs: a file or folder each, with all that a channel is and does, and the table of
//! them.
//!
//! | Channel    | How bytes get from one GPU to the other                                             |
//! |------------|-------------------------------------------------------------------------------------|
//! | `ipc`      | A copy out of the peer's memory, opened by a handle of cudaIPC                      |
//! | `vmm`      | The same, mapped from a descriptor, or through a bounce buffer on the peer's GPU    |
//! | `staged`   | Through pinned memory of the host that both ranks map                               |
//! | `bar`      | Through the GPUs' BARs, which the processors read and write (GDRCOPY)               |
//! | `rdma`     | By the receiver's RDMA device, which reads the sender's memory on another host      |
//! | `loopback` | The same within a host                                                              |
//! | `tcp`      | Over TCP                                                                            |
//!
//! What they share: `ops` (the trait), `channel` (names, what a probe is asked about), `protocol` (messages
//! between two ranks), `receiver` and `sender` (what each end has of a peer), `peer_memory` (memory opened
//! in place), `staging` (slots in memory of the host), `cache`. CONTRIBUTING.md says what a new one
//! needs.

pub(crate) mod bar;
mod cache;
mod channel;
mod ipc;
pub(crate) mod ops;
pub(crate) mod peer_memory;
pub(crate) mod protocol;
mod rdma;
pub(crate) mod receiver;
pub(crate) mod sender;
mod staged;
mod staging;
mod tcp;
mod vmm;

pub use channel::{Channel, Ends, Gpu, Joined, Missing, UnknownChannel};
pub use protocol::TransferError;

use ops::ChannelOps;
use peer_memory::PeerMemoryOps;
use receiver::{Destination, FetchRequest, Receiver};
use sender::{Payload, PayloadSender};

use crate::matching::Source;
use crate::pair::Pair;

impl Channel {
    /// The table of channels.
    fn ops(self) -> &'static dyn ChannelOps {
        match self {
            Self::Ipc => &ipc::Ipc,
            Self::Vmm => &vmm::Vmm,
            Self::Staged => &staged::Staged,
            Self::Bar => &bar::Bar,
            Self::Rdma => &rdma::Rdma::BetweenHosts,
            Self::Loopback => &rdma::Rdma::WithinHost,
            Self::Tcp => &tcp::Tcp,
        }
    }

    /// Whether two ranks have this channel, or why not.
    ///
    /// # Errors
    /// What is missing.
    pub fn probe(self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        self.ops().probe(pair, ends)
    }

    /// What to do about a channel that two ranks do not have, where something helps that is worth it.
    pub fn advice(self, missing: &Missing) -> Option<&'static str> {
        match missing {
            Missing::LeftOut => Some("Unset CAUSEWAY_COMM_CHANNELS, or add the channel to it."),
            missing => self.ops().advice(missing),
        }
    }

    /// Bytes in a nanosecond that it carries at most.
    pub(crate) fn max_rate(self) -> f64 {
        self.ops().max_rate()
    }

    /// Whether it joins ranks that meet over a network, and no others.
    pub fn is_between_hosts(self) -> bool {
        self.ops().is_between_hosts()
    }

    /// Whether it carries what a program's memory held, where the program has that back already.
    pub fn carries_copies(self) -> bool {
        self.ops().carries_copies()
    }

    /// Whether it is there for short messages, though both ranks have a part in each.
    pub fn is_for_short(self) -> bool {
        self.ops().is_for_short()
    }

    /// Whether RDMA devices move the bytes.
    pub fn uses_rdma(self) -> bool {
        self.ops().uses_rdma()
    }

    /// Whether bytes pass through host memory, but for those that RDMA devices move straight between GPUs.
    pub fn passes_host_memory(self) -> bool {
        self.ops().passes_host_memory()
    }

    /// Whether memory that a sender describes so may come by it.
    pub(crate) fn accepts(self, source: &Source) -> bool {
        self.ops().accepts(source)
    }

    /// How it opens the peer's memory where that lies, if it does.
    pub(crate) fn peer_memory(self) -> Option<&'static dyn PeerMemoryOps> {
        self.ops().peer_memory()
    }

    /// Gives a payload to the peer that has asked for it.
    pub(crate) fn send(
        self,
        sender: &mut PayloadSender<'_>,
        payload: &Payload<'_>,
    ) -> Result<(), TransferError> {
        self.ops().send(sender, payload)
    }

    /// Gives the peer what a payload was, of which there is a copy.
    pub(crate) fn send_copy(self, sender: &PayloadSender<'_>, copy: &[u8]) -> Result<(), TransferError> {
        self.ops().send_copy(sender, self, copy)
    }

    /// Asks the peer for a payload, and puts it where it is to be.
    pub(crate) fn receive(
        self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        self.ops().receive(receiver, request, destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_the_row_of_its_own_file() {
        use Channel::{Bar, Ipc, Loopback, Rdma, Staged, Tcp, Vmm};
        let those =
            |is: fn(Channel) -> bool| Channel::ALL.into_iter().filter(|one| is(*one)).collect::<Vec<_>>();
        assert_eq!(those(Channel::is_between_hosts), [Rdma, Tcp]);
        assert_eq!(those(Channel::carries_copies), [Staged, Bar, Rdma, Loopback, Tcp]);
        assert_eq!(those(Channel::is_for_short), [Bar, Loopback]);
        assert_eq!(those(Channel::uses_rdma), [Rdma, Loopback]);
        let opens = |one: Channel| one.peer_memory().is_some_and(|ops| ops.channel() == one);
        assert_eq!(those(opens), [Ipc, Vmm]);
        let rates = Channel::ALL.map(Channel::max_rate);
        assert_eq!(rates, [f64::INFINITY, f64::INFINITY, 128.0, 128.0, 100.0, 100.0, 50.0]);
    }

    #[test]
    fn advice_names_a_folder_where_one_helps() {
        for (channel, missing) in [
            (Channel::Staged, Missing::OtherHost),
            (Channel::Staged, Missing::NoMemory("no socket".into())),
            (Channel::Vmm, Missing::NoDescriptors("no socket".into())),
        ] {
            let advice = channel.advice(&missing).unwrap();
            assert!(advice.contains("CAUSEWAY_SOCKET_DIR"), "{channel}: {missing}");
        }
        assert!(Channel::Ipc.advice(&Missing::Hidden).unwrap().contains("--pid"));
        assert!(Channel::Tcp.advice(&Missing::LeftOut).unwrap().contains("CAUSEWAY_COMM_CHANNELS"));
        assert_eq!(Channel::Rdma.advice(&Missing::SameHost), None);
    }
}
