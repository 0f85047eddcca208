//! NUMA nodes: the node of an address or of a device, its processors, and where new memory lies.
//!
//! hwloc would tell, but its bindings need the library when Causeway is built, and what is asked here is
//! little: the kernel's own list of the processors of a node, and its answers for an address and for a device.

use std::path::Path;
use std::sync::OnceLock;

/// The most nodes that are distinguished.
pub const MAX_NODES: usize = 16;

/// `MPOL_F_NODE | MPOL_F_ADDR`: the node of an address is asked for, as linux/mempolicy.h numbers it.
const NODE_OF_ADDRESS: libc::c_ulong = 1 | 2;

/// `MPOL_PREFERRED`: pages come from a node, and from others where that has none.
const PREFERRED: libc::c_ulong = 1;

/// The processors of each node that has some.
fn nodes() -> &'static [(usize, Vec<usize>)] {
    static NODES: OnceLock<Vec<(usize, Vec<usize>)>> = OnceLock::new();
    NODES.get_or_init(|| nodes_below(Path::new("/")))
}

/// The same by the files below a root.
fn nodes_below(root: &Path) -> Vec<(usize, Vec<usize>)> {
    let processors = |node: usize| {
        let path = root.join(format!("sys/devices/system/node/node{node}/cpulist"));
        parse_list(std::fs::read_to_string(path).ok()?.trim())
    };
    let found = (0..MAX_NODES).filter_map(|node| Some((node, processors(node)?)));
    found.filter(|(_, processors)| !processors.is_empty()).collect()
}

/// The node of a device, by its folder below `/sys`, on a machine with several; nothing where it is not known.
pub fn node_of_device(folder: &str) -> Option<usize> {
    node_of_device_below(Path::new("/"), folder)
}

fn node_of_device_below(root: &Path, folder: &str) -> Option<usize> {
    let nodes = if root == Path::new("/") { nodes().to_vec() } else { nodes_below(root) };
    if nodes.len() < 2 {
        return None;
    }
    // A device without one has -1.
    let node = std::fs::read_to_string(root.join("sys").join(folder).join("numa_node")).ok()?;
    let node = node.trim().parse().ok()?;
    nodes.iter().any(|(number, _)| *number == node).then_some(node)
}

/// Has pages of memory that have not been touched come from a node, if that has some. Of memory that processes share
/// it counts for all of them.
///
/// # Safety
/// So many bytes are mapped from the address on, which is that of a page.
pub unsafe fn prefer(address: *mut u8, bytes: usize, node: usize) {
    let mask: libc::c_ulong = 1 << node.min(MAX_NODES - 1);
    let bits = libc::c_ulong::BITS as libc::c_ulong;
    // SAFETY: the caller has the pages mapped; the kernel reads the mask. A refusal costs speed and nothing
    // else.
    unsafe { libc::syscall(libc::SYS_mbind, address, bytes, PREFERRED, &raw const mask, bits, 0) };
}

/// Reads a list such as `0-3,8,10-11`; nothing when it is none.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last >= libc::CPU_SETSIZE as usize {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The node where the memory at an address lies, on a machine with several; nothing where it is not known.
pub(crate) fn node_of(address: *const u8) -> Option<usize> {
    if nodes().len() < 2 {
        return None;
    }
    let mut node: libc::c_int = -1;
    // SAFETY: the kernel writes one number to `node` and no mask, since none is given; it looks at the page
    // tables for the address and not at the memory behind it.
    let status = unsafe {
        let nothing = core::ptr::null_mut::<libc::c_ulong>();
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, nothing, 0_usize, address, NODE_OF_ADDRESS)
    };
    let node = usize::try_from(node).ok().filter(|_| status == 0)?;
    nodes().iter().any(|(number, _)| *number == node).then_some(node)
}

/// Binds the calling thread to the processors of a node, as far as it may use them.
pub fn bind_to(node: usize) {
    let Some((_, processors)) = nodes().iter().find(|(number, _)| *number == node) else { return };
    // SAFETY: the sets are plain data of the size that the calls are given; the numbers are below
    // CPU_SETSIZE.
    unsafe {
        let mut allowed: libc::cpu_set_t = core::mem::zeroed();
        let mut mask: libc::cpu_set_t = core::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed) != 0 {
            return;
        }
        for processor in processors.iter().filter(|processor| libc::CPU_ISSET(**processor, &allowed)) {
            libc::CPU_SET(*processor, &mut mask);
        }
        // With nothing left the thread stays where it may be now; a refusal costs speed and nothing else.
        if libc::CPU_COUNT(&mask) > 0 {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_list("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        for wrong in ["a", "3-1", "0-99999999", "1-", "-"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }

    /// Two sockets, a node each, with four GPUs and four cards each; and a device that is of none.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: String| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for node in 0..2 {
            write(
                format!("sys/devices/system/node/node{node}/cpulist"),
                format!("{}-{}\n", node * 8, node * 8 + 7),
            );
            for at in 0..4 {
                write(format!("sys/bus/pci/devices/0000:{node}{at}:00.0/numa_node"), format!("{node}\n"));
                let card = format!("sys/class/infiniband/mlx5_{}/device/numa_node", node * 4 + at);
                write(card, format!("{node}\n"));
            }
        }
        write("sys/bus/pci/devices/0000:f0:00.0/numa_node".into(), "-1\n".into());
        root
    }

    #[test]
    fn devices_have_the_node_of_their_socket() {
        let root = machine();
        let node = |folder: String| node_of_device_below(root.path(), &folder);
        for number in 0..8 {
            let gpu = format!("bus/pci/devices/0000:{}{}:00.0", number / 4, number % 4);
            let card = format!("class/infiniband/mlx5_{number}/device");
            assert_eq!([node(gpu), node(card)], [Some(number / 4); 2]);
        }
        assert_eq!(node("bus/pci/devices/0000:f0:00.0".into()), None);
        assert_eq!(node("bus/pci/devices/0000:ff:00.0".into()), None);
        assert_eq!(nodes_below(root.path())[1].1, (8..16).collect::<Vec<_>>());
        std::fs::remove_dir_all(root.path().join("sys/devices/system/node/node1")).unwrap();
        assert_eq!(node("bus/pci/devices/0000:00:00.0".into()), None, "there is nothing to choose");
    }

    #[test]
    fn memory_that_prefers_a_node_is_memory() {
        // SAFETY: a new mapping, which is this test's.
        let memory = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let memory = libc::mmap(core::ptr::null_mut(), 4096, protection, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            prefer(memory.cast(), 4096, 0);
            memory.cast::<u8>().write(7);
            memory
        };
        assert!(node_of(memory.cast()).is_none_or(|node| node == 0));
        // SAFETY: mapped above.
        unsafe { libc::munmap(memory, 4096) };
    }

    #[test]
    fn memory_lies_on_a_node_that_there_is_or_on_none_that_matters() {
        let memory = [1_u8; 100];
        let node = node_of(memory.as_ptr());
        assert_eq!(node.is_some(), nodes().len() > 1);
        assert_eq!(node_of(core::ptr::null()), None);
        if let Some(node) = node {
            std::thread::spawn(move || bind_to(node)).join().unwrap();
        }
    }
}
