//! Requests of a block's threads to their warp and to the block: what lanes execute together, and the barriers.

use super::{Runner, WARP};
use crate::run::context::{Reduction, Request, WarpOperation, WarpRequest};
use crate::run::matrix::{complete_multiply, complete_rearrange};
use crate::run::mbarrier::is_over;
use crate::run::warp::{lanes_in, warp_results};

impl Runner<'_> {
    /// Notes what a lane that ran, given as its bit, waits for.
    pub(super) fn note(&mut self, warp: usize, bit: u32, request: Request) {
        let state = &mut self.warps[warp];
        match request {
            Request::Finished | Request::Exit => state.alive &= !bit,
            Request::Warp(_) => state.gathering |= bit,
            Request::ActiveMask(_) => state.active |= bit,
            Request::Barrier(request) => {
                self.barriers.arrive(&request, warp, bit);
                *if request.waits { &mut state.barrier } else { &mut state.ready } |= bit;
            }
            Request::ClusterBarrier(request) => {
                if self.cluster_barrier.arrive_or_wait(warp, bit, request) {
                    state.ready |= bit;
                }
            }
            Request::Step(_) => state.stepping |= bit,
            Request::Yield | Request::Phase(_) | Request::Fault(_) => state.polling |= bit,
        }
    }

    /// Notes that these lanes, which ran, are at the same barrier, if that is so and they are all that have not ended: the
    /// usual case, in which their contexts need not be visited again when they go on.
    pub(super) fn note_common_barrier(&mut self, warp: usize, lanes: u32) -> bool {
        let contexts = &self.contexts[warp * WARP..];
        let request = |lane: usize| match contexts[lane].request {
            Request::Barrier(request) => Some(request),
            _ => None,
        };
        let Some(first) = request(lanes.trailing_zeros() as usize % WARP) else { return false };
        if lanes != self.warps[warp].alive
            || !first.waits
            || first.reduction != Reduction::None
            || !lanes_in(lanes).all(|lane| request(lane) == Some(first))
        {
            return false;
        }
        self.barriers.arrive_all(&first, warp, lanes);
        let state = &mut self.warps[warp];
        (state.barrier, state.common_barrier) = (lanes, Some(first));
        true
    }

    /// Answers the operations of the warp whose lanes have all come. Whether any lane can go on.
    ///
    /// A lane that its own mask does not name, which PTX leaves undefined, executes the operation with those that
    /// come with the same mask, as GPUs have lanes do that did not branch apart.
    pub(super) fn complete_gathering(&mut self, warp: usize) -> bool {
        let mut pending = self.warps[warp].gathering;
        let mut released = 0;
        while pending != 0 {
            let request = self.warp_request(warp, pending.trailing_zeros() as usize);
            let same = lanes_in(pending).filter(|&other| {
                let other = self.warp_request(warp, other);
                other.mask == request.mask && other.operation == request.operation
            });
            let arrived = same.fold(0_u32, |lanes, lane| lanes | 1 << lane);
            pending &= !arrived;
            // Lanes that have ended are not waited for, as on the hardware. Where all that have come are outsiders,
            // others may come with other masks: see `complete_outsiders`.
            let has_all = request.mask & self.warps[warp].alive & !arrived == 0;
            if has_all && request.mask & arrived != 0 {
                self.complete_warp(warp, arrived);
                released |= arrived;
            }
        }
        let state = &mut self.warps[warp];
        state.gathering &= !released;
        state.ready |= released;
        if state.ready == 0 && state.stepping != 0 {
            self.step(warp);
        }
        if self.warps[warp].ready == 0 && self.warps[warp].active != 0 {
            self.complete_active_masks(warp);
        }
        self.warps[warp].ready != 0
    }

    /// Where no thread of the block can go on: has the lanes of a warp that are at the same operation execute it
    /// together, whatever their masks, if one of these does not name its own lane, so that no order of arrivals is
    /// right. Whether there are any.
    pub(super) fn complete_outsiders(&mut self) -> bool {
        let mut any = false;
        for warp in 0..self.warps.len() {
            let pending = self.warps[warp].gathering;
            let outsider = lanes_in(pending).find(|&lane| {
                let request = self.warp_request(warp, lane);
                let of_matrices = matches!(
                    request.operation,
                    WarpOperation::MultiplyMatrices | WarpOperation::RearrangeTiles
                );
                request.mask & 1 << lane == 0 && !of_matrices
            });
            let Some(outsider) = outsider else { continue };
            let operation = self.warp_request(warp, outsider).operation;
            let same = lanes_in(pending).filter(|&lane| self.warp_request(warp, lane).operation == operation);
            let released = same.fold(0_u32, |lanes, lane| lanes | 1 << lane);
            self.complete_warp(warp, released);
            self.warps[warp].gathering &= !released;
            self.warps[warp].ready |= released;
            any = true;
        }
        any
    }

    fn warp_request(&self, warp: usize, lane: usize) -> WarpRequest {
        match self.contexts[warp * WARP + lane].request {
            Request::Warp(request) => request,
            _ => WarpRequest { operation: WarpOperation::Synchronise, mask: 0, value: 0, lane: 0, clamp: 0 },
        }
    }

    /// Has these lanes execute their operation together; each gets what it gives for the lanes of its mask.
    fn complete_warp(&mut self, warp: usize, lanes: u32) {
        let first = warp * WARP;
        let requests = std::array::from_fn(|lane| {
            if lanes & 1 << lane != 0 {
                self.warp_request(warp, lane)
            } else {
                WarpRequest { operation: WarpOperation::Synchronise, mask: 0, value: 0, lane: 0, clamp: 0 }
            }
        });
        match requests[lanes.trailing_zeros() as usize % WARP].operation {
            // SAFETY: only compiled code makes such requests, with the address of one on its thread's stack, and
            // all these threads are suspended.
            WarpOperation::MultiplyMatrices => unsafe { complete_multiply(&requests, lanes) },
            // SAFETY: only compiled code makes such requests, with the address of one on its thread's stack,
            // and all these threads are suspended.
            WarpOperation::RearrangeTiles => unsafe { complete_rearrange(&requests, lanes) },
            _ => {}
        }
        let mut left = lanes;
        while left != 0 {
            let mask = requests[left.trailing_zeros() as usize % WARP].mask;
            let same = lanes_in(left).filter(|&lane| requests[lane].mask == mask);
            let receivers = same.fold(0_u32, |lanes, lane| lanes | 1 << lane);
            left &= !receivers;
            let named = if mask & lanes == 0 { receivers } else { mask & lanes };
            let warp_results = warp_results(&requests, named, receivers);
            for lane in lanes_in(receivers) {
                self.contexts[first + lane].warp_result = warp_results[lane];
            }
        }
    }

    /// Lets the lanes go on that are at the first of the accesses at which lanes are: the
    /// lanes of a warp that did not branch apart make them together, and programs without `__syncwarp` rely
    /// on that. Those that branched apart come together again at the first access that is common to them.
    fn step(&mut self, warp: usize) {
        let stepping = self.warps[warp].stepping;
        let site = |lane: usize| match self.contexts[warp * WARP + lane].request {
            Request::Step(site) => site,
            _ => u64::MAX,
        };
        let first = lanes_in(stepping).map(site).min();
        let same = lanes_in(stepping).filter(|&lane| Some(site(lane)) == first);
        let released = same.fold(0_u32, |lanes, lane| lanes | 1 << lane);
        self.warps[warp].stepping &= !released;
        self.warps[warp].ready |= released;
    }

    /// Tells all threads that ask for the phase of an `mbarrier` what they get, before any of them goes on: the first
    /// may use the object's memory anew.
    pub(super) fn resolve_phases(&mut self) {
        for index in 0..self.warps.len() {
            for lane in lanes_in(self.warps[index].polling) {
                let context = &mut self.contexts[index * WARP + lane];
                let Request::Phase(request) = context.request else { continue };
                let offset = request.object.wrapping_sub(context.shared_base);
                // Of an object of other memory, which may be freed meanwhile, the program asks again.
                let is_shared = offset.is_multiple_of(8) && offset.saturating_add(8) <= context.shared_size;
                context.warp_result = u64::from(
                    is_shared && {
                        // SAFETY: the word is in the block's shared memory, whose threads are all suspended.
                        let state = unsafe { (request.object as *const u64).read() };
                        is_over(state, request.parity)
                    },
                );
            }
        }
    }

    /// Lanes at the same `activemask` are active together. They are held until no lane of the warp can run,
    /// so that as many as possible have come: programs expect lanes that did not branch apart to be together.
    fn complete_active_masks(&mut self, warp: usize) {
        let lanes = std::mem::take(&mut self.warps[warp].active);
        self.warps[warp].ready |= lanes;
        let site = |runner: &Self, lane: usize| match runner.contexts[warp * WARP + lane].request {
            Request::ActiveMask(site) => site,
            _ => u64::MAX,
        };
        for lane in lanes_in(lanes) {
            let own = site(self, lane);
            let same_site = lanes_in(lanes).filter(|&other| site(self, other) == own);
            let mask = same_site.fold(0_u64, |mask, lane| mask | 1 << lane);
            self.contexts[warp * WARP + lane].warp_result = mask;
        }
    }

    /// Lets threads go on whose barrier all have reached. Whether there are any.
    pub(super) fn release_barriers(&mut self) -> bool {
        let released = self.barriers.complete(|warp| self.warps[warp].alive);
        if released == 0 {
            return false;
        }
        for index in 0..self.warps.len() {
            let state = &mut self.warps[index];
            if let Some(request) = state.common_barrier {
                if self.barriers.warp_result(released, &request).is_some() {
                    state.ready |= std::mem::take(&mut state.barrier);
                    state.common_barrier = None;
                }
                continue;
            }
            for lane in lanes_in(self.warps[index].barrier) {
                let context = &mut self.contexts[index * WARP + lane];
                let Request::Barrier(request) = context.request else { continue };
                if let Some(warp_result) = self.barriers.warp_result(released, &request) {
                    context.warp_result = warp_result;
                    self.warps[index].barrier &= !(1 << lane);
                    self.warps[index].ready |= 1 << lane;
                }
            }
        }
        self.barriers.clear(released);
        true
    }
}
