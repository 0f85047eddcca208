import os
os.chdir('crates/client')
def sub(p, pairs):
    s=open(p).read()
    for a,b in pairs:
        assert s.count(a)==1, (p,a,s.count(a))
        s=s.replace(a,b)
    open(p,'w').write(s)
r=open('mem/reservation.rs').read()
r=r.replace('''                memory::add(base, size, context.handle, device, Origin::Allocation)
                    .inspect_err(|_| window.give_back(base, size))?;
''','')
r=r.replace('''            Some(window) => {
                memory::remove(self.base, Origin::Allocation);
                window.give_back(self.base, self.size);
            }
''','''            Some(window) => window.give_back(self.base, self.size),
''')
r=r.replace("use crate::model::memory::{self, Origin};\n","").replace("use crate::model::address::heap::Stamp;","use crate::model::address::heap::{Stamp, peers_of};")
r=r.replace("                accessors: Vec::new(),\n","                accessors: peers_of(self.device).collect(),\n")
r=r.replace('''    /// The program's number of its device.
    pub fn device(&self) -> CUdevice {
        self.device
    }
''','''    /// The program's number of its device.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    /// The context in which it was made.
    pub fn context(&self) -> Handle<Context> {
        self.context
    }

    /// Whether its addresses came without memory, and are in no table.
    pub fn is_of_window(&self) -> bool {
        self.window.is_some()
    }
''')
r=r.replace('''impl Hold {
    /// What it keeps.
    pub fn reservation(&self) -> &Arc<Reservation> {
        &self.reservation
    }
}

''','')
r=r.replace('''        let (context, state) = (Handle::NULL, Mutex::default());
        Arc::new(Self { base, size, device: 0, context, window: None, state })
''','''        count(0, |usage| usage.reserved += size);
        let (context, state) = (Handle::NULL, Mutex::default());
        Arc::new(Self { base, size, device: 0, context, window: None, state })
''')
open('src/model/graph/reservation.rs','w').write(r)
sub('src/model/address/heap/mod.rs',[("fn peers_of(device: CUdevice) -> impl Iterator<Item = CUdevice> {","pub fn peers_of(device: CUdevice) -> impl Iterator<Item = CUdevice> {")])
p='src/model/graph/memory.rs'
s=open(p).read()
i=s.index('//! Memory of allocation nodes.'); j=s.index('use super::{Edge, world};')
s='''//! Memory of allocation nodes.
//!
//! The address of such memory is known when the node is made and stays what it is for as long as the graph and its
//! executable graphs live. The memory itself is there while an executable graph needs it, or the program
//! ([`reservation`](super::reservation)). What is in it between two launches is nobody's business. Nodes of one graph share
//! memory where one comes after the end of the other ([`sharing`](super::sharing)).

'''+s[j:]
i=s.index('/// Bytes of blocks of a device, now'); j=s.index('/// The memory that begins at each address;')
s=s[:i]+s[j:]
s=s.replace('static USAGE: LazyLock<Mutex<HashMap<CUdevice, Usage>>> = LazyLock::new(Mutex::default);\n','')
s=s.replace('static LIVE: LazyLock<Mutex<HashMap<CUdeviceptr, Arc<Allocation>>>> = LazyLock::new(Mutex::default);','static LIVE: LazyLock<Mutex<HashMap<CUdeviceptr, (Arc<Allocation>, Hold)>>> = LazyLock::new(Mutex::default);')
i=s.index('/// Memory of allocation nodes of one graph.\npub struct Block {'); j=s.index('/// The memory of one allocation node.')
s=s[:i]+'''/// Memory of allocation nodes of one graph.
pub struct Block {
    /// Its first address.
    pub address: CUdeviceptr,
    /// Its size in bytes.
    pub size: usize,
    /// The program's number of its device.
    pub device: CUdevice,
    /// What it is a part of.
    reservation: Arc<Reservation>,
}

'''+s[j:]
i=s.index('impl Block {\n    fn new('); j=s.index('impl Allocation {\n    /// Memory as a description says')
s=s[:i]+'''impl Block {
    fn new(graph: Handle<Graph>, device: CUdevice, size: usize) -> Result<Arc<Self>, CUresult> {
        let context = context::current_state()?;
        if context.device != device {
            return Err(crate::abi::entry::refuse_use!(
                "memory of graphs on another device than the current one"
            ));
        }
        session::of(context.handle)?.faults().check()?;
        let room = world().graph_mut(graph)?.blocks.room(device, size);
        let (reservation, address) = match room {
            Some(room) => room,
            None => {
                // Without the lock, since the server may have to be asked.
                let reservation = Reservation::new(device, size as u64)?;
                let address = world().graph_mut(graph)?.blocks.open(&reservation, size);
                (reservation, address)
            }
        };
        if reservation.is_of_window() {
            memory::add(address, size as u64, reservation.context(), device, Origin::Allocation)?;
        }
        Ok(Arc::new(Self { address, size, device, reservation }))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.reservation.is_of_window() {
            // A context that has ended took it out.
            memory::remove(self.address, Origin::Allocation);
        }
    }
}

'''+s[j:]
s=s.replace('                let block = Block::new(device, size)?;','                let block = Block::new(graph, device, size)?;')
s=s.replace('''        live.insert(self.address, Arc::clone(self));
        Ok(())
    }
}
''','''        // The executable graph that is launched has it, so that the server is not asked.
        let hold = self.hold()?;
        live.insert(self.address, (Arc::clone(self), hold));
        Ok(())
    }

    /// Sees to it that there is memory, as long as the result lives.
    pub fn hold(&self) -> Result<Hold, CUresult> {
        self.block.reservation.hold()
    }
}
''')
s=s.replace("        Some(_allocation) => Some(Ok(())),","        Some(_freed) => Some(Ok(())),")
i=s.index('/// Bytes of nodes of a device, as an attribute says.'); j=s.index('#[cfg(test)]\nimpl Block {')
s=s[:i]+'''/// Bytes of nodes of a device, as an attribute says.
pub fn attribute(device: CUdevice, attribute: CUgraphMem_attribute) -> Result<u64, CUresult> {
    let usage = reservation::usage(device);
    match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => Ok(usage.used),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => Ok(usage.reserved),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => Ok(usage.most_used),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => Ok(usage.most_reserved),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Sets the most bytes so far to what there is now, the only change that CUDA knows.
pub fn reset_attribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: u64,
) -> Result<(), CUresult> {
    let reset = match attribute {
        _ if value != 0 => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => |usage: &mut Usage| usage.most_used = 0,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => {
            |usage: &mut Usage| usage.most_reserved = 0
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    reservation::count(device, reset);
    Ok(())
}

'''+s[j:]
s=s.replace('''        USAGE.lock().entry(0).or_default().held += size as u64;
        Arc::new(Self { address, size, device: 0 })
''','''        let reservation = Reservation::for_test(address, size as u64);
        Arc::new(Self { address, size, device: 0, reservation })
''')
s=s.replace('use super::{Edge, world};\nuse crate::abi::calls;\n','use super::reservation::{self, Hold, Reservation, Usage};\nuse super::{Edge, world};\n')
s=s.replace('use crate::model::{context, device};\n','use crate::model::memory::{self, Origin};\nuse crate::model::{context, device};\nuse crate::remote::session;\n')
open(p,'w').write(s)
p='src/model/graph/sharing.rs'
s=open(p).read()
s=s.replace('''/// The memory of a graph's allocation nodes.
#[derive(Default)]
pub struct Blocks(Vec<Divided>);
''','''/// The memory of a graph's allocation nodes.
#[derive(Default)]
pub struct Blocks {
    divided: Vec<Divided>,
    /// The addresses that were reserved last, and how many bytes of them blocks have.
    reserved: Option<(Arc<Reservation>, u64)>,
}
''')
s=s.replace('self.0.','self.divided.')
s=s.replace('''    /// Enters a block that''','''    /// Addresses for a new block among those that the graph has reserved.
    pub fn room(&mut self, device: CUdevice, size: usize) -> Option<(Arc<Reservation>, CUdeviceptr)> {
        let (reservation, used) = self.reserved.as_mut()?;
        let start = used.next_multiple_of(ALIGNMENT);
        let end = start.checked_add(size as u64)?;
        if reservation.device() != device || end > reservation.size() {
            return None;
        }
        *used = end;
        Some((Arc::clone(reservation), reservation.base() + start))
    }

    /// Takes addresses for the graph's blocks, and gives those of the first, which has `size` bytes.
    pub fn open(&mut self, reservation: &Arc<Reservation>, size: usize) -> CUdeviceptr {
        self.reserved = Some((Arc::clone(reservation), size as u64));
        reservation.base()
    }

    /// Enters a block that''')
s=s.replace('use super::memory::Block;\n','use super::memory::Block;\nuse super::reservation::Reservation;\n')
# property test
i=s.rindex('}\n')
s=s[:i]+'''
    /// What happens to a graph: a node that allocates so much, or one that frees an allocation, each after some of the nodes before.
    #[derive(Debug, Clone)]
    enum Step {
        Allocate { size: usize, after: Vec<usize> },
        Free { which: usize, after: Vec<usize> },
    }

    fn step() -> impl Strategy<Value = Step> {
        let after = || prop::collection::vec(0..1000_usize, 0..3);
        prop_oneof![
            3 => (1..5000_usize, after()).prop_map(|(size, after)| Step::Allocate { size, after }),
            2 => (0..1000_usize, after()).prop_map(|(which, after)| Step::Free { which, after }),
        ]
    }

    /// A node with all that come before it, the bytes that it allocates, and the node that frees them.
    struct Node {
        ancestors: HashSet<u64>,
        bytes: Range<CUdeviceptr>,
        freed_by: Option<u64>,
    }

    proptest! {
        #[test]
        fn nodes_that_can_have_memory_at_the_same_time_share_no_byte(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let (mut blocks, mut nodes, mut next) = (Blocks::default(), Vec::<Node>::new(), BASE);
            for step in &steps {
                let number = nodes.len() as u64;
                let (Step::Allocate { after, .. } | Step::Free { after, .. }) = step;
                let mut before: Vec<u64> =
                    after.iter().filter(|_| number > 0).map(|other| *other as u64 % number).collect();
                let unfreed: Vec<usize> = (0..nodes.len())
                    .filter(|node| !nodes[*node].bytes.is_empty() && nodes[*node].freed_by.is_none())
                    .collect();
                let freed = match step {
                    Step::Free { which, .. } if !unfreed.is_empty() => Some(unfreed[which % unfreed.len()]),
                    Step::Free { .. } => continue,
                    Step::Allocate { .. } => None,
                };
                before.extend(freed.map(|node| node as u64));
                let mut ancestors: HashSet<u64> = before.iter().copied().collect();
                for other in &before {
                    ancestors.extend(&nodes[*other as usize].ancestors);
                }
                let earlier: HashSet<_> = ancestors.iter().map(|other| node(*other)).collect();
                let bytes = match (step, freed) {
                    (_, Some(freed)) => {
                        blocks.release(nodes[freed].bytes.start, node(number));
                        nodes[freed].freed_by = Some(number);
                        0..0
                    }
                    (Step::Allocate { size, .. }, _) => {
                        let start = blocks.take(0, *size, &earlier).map_or_else(
                            || {
                                let block = Block::for_test(next, *size);
                                blocks.enter(&block, *size);
                                next += 8192;
                                block.address
                            },
                            |(_, address)| address,
                        );
                        start..start + *size as u64
                    }
                    (Step::Free { .. }, None) => 0..0,
                };
                nodes.push(Node { ancestors, bytes, freed_by: None });
            }
            for (number, one) in nodes.iter().enumerate() {
                for (other_number, other) in nodes.iter().enumerate().skip(number + 1) {
                    if one.bytes.is_empty() || other.bytes.is_empty() || !overlap(&one.bytes, &other.bytes) {
                        continue;
                    }
                    let is_over = one.freed_by.is_some_and(|freed| other.ancestors.contains(&freed));
                    prop_assert!(is_over, "{number} and {other_number} in {steps:?}");
                }
            }
        }
    }
}
'''
s=s.replace('    use super::*;\n\n    const BASE','    use super::*;\n    use proptest::prelude::*;\n\n    const BASE',1)
open(p,'w').write(s)
sub('src/model/graph/mod.rs',[
("pub mod memory;\n","pub mod memory;\npub mod reservation;\n"),
("//! | which nodes have the same memory | [`sharing`] |","//! | when is there memory at its addresses | [`reservation`] |\n//! | which nodes have the same memory | [`sharing`] |"),
("    /// Gives the graphs that a node carries out to it.","""    /// The memory of the allocation nodes of a graph, and of those that its nodes carry out.
    pub fn allocations(&self, graph: Handle<Graph>) -> Result<Vec<Arc<Allocation>>, CUresult> {
        let mut found = Vec::new();
        for node in &self.graph(graph)?.nodes {
            match &self.node(*node)?.work {
                Work::Allocate(allocation) => found.push(Arc::clone(allocation)),
                work => {
                    for inner in work.graphs() {
                        found.extend(self.allocations(inner)?);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Gives the graphs that a node carries out to it."""),
("use memory::Block;","use memory::{Allocation, Block};"),
("        if earlier.is_empty() {\n            return Ok(None);\n        }\n","        if earlier.is_empty() {\n            return Ok(None);\n        }\n"),
])
sub('src/submit/graph/executable/mod.rs',[
("    /// User objects that it keeps.\n    held: Held,\n","    /// User objects that it keeps.\n    held: Held,\n    /// The memory of its allocation nodes.\n    memory: Vec<Hold>,\n    /// The end of the last launch, if it has such memory.\n    launched: Option<Stamp>,\n"),
("    handles::drop_handle(executable.handle);\n","    handles::drop_handle(executable.handle);\n    reservation::trim();\n"),
("    let state = &mut *executable.state.lock();\n    if let","    let state = &mut *executable.state.lock();\n    reservation::retire(core::mem::take(&mut state.memory), state.launched.take().as_ref());\n    if let"),
("use crate::model::graph::objects::Held;\n","use crate::model::address::heap::Stamp;\nuse crate::model::graph::objects::Held;\nuse crate::model::graph::reservation::{self, Hold};\n"),
])
s=open('src/submit/graph/executable/mod.rs').read()
s=s.replace("use crate::model::graph::OnServer;\nuse crate::model::address::heap::Stamp;\n","use crate::model::address::heap::Stamp;\nuse crate::model::graph::OnServer;\n")
open('src/submit/graph/executable/mod.rs','w').write(s)
sub('src/submit/graph/executable/make.rs',[
("    let mut parts = Vec::new();\n    let built","    reservation::trim();\n    // Before anything is sent: the driver looks at addresses of copies and fills.\n    let memory = hold(&world, graph)?;\n    let mut parts = Vec::new();\n    let built"),
("            let _ = destroy_parts(home, &parts);\n            return Err(status);","            let _ = destroy_parts(home, &parts);\n            reservation::retire(memory, None);\n            return Err(status);"),
("    let state = Mutex::new(State { nodes, concerned, steps, held, last: None });","    let state = State { nodes, concerned, steps, held, memory, launched: None, last: None };\n    let state = Mutex::new(state);"),
("/// What counts of the nodes when the graph is divided.","""/// Sees to it that there is memory for the allocation nodes of a graph.
fn hold(world: &World, graph: Handle<Graph>) -> Result<Vec<Hold>, CUresult> {
    let mut holds = Vec::new();
    for allocation in world.allocations(graph)? {
        match allocation.hold() {
            Ok(hold) => holds.push(hold),
            Err(status) => {
                reservation::retire(holds, None);
                return Err(status);
            }
        }
    }
    Ok(holds)
}

/// What counts of the nodes when the graph is divided."""),
("use crate::model::graph::work::Work;\n","use crate::model::graph::reservation::{self, Hold};\nuse crate::model::graph::work::Work;\n"),
])
sub('src/submit/graph/executable/launch.rs',[
("        if !is_whole {\n            self.note_launch(state, stream)?;\n        }\n","        if !is_whole {\n            self.note_launch(state, stream)?;\n        }\n        if !state.memory.is_empty() {\n            state.launched = Some(heap::stamp(stream));\n        }\n"),
("use crate::model::graph::memory;\n","use crate::model::address::heap;\nuse crate::model::graph::memory;\n"),
])
sub('src/abi/calls/graph/objects.rs',[
("    device::on_server(device).map(|_| ())\n","    device::on_server(device)?;\n    reservation::trim();\n    Ok(())\n"),
])
s=open('src/abi/calls/graph/objects.rs').read()
print([l for l in s.splitlines() if l.startswith('use')])
os.chdir('memory')

s=open('crates/client/src/abi/calls/graph/objects.rs').read()
s=s.replace("use crate::model::graph::{self, memory, objects, world};","use crate::model::graph::{self, memory, objects, reservation, world};")
open('crates/client/src/abi/calls/graph/objects.rs','w').write(s)
sub('tests/cuda/graph_memory.cu',[
("    cudaGraphExec_t executable;\n    SAY(cudaGraphInstantiate(&executable, graph, 0));\n    SAY(cudaGraphUpload","    cudaGraphExec_t executable;\n    // Nodes have addresses; memory comes later.\n    require_nothing(\"made\");\n    SAY(cudaGraphInstantiate(&executable, graph, 0));\n    SAY(cudaGraphUpload"),
("    SAY(cudaGraphExecDestroy(executable));\n    SAY(cudaGraphInstantiate(&automatic,","    SAY(cudaGraphExecDestroy(executable));\n    SAY(cudaDeviceGraphMemTrim(0));\n    require_nothing(\"without an executable graph\");\n    SAY(cudaGraphInstantiate(&automatic,"),
])
e=open('tests/cuda/expected/graph_memory.txt').read()
a="unfreed: cudaGraphExecDestroy(executable): cudaSuccess\n"
assert e.count(a)==1
e=e.replace(a,a+"unfreed: cudaDeviceGraphMemTrim(0): cudaSuccess\n")
open('tests/cuda/expected/graph_memory.txt','w').write(e)
sub('docs/src/reference/limits.md',[
("| Memory of allocation nodes | is held from the making of the node to the end of its graph and executable graphs, and so counts as used and reserved that long; `cuDeviceGraphMemTrim` has nothing to give back |","| Memory of allocation nodes | is there from instantiation, not from the first launch, until the executable graphs are gone, and counts as used and reserved that long; `cuDeviceGraphMemTrim` gives back what is left of them when their launches are done |"),
])
sub('docs/src/concepts/capture.md',[
("The address of an allocation node is known when the node is made. Nodes","The address of an allocation node is known when the node is made. The memory comes with the first executable\ngraph and goes when the last is gone and its launches are done. Nodes"),
])
c=open('CHANGELOG.md').read()
c=c.replace("## 0.2.0","- Allocation nodes of graphs take memory when the graph is instantiated, not when they are made, and\n  `cuDeviceGraphMemTrim` gives back what executable graphs have left.\n\n## 0.2.0",1)
c=c.replace("  on the software GPU. So do PTX without `.address_size`, and calls with `.calltargets`.\n\n- Alloc","  on the software GPU. So do PTX without `.address_size`, and calls with `.calltargets`.\n- Alloc")
open('CHANGELOG.md','w').write(c)
