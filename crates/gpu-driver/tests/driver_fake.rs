//! The real driver's back end against a library that only writes down how it is called (`driver_fake.c`):
//! checks the passing of arguments, which needs no GPU.
//!
//! | module | contents |
//! | --- | --- |
//! | `code` | Images and launches, passed on to the driver |
//! | `memory` | Copies, staging and allocations, passed on to the driver |
//! | `completions` | Completions: when the end of work is reported, and what stops a stream |
//! | `suspension` | The driver's checkpoints of this process: their order, and what is undone when one fails |
//! | `in_flight` | Memory that the device may still use is given to nobody else, whatever fails |
//! | `fake` | The library that stands in for the driver (`driver_fake.c`), and a back end that uses it |

#![cfg(not(shuttle))]

use causeway_api::handle::Native;
use causeway_api::sys::CUresult;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use causeway_gpu_driver::{Driver, LoadError};
use std::path::Path;

#[path = "driver_fake/code.rs"]
mod code;
#[path = "driver_fake/completions.rs"]
mod completions;
#[path = "driver_fake/fake.rs"]
mod fake;
#[path = "driver_fake/in_flight.rs"]
mod in_flight;
#[path = "driver_fake/memory.rs"]
mod memory;
#[path = "driver_fake/suspension.rs"]
mod suspension;

use fake::{BUSY, Failing, Fake, build};

#[test]
fn the_snapshot_is_what_the_driver_says_but_for_what_is_not_forwarded() {
    let fake = Fake::new();
    let snapshot = fake.driver.snapshot().unwrap();
    assert_eq!(fake.log(), "", "a snapshot makes no context");
    assert!(snapshot.backend.starts_with("NVIDIA driver") && snapshot.backend.ends_with("(CUDA 13.0)"));
    assert_eq!((snapshot.driver_version, snapshot.devices.len(), snapshot.peers.len()), (13000, 2, 4));
    let device = &snapshot.devices[1];
    assert_eq!((device.name.as_str(), device.pci_bus_id.as_str()), ("Fake 1", "0000:01:00.0"));
    assert_eq!((device.uuid, device.total_memory), ([0xf1; 16], 2 << 30));
    assert_eq!(device.attribute(75), Some(9));
    assert_eq!(device.attribute(3), None, "the driver does not answer this one");
    let concurrent = device.attribute(89);
    assert_eq!(
        (device.attribute(83), concurrent),
        (Some(1), Some(0)),
        "managed memory, but not at the same time"
    );
    assert_eq!(device.stream_priorities, (0, -5));
    assert!(snapshot.peers[1].can_access && !snapshot.peers[0].can_access);
    assert_eq!(snapshot.peers[2].attributes, [(1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn the_current_context_is_set_only_when_it_changes() {
    let fake = Fake::new();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "");
    fake.driver.make_current(Native::NULL).unwrap();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "set current (nil)\nset current 0xc1\n");
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert!(fake.driver.primary_context_release(fake.context, 1).is_err());
    fake.log();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "set current 0xc1\n", "an ended context is current nowhere");
}

#[test]
fn kernels_take_the_time_of_the_current_context_s_device() {
    let fake = Fake::new();
    assert_eq!(fake.driver.time_shared_device(), Ok(1));
}

#[test]
fn libraries_that_are_not_the_driver_are_refused() {
    let missing = Driver::load_from(Path::new("/nowhere/libcuda.so.1")).err().unwrap();
    assert!(matches!(missing, LoadError::NotFound { .. }), "{missing}");
    assert_eq!(missing.status(), CUresult::CUDA_ERROR_NO_DEVICE);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let client = directory.join("client.c");
    std::fs::write(&client, "int causeway_client_marker(void) { return 1; }\n").unwrap();
    let own = Driver::load_from(&build("libcuda_client.so", &client, &[])).err().unwrap();
    assert!(matches!(own, LoadError::OwnClient { .. }) && own.to_string().contains("own client"), "{own}");
    let broken = directory.join("broken.c");
    std::fs::write(&broken, "int cuInit(unsigned flags) { return 803 + (int)flags; }\n").unwrap();
    let failed = Driver::load_from(&build("libcuda_broken.so", &broken, &[])).err().unwrap();
    assert_eq!(failed.status(), CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    assert!(failed.to_string().contains("803"), "{failed}");
}
