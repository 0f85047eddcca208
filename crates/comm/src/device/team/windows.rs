//! Creation of windows. New memory of each rank, the program's own, and that of ranks in other
//! processes; announced to kernels and proxies.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_ibverbs::MemoryRegion;

use super::member::{Members, bytes_of};
use super::serving::Core;
use crate::device::choice::InitiatorPolicy;
use crate::device::gpu::{Block, GpuError};
use crate::device::layout::{self, MAX_RANKS, MAX_WINDOW_BYTES, MAX_WINDOWS, WindowState};
use crate::device::peers::{PeerError, Peers, TeamGpus};
use crate::device::remote::parts::{Part, Parts};
use crate::device::team::member::{Kind, TeamError};
use crate::device::team::verbs::KernelVerbs;
use crate::device::verbs::Registered;
use crate::device::windows::{Announcement, MappedWindow};
use crate::locks::{Mutex, rank};
use crate::verbs::LinkNic;

/// The window of barriers and messages.
pub const CONTROL: u32 = 0;

/// A window's memory.
struct WindowOf {
    bytes: u64,
    in_host: bool,
    /// Where each rank's part lies, by the rank that looks.
    parts: Vec<Vec<u64>>,
    /// What other ranks call it.
    number: u32,
    /// Whether the memory is the program's, who frees it behind the window.
    is_registered: bool,
    /// In front of the memory.
    _registered: Option<Registered>,
    /// What frees it.
    _blocks: Vec<Arc<Block>>,
}

/// By what network cards reach the parts of a window.
#[derive(Default)]
struct Keys {
    /// This rank's.
    registered: Option<Registered>,
    /// Of ranks that this rank's card reaches, with this one's: address and key.
    all: Vec<(u32, u64, u32)>,
    /// Whether those of all ranks reach all others, so that cards make the atomic changes of parts that have a key.
    are_complete: bool,
}

/// The windows of a team.
pub struct TeamWindows {
    /// The team's number.
    team: u32,
    /// The number of each rank's GPU, and whether ranks are on several hosts.
    gpus: TeamGpus,
    /// This rank's parts, for ranks to which its memory is not mapped.
    own_parts: Arc<Parts>,
    policy: InitiatorPolicy,
    core: Arc<Core>,
    members: Arc<Members>,
    /// How long a window that is freed may still be copied.
    limit: Duration,
    /// The network card of the links, if that moves bytes.
    nic: Option<Arc<LinkNic>>,
    /// What kernels have of it, if they post to it.
    verbs: Option<Arc<KernelVerbs>>,
    /// Windows that were made so far, which ranks of other processes make as well.
    made: Mutex<rank::WindowCreation, u32>,
    list: Mutex<rank::Windows, Vec<Option<WindowOf>>>,
}

impl TeamWindows {
    /// None yet, of a team whose ranks have the GPUs with these numbers.
    pub fn new(
        team: u32,
        gpus: TeamGpus,
        policy: InitiatorPolicy,
        core: Arc<Core>,
        members: Arc<Members>,
        limit: Duration,
    ) -> Self {
        let (made, list, own_parts) = (Mutex::new(0), Mutex::default(), Arc::default());
        Self { team, gpus, own_parts, policy, core, members, limit, nic: None, verbs: None, made, list }
    }

    /// Lets kernels post for the windows that are made from now on.
    pub fn use_verbs(&mut self, verbs: Arc<KernelVerbs>) {
        self.verbs = Some(verbs);
    }

    /// Lets a network card reach the windows that are made from now on.
    pub(crate) fn use_nic(&mut self, nic: Arc<LinkNic>) {
        self.nic = Some(nic);
    }

    /// A part as the network card reaches it; `None` where it does not: then bytes pass through pinned memory.
    fn region(&self, block: &Block, bytes: u64, in_host: bool) -> Option<MemoryRegion> {
        let nic = self.nic.as_ref()?;
        let gpu = &self.members.all.first()?.gpu;
        if in_host {
            // SAFETY: the part has the region in front of the memory. Other ranks write to windows when kernels
            // ask them to.
            return unsafe { nic.register(block.address, bytes, true) }.ok();
        }
        let dma_buf = gpu.allows_rdma().then(|| gpu.dma_buf(block.address))?;
        // SAFETY: the part has the region in front of the memory. Other ranks write to windows when kernels
        // ask them to.
        unsafe { nic.register_gpu(block.address, bytes, dma_buf) }.ok()
    }

    /// This rank's parts, for ranks to which its memory is not mapped.
    pub fn own_parts(&self) -> Arc<Parts> {
        Arc::clone(&self.own_parts)
    }

    /// Ranks over a network that have a network card for that.
    pub fn peers_with_nic(&self) -> Vec<u32> {
        (0..).zip(&self.gpus.has_nic).filter(|(_, has)| **has).map(|(rank, _)| rank).collect()
    }

    /// The other ranks that have a rank's GPU.
    pub fn on_the_same_gpu(&self, rank: u32) -> Vec<u32> {
        let own = self.gpus.numbers.get(rank as usize);
        let ranks = (0..).zip(&self.gpus.numbers);
        ranks.filter(|(other, gpu)| *other != rank && Some(*gpu) == own).map(|(other, _)| other).collect()
    }

    /// Makes a window: so many bytes of new memory for each rank, zeroed. Its number.
    ///
    /// # Errors
    /// When there is no memory, or there are windows enough.
    pub fn make(&self, kind: Kind, bytes: u64) -> Result<u32, TeamError> {
        if !(1..MAX_WINDOW_BYTES).contains(&bytes) {
            return Err(self.refuse(TeamError::WindowSize(bytes)));
        }
        let blocks = self
            .members
            .all
            .iter()
            .map(|member| match (kind, &self.core.peers) {
                (Kind::Device, _) => member.gpu.device_memory(bytes),
                (Kind::Host, Some(peers)) if peers.has_local() => member.gpu.shared_host_memory(bytes),
                (Kind::Host, _) => member.gpu.host_memory(bytes),
            })
            .collect::<Result<Vec<Block>, GpuError>>();
        match &self.core.peers {
            None => self.add(kind, bytes, blocks?),
            Some(peers) => self.add_with_peers(peers, kind, bytes, blocks.map_err(TeamError::from)),
        }
    }

    /// Makes no window, for this reason: the other ranks, which make one, hear of that and have none either.
    pub fn refuse(&self, error: TeamError) -> TeamError {
        let Some(peers) = &self.core.peers else { return error };
        // The reason comes back in any case.
        match self.add_with_peers(peers, Kind::Device, 0, Err(error)) {
            Err(error) => error,
            Ok(_) => TeamError::NotHandedOver,
        }
    }

    /// Hands this rank's part over, and maps those of the others.
    fn add_with_peers(
        &self,
        peers: &Peers,
        kind: Kind,
        bytes: u64,
        blocks: Result<Vec<Block>, TeamError>,
    ) -> Result<u32, TeamError> {
        let mut made = self.made.lock();
        let (number, in_host) = (*made, kind == Kind::Host);
        let announcement = Announcement { number, in_host, bytes };
        *made += 1;
        let own = blocks.map(|mut blocks| blocks.pop().map(Arc::new));
        if let Ok(Some(own)) = &own {
            // Ranks that hear of it may write there.
            let region = self.region(own, bytes, in_host);
            self.own_parts.add(number, Part { region, memory: Arc::clone(own), bytes, in_host });
            // Its peers' cards are announced.
            self.core.links.iter().for_each(|links| links.wake());
        }
        let parts = peers.exchange(announcement, own.as_ref().ok().and_then(Option::as_deref));
        let keys = self.exchange_keys(peers, own.as_ref().ok().and_then(Option::as_deref), bytes, in_host);
        // Why this rank has none counts before what the others say.
        let id = match (own, parts) {
            (Err(error), _) => Err(error),
            (Ok(None), _) => Err(TeamError::NotHandedOver),
            (Ok(Some(own)), parts) => parts
                .and_then(|parts| Ok((parts, keys?)))
                .map_err(TeamError::from)
                .and_then(|(parts, keys)| self.map_parts(kind, bytes, number, (own, parts), keys)),
        };
        if id.is_err() {
            self.own_parts.remove(number);
        }
        id
    }

    /// Registers this rank's part, if there is one, for what kernels post, and tells ranks that it reaches of that, as
    /// they do.
    fn exchange_keys(
        &self,
        peers: &Peers,
        own: Option<&Block>,
        bytes: u64,
        in_host: bool,
    ) -> Result<Keys, PeerError> {
        let Some(verbs) = &self.verbs else { return Ok(Keys::default()) };
        let gpu = &self.members.all[0].gpu;
        let registered = own.and_then(|own| verbs.register(gpu.as_ref(), own, bytes, in_host));
        let announced =
            own.zip(registered.as_ref()).map(|(own, registered)| (own.address, registered.rkey()));
        let mut all = peers.exchange_keys(&verbs.ranks(), announced)?;
        all.extend(announced.map(|(address, key)| (self.members.first, address, key)));
        Ok(Keys { registered, all, are_complete: verbs.is_complete() })
    }

    /// Maps the parts of the others that have a descriptor.
    fn map_parts(
        &self,
        kind: Kind,
        bytes: u64,
        number: u32,
        (own, parts): (Arc<Block>, Vec<Option<OwnedFd>>),
        keys: Keys,
    ) -> Result<u32, TeamError> {
        let gpu = &self.members.all[0].gpu;
        let mut blocks = Vec::with_capacity(parts.len());
        for (rank, descriptor) in (0..).zip(parts) {
            blocks.push(match (descriptor, kind) {
                _ if rank == self.members.first => Arc::clone(&own),
                // As long as this rank's: made by the same granularity.
                (Some(descriptor), Kind::Device) => Arc::new(gpu.import(descriptor.as_fd(), own.bytes)?),
                (Some(descriptor), Kind::Host) => Arc::new(gpu.import_host(descriptor.as_fd(), own.bytes)?),
                (None, _) => Arc::new(Block { address: 0, bytes, descriptor: None, owner: Box::new(()) }),
            });
        }
        let parts = vec![blocks.iter().map(|block| block.address).collect()];
        self.keep(kind, bytes, number, (parts, blocks), keys)
    }

    /// Makes a window of memory that the program has: an address for each rank of this process.
    ///
    /// # Safety
    /// At each address there are so many bytes of memory of the rank's GPU (or, for [`Kind::Host`], of pinned
    /// memory that all GPUs reach at this address), until the window is freed.
    ///
    /// # Errors
    /// When there are windows enough, or it is not as described.
    pub unsafe fn register(&self, kind: Kind, addresses: &[u64], bytes: u64) -> Result<u32, TeamError> {
        // At all ranks or at none: one that makes no window would leave the others to wait for it.
        if self.core.peers.is_some() && self.gpus.has_local {
            return Err(TeamError::NotHandedOver);
        }
        if addresses.len() != self.members.all.len() {
            let ranks = self.members.all.len();
            return Err(self.refuse(TeamError::Parts { found: addresses.len(), ranks }));
        }
        let is_aligned = addresses.iter().all(|address| *address != 0 && address.is_multiple_of(16));
        if !(1..MAX_WINDOW_BYTES).contains(&bytes) || !is_aligned {
            return Err(self.refuse(TeamError::WindowSize(bytes)));
        }
        let block = |address: &u64| Block { address: *address, bytes, descriptor: None, owner: Box::new(()) };
        let blocks = addresses.iter().map(block).collect();
        let id = match &self.core.peers {
            None => self.add(kind, bytes, blocks),
            Some(peers) => self.add_with_peers(peers, kind, bytes, Ok(blocks)),
        }?;
        if let Some(Some(window)) = self.list.lock().get_mut(id as usize) {
            window.is_registered = true;
        }
        Ok(id)
    }

    fn add(&self, kind: Kind, bytes: u64, mut blocks: Vec<Block>) -> Result<u32, TeamError> {
        let in_host = kind == Kind::Host;
        let (mut parts, mut imported) = (Vec::new(), Vec::new());
        for looking in &self.members.all {
            let mut seen = Vec::with_capacity(blocks.len());
            for (owner, block) in self.members.all.iter().zip(&blocks) {
                let is_here = in_host || looking.gpu.number() == owner.gpu.number();
                seen.push(match &block.descriptor {
                    _ if is_here => block.address,
                    Some(descriptor) => {
                        let mapped = looking.gpu.import(descriptor.as_fd(), block.bytes)?;
                        let address = mapped.address;
                        imported.push(mapped);
                        address
                    }
                    // The program's memory on another GPU: the program has to have opened it for this one.
                    None => block.address,
                });
            }
            parts.push(seen);
        }
        blocks.append(&mut imported);
        self.keep(kind, bytes, 0, (parts, blocks.into_iter().map(Arc::new).collect()), Keys::default())
    }

    /// Tells kernels and proxies of a window: where each rank's part lies, by the rank that looks.
    fn keep(
        &self,
        kind: Kind,
        bytes: u64,
        number: u32,
        (parts, blocks): (Vec<Vec<u64>>, Vec<Arc<Block>>),
        keys: Keys,
    ) -> Result<u32, TeamError> {
        let mut windows = self.list.lock();
        let id = windows.iter().position(Option::is_none).unwrap_or(windows.len());
        if id >= MAX_WINDOWS {
            return Err(TeamError::Windows);
        }
        let in_host = kind == Kind::Host;
        let (mut remote, mut remote_keys) = ([0; MAX_RANKS], [0; MAX_RANKS]);
        for (rank, address, key) in keys.all {
            (remote[rank as usize], remote_keys[rank as usize]) = (address, key);
        }
        for (rank, (member, parts)) in self.members.ranks().zip(self.members.all.iter().zip(&parts)) {
            let mut peers = [0; MAX_RANKS];
            for (peer, part) in parts.iter().enumerate() {
                // Kernels reach their own part in any case.
                let is_mapped = peer == rank as usize || self.policy != InitiatorPolicy::Proxy;
                peers[peer] = if is_mapped { *part } else { 0 };
            }
            // Where some reach a word by their kernels and others by its owner's proxy, all have to go by
            // that.
            let by_proxy = self.gpus.is_spread && !in_host;
            let numbers = (0..).zip(&self.gpus.numbers);
            let without = numbers.filter(|(_, gpu)| by_proxy || !member.gpu.has_atomics_on(**gpu));
            let without_atomics = without.fold(0, |bits, (peer, _)| bits | 1_u64 << peer);
            let state = WindowState {
                team: self.team,
                id: id as u32,
                bytes,
                in_host: u32::from(in_host),
                atomics_by_proxy: u32::from(by_proxy),
                peers,
                without_atomics,
                local_key: keys.registered.as_ref().map_or(0, Registered::lkey),
                is_registered: u32::from(keys.registered.is_some()),
                atomics_by_verbs: u32::from(keys.are_complete),
                reserved: 0,
                remote,
                keys: remote_keys,
            };
            member.gpu.write(member.window_at(id as u32), bytes_of(&state))?;
        }
        for (member, parts) in self.members.all.iter().zip(&parts) {
            member.windows.set(id, Some(MappedWindow { number, bytes, in_host, parts: parts.clone() }));
        }
        if windows.len() == id {
            windows.push(None);
        }
        let (_registered, _blocks) = (keys.registered, blocks);
        windows[id] =
            Some(WindowOf { bytes, in_host, parts, number, is_registered: false, _registered, _blocks });
        Ok(id as u32)
    }

    /// Frees a window. No kernel uses it any more.
    ///
    /// # Errors
    /// When there is none of this number, or the program's memory is still copied after the limit.
    pub fn free(&self, id: u32) -> Result<(), TeamError> {
        let mut windows = self.list.lock();
        let window = windows.get_mut(id as usize).filter(|_| id != CONTROL).and_then(Option::take);
        let window = window.ok_or(TeamError::NoSuchWindow(id))?;
        for member in &self.members.all {
            member.windows.set(id as usize, None);
        }
        drop(windows);
        if self.core.peers.is_some() && window.is_registered {
            if !self.own_parts.remove_unused(window.number, self.limit) {
                return Err(TeamError::StillCopied(id));
            }
        } else if self.core.peers.is_some() {
            self.own_parts.remove(window.number);
        }
        drop(window);
        Ok(())
    }

    /// What a rank's kernels are given of a window.
    ///
    /// # Errors
    /// When there is none of this number, or the rank is not this process's.
    pub fn handle(&self, rank: u32, id: u32) -> Result<layout::Window, TeamError> {
        let member = self.members.get(rank)?;
        let windows = self.list.lock();
        let window = windows.get(id as usize).and_then(Option::as_ref).ok_or(TeamError::NoSuchWindow(id))?;
        let base = window.parts[(rank - self.members.first) as usize][rank as usize];
        let state = member.window_at(id);
        Ok(layout::Window { base, bytes: window.bytes, state, id, team: self.team })
    }

    /// Whether a window is memory of the host.
    pub fn is_in_host(&self, id: u32) -> bool {
        let windows = self.list.lock();
        windows.get(id as usize).and_then(Option::as_ref).is_some_and(|window| window.in_host)
    }
}
