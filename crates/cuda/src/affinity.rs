//! NUMA affinity: threads and staging memory of this library on the node of a GPU.
//!
//! What a thread copies for a GPU of another socket crosses the link between sockets twice. The program's own threads
//! stay where the program, or its launcher, has put them.

use core::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;

use causeway_config::read::PROCESS;
use causeway_config::table::COMM_NUMA;
use causeway_memory::numa;

use crate::locks::{Mutex, rank};

use super::device::{current_device, pci_address};
use super::functions::Driver;
use super::scope::Scope;

/// Whether `CAUSEWAY_COMM_NUMA` leaves it on. Another word is an error when a job or a team is joined.
fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| !matches!(PROCESS.word(&COMM_NUMA), Ok(Some(word)) if word == "off"))
}

/// The NUMA node of an RDMA device; none where that of a GPU would be none.
pub fn node_of_rdma_device(name: &str) -> Option<usize> {
    is_on().then(|| numa::node_of_device(&format!("class/infiniband/{name}/device"))).flatten()
}

/// The NUMA node of a device; none on a machine with one node, for a GPU of another host, and where it is off.
pub fn node_of(driver: &Driver, device: i32) -> Option<usize> {
    static NODES: Mutex<rank::Leaf, Option<HashMap<i32, Option<usize>>>> = Mutex::new(None);
    if !is_on() {
        return None;
    }
    let query = || {
        let address = pci_address(driver, device)?;
        numa::node_of_device(&format!("bus/pci/devices/{address}"))
    };
    let mut nodes = NODES.lock();
    *nodes.get_or_insert_default().entry(device).or_insert_with(query)
}

/// That of the calling thread's device.
pub fn current_node(driver: &Driver) -> Option<usize> {
    current_device(driver).and_then(|device| node_of(driver, device))
}

/// Binds the calling thread, which is this library's, to the processors of a node, where there is one.
pub fn bind_thread(node: Option<usize>) {
    if let Some(node) = node {
        numa::bind_to(node);
    }
}

/// The same by the first GPU that the thread copies for.
pub fn follow(scope: &Scope<'_>) {
    thread_local! {
        static IS_BOUND: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_BOUND.replace(true) {
        bind_thread(current_node(scope.driver));
    }
}
