//! Reduction kernels: all elements and operations, with random numbers of sources and targets, counts, places
//! and numbers, on the software GPU beside a model.

mod copies;
mod model;
#[path = "../common/split_mix.rs"]
mod split_mix;

use causeway_comm::collective::element::{Element, Operation};
use causeway_comm::collective::kernels::{Kernel, MAX_SOURCES, Makes};
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileOptions, Host, LaunchConfig, Pool, Program};
use split_mix::Random;
use std::sync::Arc;

/// Bytes around what a kernel may write, which must stay.
const GUARD: usize = 32;

/// Nothing is printed by these kernels.
struct Silent;

impl Host for Silent {
    fn print(&self, _: &[u8]) {}

    fn assertion(&self, _: &str) {}

    fn set_condition(&self, _: u64, _: u32) -> bool {
        false
    }
}

/// Memory of the software GPU that begins where a vector does, or does not.
struct Place {
    space: Arc<AddressSpace>,
    taken: u64,
    address: u64,
    expected: Vec<u8>,
}

impl Place {
    /// Elements of a kernel's source, which may be a target, too.
    fn new(space: &Arc<AddressSpace>, kernel: &Kernel, count: u64, random: &mut Random) -> Self {
        let bytes = kernel.element.bytes();
        let shift = if random.below(2) == 0 { 0 } else { random.below(4) * bytes };
        let content: Vec<u8> =
            (0..count).flat_map(|_| model::element(kernel.element, kernel.operation, random)).collect();
        let mut expected = vec![0x5a; GUARD];
        expected.extend_from_slice(&content);
        expected.extend_from_slice(&[0x5a; GUARD]);
        let taken = space.allocate(shift + expected.len() as u64, 256).unwrap();
        space.write(taken + shift, &expected).unwrap();
        Self { space: Arc::clone(space), taken, address: taken + shift + GUARD as u64, expected }
    }

    fn content(&self) -> &[u8] {
        &self.expected[GUARD..self.expected.len() - GUARD]
    }

    fn expect(&mut self, content: &[u8]) {
        let end = self.expected.len() - GUARD;
        self.expected[GUARD..end].copy_from_slice(content);
    }

    fn is_right(&self) -> bool {
        let mut found = vec![0; self.expected.len()];
        self.space.read(self.address - GUARD as u64, &mut found).unwrap();
        found == self.expected
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.space.free(self.taken).unwrap();
    }
}

/// Runs a kernel once and compares all memory. Targets are the first sources, where they are in place.
fn must_agree(space: &Arc<AddressSpace>, program: &Program, kernel: &Kernel, random: &mut Random, seed: u64) {
    let count = [0, 1, random.below(20), random.below(700)][random.below(4) as usize];
    let in_place = random.below(2) == 0;
    let mut sources: Vec<Place> =
        (0..kernel.sources).map(|_| Place::new(space, kernel, count, random)).collect();
    let new = if in_place { kernel.targets().saturating_sub(kernel.sources) } else { kernel.targets() };
    let mut others: Vec<Place> = (0..new).map(|_| Place::new(space, kernel, count, random)).collect();
    let addresses = |locations: &[Place]| locations.iter().map(|place| place.address).collect::<Vec<u64>>();
    let from = addresses(&sources);
    let mut to = if in_place { from.clone() } else { Vec::new() };
    to.truncate(kernel.targets());
    to.extend(addresses(&others));

    let all: Vec<Vec<u8>> = sources.iter().map(|source| source.content().to_vec()).collect();
    for target in 0..kernel.targets() {
        let taken = match kernel.makes {
            Makes::Whole(_) => kernel.sources,
            Makes::Prefixes { with_own } => target + usize::from(with_own),
        };
        if taken == 0 {
            continue;
        }
        let place = match in_place {
            true if target < kernel.sources => &mut sources[target],
            true => &mut others[target - kernel.sources],
            false => &mut others[target],
        };
        let expected = model::together(kernel.element, kernel.operation, &all[..taken], place.content());
        place.expect(&expected);
    }

    let (work, vectors) = kernel.work(count, &[to.as_slice(), &from].concat());
    assert!(vectors <= count && work <= count);
    if let Some(elements) = count.checked_div(vectors) {
        // A power of two, and some more elements behind all vectors.
        let lanes = 1 << elements.ilog2();
        let bytes = lanes * kernel.element.bytes();
        let all_fit = to.iter().chain(&from).all(|address| address % bytes == 0);
        assert!(
            all_fit,
            "seed {seed}: {kernel:?}: a vector of {bytes} bytes lies elsewhere than vectors may"
        );
    }
    let parameters = [&[count, vectors], to.as_slice(), &from].concat();
    let params: Vec<u8> = parameters.iter().flat_map(|parameter| parameter.to_le_bytes()).collect();
    let blocks = 1 + random.below(3) as u32;
    let config = LaunchConfig {
        grid: [blocks, 1, 1],
        block: [32, 1, 1],
        cluster: None,
        dynamic_shared: 0,
        cooperative: false,
        priority: 0,
        params: &params,
    };
    let loaded = program.load(space, None).unwrap();
    loaded.launch("kernel", config, &Pool::new(1), &Silent).unwrap();
    for (at, place) in sources.iter().chain(&others).enumerate() {
        assert!(place.is_right(), "seed {seed}: {kernel:?}, {count} elements, {in_place}, place {at}");
    }
}

#[test]
fn kernels_put_together_what_their_operations_say() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    let space = Arc::new(AddressSpace::new(1 << 30).unwrap());
    for element in (1..=19).filter_map(Element::of_code) {
        for operation in Operation::ALL.into_iter().filter(|operation| element.supports(*operation)) {
            for _ in 0..2 {
                let sources = 2 + random.below(MAX_SOURCES as u64 - 1) as usize;
                let makes = match random.below(3) {
                    0 => Makes::Whole(1 + random.below(MAX_SOURCES as u64) as usize),
                    1 => Makes::Prefixes { with_own: true },
                    _ => Makes::Prefixes { with_own: false },
                };
                let kernel = Kernel { element, operation, sources, makes };
                let text = kernel.text().unwrap();
                let program = Program::compile(&[&text], &CompileOptions::default())
                    .unwrap_or_else(|error| panic!("{kernel:?}: {error}\n{text}"));
                for _ in 0..4 {
                    must_agree(&space, &program, &kernel, &mut random, seed);
                }
            }
        }
    }
}

#[test]
fn vectors_are_taken_where_all_addresses_allow_it() {
    let kernel = |code, sources| Kernel {
        element: Element::of_code(code).unwrap(),
        operation: Operation::Sum,
        sources,
        makes: Makes::Whole(1),
    };
    // Bytes, singles and doubles: 16 bytes each, and less where registers are short.
    for (code, sources, lanes) in [(5, 2, 16), (11, 2, 4), (12, 2, 2), (12, 16, 2), (9, 16, 4)] {
        let work = |count, address| kernel(code, sources).work(count, &[4096, address, 8192]);
        assert_eq!(work(1000 * lanes + 1, 4096), (1000, 1000), "element {code}");
        assert_eq!(work(100, 4097), (100, 0), "element {code}");
    }
}

#[test]
fn there_are_no_kernels_for_what_is_not_defined() {
    let single = Element::of_code(11).unwrap();
    let kernel =
        |operation, sources, makes| Kernel { element: single, operation, sources, makes }.text().is_some();
    assert!(kernel(Operation::Sum, 2, Makes::Whole(1)));
    assert!(!kernel(Operation::BitXor, 2, Makes::Whole(1)));
    assert!(!kernel(Operation::Sum, 1, Makes::Whole(1)));
    assert!(!kernel(Operation::Sum, MAX_SOURCES + 1, Makes::Whole(1)));
    assert!(!kernel(Operation::Sum, 2, Makes::Whole(0)));
    assert!(!kernel(Operation::Sum, 2, Makes::Whole(MAX_SOURCES + 1)));
}
