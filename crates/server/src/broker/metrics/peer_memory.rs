//! Kernel counters of device memory that is registered with network cards (`nvidia_peermem`).
//!
//! Kernels with peer memory clients (such as those of MLNX_OFED) count for each client, such as
//! `nv_mem`, what it has registered. Other kernels have no such counters, nor has `gdrdrv`.

use std::fs;
use std::path::Path;

use super::text::Page;

/// Where the kernel has a folder for each client.
pub const FOLDER: &str = "/sys/kernel/mm/memory_peers";

/// More clients are left out: a kernel has one for each kind of devices.
const MAX_CLIENTS: usize = 16;

/// The kernel's files, and what each is called here.
const COUNTERS: [(&str, &str, &str); 5] = [
    ("num_alloc_mrs", "causeway_peer_memory_registrations_total", "Regions of device memory registered."),
    (
        "num_dealloc_mrs",
        "causeway_peer_memory_deregistrations_total",
        "Regions of device memory deregistered.",
    ),
    ("num_reg_bytes", "causeway_peer_memory_registered_bytes_total", "Bytes of device memory registered."),
    (
        "num_dereg_bytes",
        "causeway_peer_memory_deregistered_bytes_total",
        "Bytes of device memory deregistered.",
    ),
    (
        "num_free_callbacks",
        "causeway_peer_memory_revocations_total",
        "Registrations that ended because the memory was freed.",
    ),
];

/// Adds the counters of all clients in a folder; no family where there are none.
pub fn families(page: &mut Page, folder: &Path) {
    let mut clients: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    clients.sort_unstable();
    clients.truncate(MAX_CLIENTS);
    for (file, name, help) in COUNTERS {
        let count = |client: &String| {
            let text = fs::read_to_string(folder.join(client).join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let counts: Vec<_> = clients.iter().filter_map(|client| Some((client, count(client)?))).collect();
        if counts.is_empty() {
            continue;
        }
        let mut family = page.counter(name, help);
        for (client, count) in counts {
            family.sample(&[("client", client)], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_counts_is_on_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = Page::default();
        families(&mut page, folder.path());
        families(&mut page, &folder.path().join("none"));
        assert_eq!(page.finish(), "");
        for (client, file, text) in [
            ("nv_mem", "version", "1.3\n"),
            ("nv_mem", "num_alloc_mrs", "12\n"),
            ("nv_mem", "num_reg_bytes", "no number\n"),
            ("nvidia-fs", "num_alloc_mrs", "3\n"),
        ] {
            fs::create_dir_all(folder.path().join(client)).unwrap();
            fs::write(folder.path().join(client).join(file), text).unwrap();
        }
        let mut page = Page::default();
        families(&mut page, folder.path());
        let text = page.finish();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "causeway_peer_memory_registrations_total{client=\"nv_mem\"} 12",
                "causeway_peer_memory_registrations_total{client=\"nvidia-fs\"} 3",
            ]
        );
    }
}
