//! Team: creation, members, end.
//!
//! | module | contents |
//! | --- | --- |
//! | `member` | Options of a team, errors, and the memory of one of its ranks |
//! | `verbs` | Queue pairs to which a rank's kernels post for ranks that its network card reaches: their joining, the memory that they need, and the keys of windows |
//! | `windows` | Creation of windows |
//! | `serving` | Proxy threads of a team |

mod member;
mod serving;
mod verbs;
mod windows;

use core::mem::size_of;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::choice::{self, Initiator, InitiatorPolicy};
use super::correction::{Corrector, NetworkCorrector, SharedCosts};
use super::costs::Costs;
use super::explain;
use super::failure::Failure;
use super::gpu::{Gpu, GpuError};
use super::layout::{
    self, CLASSES, Changing, Counts, INBOX_AT, INITIATORS, MAX_QUEUES, MAX_RANKS, ON_ONE_GPU, Queue, REASONS,
    SCOPES, TeamState,
};
use super::peers::{PeerError, Peers, TeamGpus};
use super::proxy::Proxy;
use super::queue::Consumer;
use super::remote::link::Links;
use super::remote::serving::Service;
use super::verbs::Doorbell;
use super::windows::KnownWindows;
use crate::bootstrap::ByteStream;
use crate::cuda::bind_thread;
use crate::locks::Mutex;
use crate::verbs::{LinkNic, NicSelector};
use member::{HostPlan, Member, Members, bytes_of};
pub use member::{Kind, NetworkPolicy, Options, TeamError};
use serving::{Core, serve, serve_links};
use verbs::KernelVerbs;
use windows::{CONTROL, TeamWindows};

/// How long the end of a team waits for what its kernels have posted to a network card.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Ranks of this process in a team.
pub struct Team {
    core: Arc<Core>,
    id: u32,
    ranks: u32,
    options: Options,
    costs: SharedCosts,
    members: Arc<Members>,
    windows: TeamWindows,
    threads: Vec<JoinHandle<()>>,
    links: Option<JoinHandle<()>>,
    /// What bytes for ranks over a network go by, and why.
    networks: Vec<String>,
    /// What kernels have of a network card, if they post to it.
    verbs: Option<Arc<KernelVerbs>>,
}

impl Team {
    /// A team whose ranks are all in this process, one for each GPU that is given, which may be the same one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn of_process(gpus: &[Arc<dyn Gpu>], options: Options) -> Result<Self, TeamError> {
        Self::new(gpus, None, gpus.len() as u32, options)
    }

    /// This process's rank in a team whose ranks are in processes of their own.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn of_processes(
        gpu: Arc<dyn Gpu>,
        peers: Peers,
        ranks: u32,
        options: Options,
    ) -> Result<Self, TeamError> {
        Self::new(&[gpu], Some(peers), ranks, options)
    }

    fn new(
        gpus: &[Arc<dyn Gpu>],
        peers: Option<Peers>,
        ranks: u32,
        options: Options,
    ) -> Result<Self, TeamError> {
        static TEAMS: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(1);
        if !(1..=MAX_RANKS).contains(&(ranks as usize)) {
            return Err(TeamError::Ranks(ranks as usize));
        }
        let Options { queues, capacity, threads, .. } = options;
        let are_queues = (1..=MAX_QUEUES).contains(&queues)
            && capacity.is_power_of_two()
            && (2..=1 << 16).contains(&capacity)
            && (1..=queues).contains(&threads);
        if !are_queues {
            return Err(TeamError::Queues { queues, capacity, threads });
        }
        // A wish leaves nothing to choose.
        let copies = match (options.policy, gpus.first()) {
            (policy, Some(gpu)) if policy.chooses_mapped() => gpu.copies()?,
            _ => None,
        };
        let costs = SharedCosts::new(Costs::new(&options.curves, copies));
        let members = gpus
            .iter()
            .map(|gpu| Member::new(gpu, queues, capacity))
            .collect::<Result<Vec<Member>, GpuError>>()?;
        let nic = match (&peers, gpus) {
            (Some(peers), [gpu]) => open_nic(peers, gpu.as_ref(), &options.network),
            _ => Err(String::new()),
        };
        let of_ranks = match (&peers, gpus) {
            (Some(peers), [gpu]) => peers.exchange_gpus(gpu.number(), nic.is_ok())?,
            _ => TeamGpus::of_process(gpus.iter().map(|gpu| gpu.number()).collect()),
        };
        let streams =
            peers.as_ref().map_or(Ok(Vec::new()), |peers| peers.take_streams(of_ranks.is_spread))?;
        let links = of_ranks.is_spread.then(|| Links::new(ranks).map(Arc::new)).transpose();
        let links = links.map_err(PeerError::from)?;
        let host_control = members.iter().map(|member| member.host.address).collect();
        let first = peers.as_ref().map_or(0, Peers::rank);
        let members = Arc::new(Members { first, all: members });
        let (stop, ended) = (AtomicBool::new(false), Mutex::new(None));
        // Where no rank maps it the proxies reach it sooner in the host.
        let is_mapped_by_none = of_ranks.is_spread && !of_ranks.has_local;
        let is_control_in_host = options.policy == InitiatorPolicy::Proxy || is_mapped_by_none;
        let stop_links = AtomicBool::new(false);
        let core = Arc::new(Core { stop, first, host_control, peers, links, stop_links, ended });
        let id = TEAMS.fetch_add(1, Ordering::Relaxed);
        let (policy, of_core) = (options.policy, Arc::clone(&core));
        let windows = TeamWindows::new(id, of_ranks, policy, of_core, Arc::clone(&members), options.limit);
        let (threads, links, networks, verbs) = (Vec::new(), None, Vec::new(), None);
        let mut team =
            Self { core, id, ranks, options, costs, members, windows, threads, links, networks, verbs };
        // Before others hear of a window, and may write there.
        team.start_links(streams, &nic)?;
        team.join_verbs(nic.as_deref())?;
        let kind = if is_control_in_host { Kind::Host } else { Kind::Device };
        let inboxes = layout::CONTROL_BYTES_OF_RANK * u64::from(ranks);
        let control = team.window(kind, INBOX_AT + inboxes)?;
        debug_assert_eq!(control, CONTROL, "it is the first");
        let table = team.costs.lock().table(team.options.policy);
        for rank in team.members.ranks() {
            team.write_state(rank, table)?;
        }
        team.start_proxies(table)?;
        Ok(team)
    }

    fn write_state(&self, rank: u32, table: [[u64; CLASSES]; SCOPES]) -> Result<(), TeamError> {
        let member = self.members.get(rank)?;
        let plan = HostPlan::new(self.options.queues, self.options.capacity);
        let mut state = TeamState::empty();
        (state.id, state.rank, state.ranks) = (self.id, rank, self.ranks);
        state.queues = self.options.queues as u32;
        state.host = member.host.address;
        state.limit = self.options.limit.as_nanos().min(u128::from(u64::MAX)) as u64;
        state.control = self.window_handle(rank, CONTROL)?;
        let by =
            if self.options.policy == InitiatorPolicy::Proxy { Initiator::Proxy } else { Initiator::Direct };
        state.control_by = by.code() as u32;
        state.verbs = self.verbs.as_ref().map_or(0, |verbs| verbs.state());
        state.choice = table;
        for (at, queue) in state.queues_of.iter_mut().take(self.options.queues).enumerate() {
            let (counters, slots) = plan.queue(member.host.address, at);
            let capacity = self.options.capacity;
            *queue = Queue { slots, counters, capacity, changing: Changing::default() };
        }
        Ok(member.gpu.write(member.device.address, bytes_of(&state))?)
    }

    /// Whether who polls takes from others what they wait for: the machine has too few cores.
    fn is_crowded(&self) -> bool {
        let of_links = usize::from(self.core.links.is_some());
        let polling = self.members.all.len() * self.options.threads + of_links;
        std::thread::available_parallelism().map_or(1, usize::from) <= polling + 1
    }

    /// Starts the thread of the links, where there are some.
    fn start_links(
        &mut self,
        streams: Vec<(u32, ByteStream)>,
        nic: &Result<Arc<LinkNic>, String>,
    ) -> Result<(), TeamError> {
        let (Some(links), Some(peers)) = (self.core.links.clone(), &self.core.peers) else { return Ok(()) };
        let (rank, parts, is_crowded) = (self.members.first, self.windows.own_parts(), self.is_crowded());
        let gpu = &self.members.all[0].gpu;
        let theirs = self.windows.peers_with_nic();
        let has_nic = |peer: u32| nic.is_ok() && theirs.contains(&peer);
        let mut service = Service::new(rank, gpu.as_ref(), streams, links, parts, is_crowded, has_nic)?;
        let joined = nic.as_ref().map_or(Ok(Vec::new()), |nic| service.join_nics(nic, peers))?;
        for peer in peers.over_network() {
            let without = format!("rank {peer} has no RDMA device for this team, and says why");
            let found = joined.iter().find(|(other, _)| *other == peer).map(|(_, path)| path.clone());
            let by = match (nic, &found.unwrap_or(Err(without))) {
                (Ok(nic), Ok(())) => format!("by the RDMA device {}", nic.name()),
                (Err(cause), _) | (_, Err(cause)) => format!("over TCP: {cause}"),
            };
            self.networks.push(format!("rank {rank}: bytes for rank {peer} go {by}"));
        }
        if let Ok(nic) = nic
            && joined.iter().any(|(_, path)| path.is_ok())
        {
            self.windows.use_nic(Arc::clone(nic));
        }
        let (core, node) = (Arc::clone(&self.core), gpu.node());
        let thread = std::thread::Builder::new().name(format!("causeway-links-{rank}")).spawn(move || {
            bind_thread(node);
            serve_links(&core, service, rank);
        });
        self.links = Some(thread.map_err(TeamError::Thread)?);
        Ok(())
    }

    /// Joins what this rank's kernels have of the network card with that of other ranks.
    fn join_verbs(&mut self, nic: Result<&LinkNic, &String>) -> Result<(), TeamError> {
        let (true, Some(peers)) = (self.core.links.is_some(), &self.core.peers) else { return Ok(()) };
        let ranks = if nic.is_ok() { self.windows.peers_with_nic() } else { Vec::new() };
        let (member, rank) = (&self.members.all[0], self.members.first);
        let (verbs, mut joined) = KernelVerbs::join(&member.gpu, nic, &ranks, peers, &self.options)?;
        let without = peers.over_network().into_iter().filter(|peer| !ranks.contains(peer));
        joined.extend(
            without.map(|peer| (peer, Err("one of the two has no RDMA device for this team".to_owned()))),
        );
        for (peer, result) in joined {
            self.networks.push(match result {
                Ok(doorbell) => {
                    let by = if doorbell == Doorbell::Direct {
                        ""
                    } else {
                        ", whose doorbell a thread of the host rings"
                    };
                    format!("rank {rank}: kernels may post for rank {peer} themselves{by}")
                }
                Err(cause) => format!("rank {rank}: kernels do not post for rank {peer}: {cause}"),
            });
        }
        let Some(verbs) = verbs.map(Arc::new) else { return Ok(()) };
        let curves = self.options.network_curves.clone();
        let curves = curves.unwrap_or_else(|| choice::network_curves(verbs.bandwidth()));
        let mut costs = self.costs.lock();
        costs.set_network(curves);
        let table = costs.network_table(self.options.policy);
        drop(costs);
        verbs.write_state(member.gpu.as_ref(), member.host.address, table)?;
        self.windows.use_verbs(Arc::clone(&verbs));
        self.verbs = Some(verbs);
        Ok(())
    }

    fn start_proxies(&mut self, table: [[u64; CLASSES]; SCOPES]) -> Result<(), TeamError> {
        let plan = HostPlan::new(self.options.queues, self.options.capacity);
        let is_crowded = self.is_crowded();
        for (rank, member) in self.members.ranks().zip(&self.members.all) {
            let mut of_thread: Vec<Vec<Proxy>> = (0..self.options.threads).map(|_| Vec::new()).collect();
            for at in 0..self.options.queues {
                let (counters, slots) = plan.queue(member.host.address, at);
                // SAFETY: the plan has so many bytes for it; the memory is freed behind the threads.
                let queue = unsafe { Consumer::new(slots, counters, self.options.capacity) };
                let windows = KnownWindows::new(Arc::clone(&member.windows));
                let links = self.core.links.clone();
                let mut proxy = Proxy::new(rank, queue, member.gpu.lane()?, windows, links);
                // A wish leaves nothing to correct.
                if at == 0 && self.options.policy.chooses_mapped() {
                    let (state, scratch) = (member.device.address, HostPlan::scratch(member.host.address));
                    proxy = proxy.with_corrector(Corrector::new(self.costs.clone(), state, scratch, table));
                    if self.verbs.is_some() && self.options.policy.named().is_none() {
                        let shared = HostPlan::network(member.host.address);
                        // SAFETY: the plan has room for it there; the memory is freed behind the threads.
                        let network = unsafe { NetworkCorrector::new(self.costs.clone(), shared) };
                        proxy = proxy.with_network_corrector(network);
                    }
                }
                of_thread[at % self.options.threads].push(proxy);
            }
            for proxies in of_thread {
                let core = Arc::clone(&self.core);
                let name = format!("causeway-proxy-{rank}");
                let (node, limit) = (member.gpu.node(), self.options.limit);
                let thread = std::thread::Builder::new().name(name).spawn(move || {
                    bind_thread(node);
                    serve(&core, proxies, rank, is_crowded, limit);
                });
                self.threads.push(thread.map_err(TeamError::Thread)?);
            }
        }
        Ok(())
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// How many of them are this process's.
    pub fn ranks_here(&self) -> usize {
        self.members.all.len()
    }

    /// What a rank's kernels are given.
    ///
    /// # Errors
    /// When the rank is not this process's.
    pub fn handle(&self, rank: u32) -> Result<layout::Team, TeamError> {
        let state = self.members.get(rank)?.device.address;
        let direct_below = choice::direct_below(&self.costs.lock().table(self.options.policy));
        let mut gpus = self.members.all.iter().map(|member| member.gpu.number());
        let first = gpus.next();
        let is_on_one_gpu = self.core.peers.is_none() && gpus.all(|other| Some(other) == first);
        let shape = self.options.queues as u8 | if is_on_one_gpu { ON_ONE_GPU } else { 0 };
        Ok(layout::Team { state, rank, ranks: self.ranks(), id: self.id, direct_below, shape })
    }

    /// Makes a window: so many bytes of new memory for each rank, zeroed. Its number.
    ///
    /// # Errors
    /// When there is no memory, or there are windows enough.
    pub fn window(&self, kind: Kind, bytes: u64) -> Result<u32, TeamError> {
        self.windows.make(kind, bytes)
    }

    /// Makes no window, at all ranks, and returns the reason: others would wait for this one.
    pub fn refuse_window(&self, error: TeamError) -> TeamError {
        self.windows.refuse(error)
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
        // SAFETY: the caller keeps so many bytes of this kind at each address until the window is freed.
        unsafe { self.windows.register(kind, addresses, bytes) }
    }

    /// Frees a window. No kernel uses it any more.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn free(&self, id: u32) -> Result<(), TeamError> {
        self.windows.free(id)
    }

    /// The other ranks that have a rank's GPU.
    pub fn on_the_same_gpu(&self, rank: u32) -> Vec<u32> {
        self.windows.on_the_same_gpu(rank)
    }

    /// What a rank's kernels are given of a window.
    ///
    /// # Errors
    /// When there is none of this number, or the rank is not this process's.
    pub fn window_handle(&self, rank: u32, id: u32) -> Result<layout::Window, TeamError> {
        self.windows.handle(rank, id)
    }

    /// Whether a window is memory of the host.
    pub fn is_in_host(&self, id: u32) -> bool {
        self.windows.is_in_host(id)
    }

    /// Why the team has ended, if it has. Kernels' waits end soon after; a new team is needed.
    pub fn failure(&self) -> Option<Failure> {
        self.core.look();
        self.core.ended.lock().clone()
    }

    /// Ends all waits of the team's kernels.
    pub fn abort(&self) {
        self.core.end(Failure::Program);
    }

    /// Words of a rank's state, from this byte on; no kernel of it runs.
    fn read_state(&self, rank: u32, at: usize, count: usize) -> Result<Vec<u64>, TeamError> {
        let member = self.members.get(rank)?;
        let mut bytes = vec![0; 8 * count];
        member.gpu.read(member.device.address + at as u64, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Messages of a rank by scope, class of size, initiator and reason; no kernel of it runs.
    ///
    /// # Errors
    /// What the driver says.
    pub fn message_counts(&self, rank: u32) -> Result<Box<Counts>, TeamError> {
        let at = core::mem::offset_of!(TeamState, counts);
        let messages = self.read_state(rank, at, size_of::<Counts>() / 8)?;
        let mut counts: Box<Counts> = Box::new([[[[0; REASONS]; INITIATORS]; CLASSES]; SCOPES]);
        counts.as_flattened_mut().as_flattened_mut().as_flattened_mut().copy_from_slice(&messages);
        Ok(counts)
    }

    /// Messages and bytes that each initiator has moved, of one rank; no kernel of it runs.
    ///
    /// # Errors
    /// What the driver says.
    pub fn counts(&self, rank: u32) -> Result<[[u64; 2]; INITIATORS], TeamError> {
        let moved = self.read_state(rank, core::mem::offset_of!(TeamState, moved), INITIATORS)?;
        let messages = self.message_counts(rank)?;
        let of = |initiator: usize| -> u64 {
            messages.as_flattened().iter().flat_map(|of_class| of_class[initiator]).sum()
        };
        Ok(core::array::from_fn(|initiator| [of(initiator), moved[initiator]]))
    }

    /// Each decision that kernels have taken, with its reason: what `CAUSEWAY_DEVICE_EXPLAIN` prints.
    pub fn decisions(&self) -> Vec<String> {
        let costs = self.costs.lock().clone();
        let mut lines = Vec::new();
        for rank in self.members.ranks() {
            let Ok(counts) = self.message_counts(rank) else { continue };
            lines.extend(explain::decisions(rank, &counts, &costs, self.options.policy));
        }
        lines.extend(explain::corrections(&costs));
        lines
    }

    /// What there is to tell at the end: who moved what, and why.
    pub fn report(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for rank in self.members.ranks() {
            let Ok(counts) = self.counts(rank) else { continue };
            for initiator in Initiator::ALL {
                let [messages, bytes] = counts[initiator.code()];
                if messages > 0 {
                    lines.push(format!("rank {rank}: {messages} messages, {bytes} bytes by {initiator}"));
                }
            }
        }
        lines.extend(self.networks.iter().cloned());
        match self.options.policy.named() {
            None => lines.extend(explain::crossings(&self.costs.lock())),
            Some(initiator) => lines.push(format!("CAUSEWAY_DEVICE_INITIATOR asks for {initiator}")),
        }
        lines
    }

    /// The number of the queue pair that a rank's kernels have for another one, if they post for it.
    pub fn queue_pair_for(&self, peer: u32) -> Option<u32> {
        self.verbs.as_ref()?.queue_pair(peer)
    }
}

/// The network card for a rank's links, or why there is none.
fn open_nic(peers: &Peers, gpu: &dyn Gpu, policy: &NetworkPolicy) -> Result<Arc<LinkNic>, String> {
    let (links, local) = peers.network();
    let name = match policy {
        _ if links == 0 => return Err("there are no such ranks".to_owned()),
        NetworkPolicy::Tcp(reason) => return Err((*reason).to_owned()),
        NetworkPolicy::Device(name) => Some(name.clone()),
        NetworkPolicy::Auto => None,
    };
    let selector = NicSelector { local, gpu: gpu.pci_address(), gid: None, name };
    LinkNic::open(&selector, links).map(Arc::new).map_err(|error| error.to_string())
}

impl Drop for Team {
    fn drop(&mut self) {
        self.core.peers.iter().for_each(Peers::send_goodbye);
        self.core.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // One that has panicked has ended the team.
            let _ = thread.join();
        }
        // While the others still wait for this rank to leave.
        if let Some(verbs) = self.verbs.as_ref().filter(|_| !self.core.has_ended()) {
            verbs.drain(DRAIN_TIMEOUT);
        }
        if let (Some(copies), Some(member)) = (self.costs.lock().corrected_copies(), self.members.all.first())
        {
            member.gpu.keep_copies(copies);
        }
        // Behind the proxies, whose requests it has.
        self.core.stop_links.store(true, Ordering::Release);
        self.core.links.iter().for_each(|links| links.wake());
        if let Some(thread) = self.links.take() {
            let _ = thread.join();
        }
    }
}
