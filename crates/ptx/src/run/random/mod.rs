//! Random numbers, for the library that stands in for cuRAND.
//!
//! As for products (see [`gemm`](super::gemm)), device memory is read and written on the calling block's
//! coroutine, where nothing is owned; the numbers are made on the worker's own stack.

mod distribution;
mod philox;
mod xorwow;

use std::cell::RefCell;

use causeway_gemm::{Distribution, Generator, RandomRequest, RandomStep};

use super::context::{Raised, ThreadContext};
use super::gemm::memory::{INVALID, read_array, write_array};
use distribution::{MAX_NUMBERS, Shape};
use xorwow::Xorwow;

/// Results that are made between two writes.
const CHUNK: u64 = 8192;

/// What a thread needs for a step. It stays until the next one, since a kernel that faults cannot release it.
struct Scratch {
    state: Vec<u64>,
    results: Vec<u64>,
    shape: Option<Shape>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { state: Vec::new(), results: Vec::new(), shape: None }) };
}

/// The lanes of a generator, and where in them the next result is.
struct Lanes {
    generator: Generator,
    seed: u64,
    position: u64,
}

/// Takes the step; gives what ends the kernel.
///
/// # Safety
/// `thread` is the context that compiled code was called with, on that code's own coroutine.
pub(super) unsafe fn generate(thread: *mut ThreadContext, request: &RandomRequest) -> Result<(), Raised> {
    // SAFETY: the context belongs to the running thread, and its launch lasts as long.
    let (launch, block, yielder) = unsafe { (&*(*thread).launch, (*thread).ctaid[0], &*(*thread).yielder) };
    if block != 0 {
        return Ok(());
    }
    let step = RandomStep::from_number(request.step).ok_or(INVALID)?;
    let generator = Generator::from_number(request.generator).ok_or(INVALID)?;
    let distribution = Distribution::from_number(request.distribution).ok_or(INVALID)?;
    let state_len = generator.lanes() * generator.lane_bytes() / 8;
    let (state, results) = yielder.on_parent_stack(|| prepare(state_len, distribution, request));
    if step == RandomStep::Seed {
        yielder.on_parent_stack(|| {
            SCRATCH.with_borrow_mut(|scratch| seed(generator, request, &mut scratch.state));
        });
    } else {
        let mut lanes = Lanes { generator, seed: request.seed, position: request.position };
        if lanes.position >= generator.lanes() * generator.positions_of_lane() {
            return Err(INVALID);
        }
        // SAFETY: there is room for the state, and this runs on a coroutine.
        unsafe { read_array::<u64>(launch.space, request.state, state_len, state as *mut u64)? };
        let size = distribution.result_bytes();
        for first in (0..request.count).step_by(CHUNK as usize) {
            if launch.progress.is_stopped() {
                return Ok(());
            }
            let len = CHUNK.min(request.count - first);
            let is_made = yielder.on_parent_stack(|| {
                SCRATCH.with_borrow_mut(|scratch| lanes.fill(scratch, distribution, len as usize))
            });
            if !is_made {
                return Err(INVALID);
            }
            let to = first.checked_mul(size).and_then(|offset| request.results.checked_add(offset));
            let to = to.ok_or(INVALID)?;
            // SAFETY: the results have been made, and this runs on a coroutine.
            unsafe {
                if size == 8 {
                    write_array::<u64>(launch.space, to, len, results as *const u64)?;
                } else {
                    write_array::<u32>(launch.space, to, len, results as *const u32)?;
                }
            }
        }
    }
    // SAFETY: the state has been set, and this runs on a coroutine.
    unsafe { write_array::<u64>(launch.space, request.state, state_len, state as *const u64) }
}

/// Makes room for state and results, and gives where.
fn prepare(state_len: u64, distribution: Distribution, request: &RandomRequest) -> (usize, usize) {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.state.resize(state_len as usize, 0);
        scratch.results.resize(CHUNK as usize, 0);
        scratch.shape = Shape::new(distribution, request.parameters);
        (scratch.state.as_mut_ptr() as usize, scratch.results.as_mut_ptr() as usize)
    })
}

fn seed(generator: Generator, request: &RandomRequest, state: &mut [u64]) {
    match generator {
        Generator::Xorwow => xorwow::seed(request.seed, request.position, as_xorwow(state)),
        Generator::Philox => {
            let of_lane = generator.positions_of_lane();
            let all = generator.lanes() * of_lane;
            for (lane, counter) in state.iter_mut().enumerate() {
                let is_used = (lane as u64) < request.position % all / of_lane;
                *counter = request.position / all + u64::from(is_used);
            }
        }
    }
}

/// The state of all lanes of `xorwow`.
fn as_xorwow(state: &mut [u64]) -> &mut [Xorwow] {
    let lanes = size_of_val(state) / size_of::<Xorwow>();
    // SAFETY: the words are aligned for, as large as, and initialised as so many states, which are plain numbers.
    unsafe { std::slice::from_raw_parts_mut(state.as_mut_ptr().cast(), lanes) }
}

impl Lanes {
    /// Makes results, one behind another in the bytes of the buffer; not if a parameter is out of range.
    fn fill(&mut self, scratch: &mut Scratch, distribution: Distribution, len: usize) -> bool {
        let Some(shape) = &scratch.shape else { return false };
        // SAFETY: all bits are numbers, and those of half the size are aligned where others are.
        let halves: &mut [u32] = unsafe { scratch.results.align_to_mut().1 };
        let width = distribution.result_bytes() as usize / size_of::<u32>();
        let mut made = 0;
        while made < len {
            let (of_lane, positions) =
                (self.results_of_lane(distribution), self.generator.positions_of_lane());
            let (lane, first) = (self.position / positions, (self.position % positions) as usize);
            let mut turn = Turn::new(self, lane, &mut scratch.state);
            let mut index = 0;
            while index < of_lane {
                let mut numbers = [0; MAX_NUMBERS];
                numbers[..distribution.numbers() as usize].fill_with(|| turn.draw());
                for bits in &shape.results(&numbers)[..distribution.results() as usize] {
                    if index >= first && made < len {
                        let parts = [*bits as u32, (bits >> 32) as u32];
                        halves[width * made..][..width].copy_from_slice(&parts[..width]);
                        made += 1;
                        self.position += u64::from(positions > 1);
                    }
                    index += 1;
                }
            }
            let is_complete = positions == 1 || self.position.is_multiple_of(positions);
            if is_complete {
                turn.end();
            }
            self.position += u64::from(positions == 1);
            self.position %= self.generator.lanes() * positions;
        }
        true
    }

    fn results_of_lane(&self, distribution: Distribution) -> usize {
        self.generator.results_of_lane(distribution) as usize
    }
}

/// The numbers of a lane that results are made of. The lane's state remains until the end.
enum Turn<'a> {
    Xorwow(Xorwow, &'a mut Xorwow),
    Philox { seed: u64, lane: u64, used: u64, counter: &'a mut u64, block: [u32; 4] },
}

impl<'a> Turn<'a> {
    fn new(lanes: &Lanes, lane: u64, state: &'a mut [u64]) -> Self {
        match lanes.generator {
            Generator::Xorwow => {
                let stored = &mut as_xorwow(state)[lane as usize];
                Self::Xorwow(*stored, stored)
            }
            Generator::Philox => {
                let counter = &mut state[lane as usize];
                Self::Philox { seed: lanes.seed, lane, used: 0, counter, block: [0; 4] }
            }
        }
    }

    fn draw(&mut self) -> u32 {
        match self {
            Self::Xorwow(state, _) => state.draw(),
            Self::Philox { seed, lane, used, counter, block } => {
                let index = (*used % 4) as usize;
                if index == 0 {
                    *block = philox::numbers(*seed, *lane, counter.wrapping_add(*used / 4));
                }
                *used += 1;
                block[index]
            }
        }
    }

    fn end(self) {
        match self {
            Self::Xorwow(state, stored) => *stored = state,
            Self::Philox { used, counter, .. } => *counter = counter.wrapping_add(used / 4),
        }
    }
}
