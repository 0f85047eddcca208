//! Kernels that copy ranges: these and nothing else, and nothing where their guard says so.

use std::sync::Arc;

use causeway_comm::collective::captured::recording::{Move, copy_text, copy_unit};
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileOptions, LaunchConfig, Pool, Program};

use super::{Random, Silent};

/// Room of a range, and of the bytes around it that must stay.
const ROOM: u64 = 4096;

#[test]
fn kernels_copy_their_ranges() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    let space = Arc::new(AddressSpace::new(1 << 26).unwrap());
    let word = space.allocate(8, 256).unwrap();
    for _ in 0..60 {
        let ranges = 1 + random.below(5);
        let memory = space.allocate(2 * ranges * ROOM, 256).unwrap();
        let content: Vec<u8> = (0..2 * ranges * ROOM).map(|_| random.next() as u8).collect();
        space.write(memory, &content).unwrap();
        // All addresses are multiples of 1, 2, 4, 8 or 16.
        let multiple = 1 << random.below(5);
        let mut expected = content.clone();
        let guard = u64::from(random.below(4) == 0);
        let mut moves = Vec::new();
        for range in 0..ranges {
            let [from, to] = [2 * range, 2 * range + 1].map(|at| at * ROOM + multiple * random.below(8));
            let most = [20, 2000][random.below(2) as usize];
            let bytes = random.below(most);
            moves.push(Move { to: memory + to, from: memory + from, bytes });
            if guard == 0 {
                let copied = &content[from as usize..(from + bytes) as usize];
                expected[to as usize..(to + bytes) as usize].copy_from_slice(copied);
            }
        }
        space.write(word, &guard.to_le_bytes()).unwrap();

        let unit = copy_unit(&moves);
        assert!(unit >= multiple, "seed {seed}");
        let text = copy_text(moves.len(), unit);
        let program = Program::compile(&[&text], &CompileOptions::default())
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let parameters = moves.iter().flat_map(|one| [one.to, one.from, one.bytes]).chain([word]);
        let params: Vec<u8> = parameters.flat_map(u64::to_le_bytes).collect();
        let blocks = 1 + random.below(3) as u32;
        let grid = [blocks, moves.len() as u32, 1];
        let config = LaunchConfig {
            grid,
            block: [32, 1, 1],
            cluster: None,
            dynamic_shared: 0,
            cooperative: false,
            priority: 0,
            params: &params,
        };
        let loaded = program.load(&space, None).unwrap();
        loaded.launch("kernel", config, &Pool::new(1), &Silent).unwrap();
        let mut found = vec![0; content.len()];
        space.read(memory, &mut found).unwrap();
        assert!(found == expected, "seed {seed}: units of {unit}, guard {guard}, {moves:?}");
        space.free(memory).unwrap();
    }
}
