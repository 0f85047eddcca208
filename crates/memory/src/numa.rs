//! NUMA nodes: the node of an address, and its processors.
//!
//! hwloc would tell, but its bindings need the library when Causeway is built, and what is asked here is
//! little: the kernel's own list of the processors of a node, and its answer for an address.

use std::sync::OnceLock;

/// The most nodes that are told apart.
pub const MAX_NODES: usize = 16;

/// `MPOL_F_NODE | MPOL_F_ADDR`: the node of an address is asked for, as linux/mempolicy.h numbers it.
const NODE_OF_ADDRESS: libc::c_ulong = 1 | 2;

/// The processors of each node that has some.
fn nodes() -> &'static [(usize, Vec<usize>)] {
    static NODES: OnceLock<Vec<(usize, Vec<usize>)>> = OnceLock::new();
    NODES.get_or_init(|| {
        let processors = |node: usize| {
            let path = format!("/sys/devices/system/node/node{node}/cpulist");
            parse_list(std::fs::read_to_string(path).ok()?.trim())
        };
        let found = (0..MAX_NODES).filter_map(|node| Some((node, processors(node)?)));
        found.filter(|(_, processors)| !processors.is_empty()).collect()
    })
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
pub fn node_of(address: *const u8) -> Option<usize> {
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
