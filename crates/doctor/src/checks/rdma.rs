//! What programs need to use RDMA devices: libraries, device files, locked memory.

use super::{About, Finding};
use crate::facts::{Facts, RdmaDevice};
use crate::unit::binary;

/// Registered memory is locked. A session's staging, both directions and all queue pairs together, and the
/// queues of the card fit into this; pinned memory that a program registers comes on top.
pub const ENOUGH_LOCKED: u64 = 1 << 30;

const VERBS: &str = "libibverbs.so.1";
const CONNECTION_MANAGER: &str = "librdmacm.so.1";
/// What to install, by distribution.
const PACKAGES: &str = "Install libibverbs1, ibverbs-providers and librdmacm1 (Debian, Ubuntu), or libibverbs and librdmacm \
                        (Fedora, RHEL, SUSE).";

pub fn check(facts: &Facts) -> Vec<Finding> {
    let rdma = &facts.rdma;
    let in_container = facts.machine.container.is_some();
    let mut findings = Vec::new();
    for rdma_device in &rdma.idle_rdma_devices {
        let text = format!(
            "The network card at {} is no RDMA device here, though cards of its maker can be.",
            rdma_device.address
        );
        findings.push(if in_container {
            Finding::note(About::Rdma, text)
                .advise("If this container is to use it, start it with `--device /dev/infiniband` and the host's network.")
        } else {
            Finding::problem(
                About::Rdma,
                text,
                "Load its RDMA driver: `modprobe mlx5_ib` (`mlx4_ib` for a ConnectX-3), from the kernel's own modules \
                 (package linux-modules-extra on Ubuntu) or NVIDIA's DOCA-OFED.",
            )
        });
    }
    if rdma.devices.is_empty() {
        if rdma.idle_rdma_devices.is_empty() {
            findings.push(Finding::note(
                About::Rdma,
                "There is no RDMA device, so sessions go over TCP, or over shared memory on one host.",
            ));
        }
        let missing: Vec<&str> = [VERBS, CONNECTION_MANAGER]
            .into_iter()
            .filter(|library| facts.live.why_not(library).is_some())
            .collect();
        if !missing.is_empty() {
            findings.push(
                Finding::note(
                    About::Rdma,
                    format!("{} cannot be loaded, which RDMA devices would need.", missing.join(" and ")),
                )
                .advise(PACKAGES),
            );
        }
        return findings;
    }
    findings.extend(libraries(facts));
    findings.extend(rdma.devices.iter().filter_map(|device| provider(facts, device)));
    findings.extend(unusable(facts));
    findings.extend(nodes(facts));
    findings.extend(memlock(facts));
    findings
}

fn libraries(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match facts.live.why_not(VERBS) {
        Some(why) => findings.push(Finding::problem(
            About::Rdma,
            format!("libibverbs cannot be loaded ({why}), so no program can use the RDMA devices."),
            PACKAGES,
        )),
        None => findings.push(Finding::good(
            About::Rdma,
            format!("libibverbs is there, with drivers for {}.", listed(&facts.rdma.providers)),
        )),
    }
    if let Some(why) = facts.live.why_not(CONNECTION_MANAGER) {
        findings.push(
            Finding::note(
                About::Rdma,
                format!(
                    "librdmacm cannot be loaded ({why}), so queue pairs are joined by numbers sent over TCP."
                ),
            )
            .advise(PACKAGES),
        );
    }
    findings
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no device that can be seen".to_owned() } else { names.join(", ") }
}

/// A device whose driver of user space is missing.
fn provider(facts: &Facts, device: &RdmaDevice) -> Option<Finding> {
    // Libraries in unusual places are not seen, so an empty list says nothing.
    if facts.rdma.providers.is_empty() || facts.live.why_not(VERBS).is_some() {
        return None;
    }
    let required = match device.driver.as_str() {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "bnxt_en" => "bnxt_re",
        "ice" | "irdma" | "i40e" => "irdma",
        "efa" => "efa",
        _ if device.pci.is_some() => return None,
        _ if device.name.starts_with("rxe") => "rxe",
        _ if device.name.starts_with("siw") => "siw",
        _ => return None,
    };
    (!facts.rdma.providers.iter().any(|name| name == required)).then(|| {
        Finding::problem(
            About::Rdma,
            format!("libibverbs has no driver `{required}`, so {} cannot be used.", device.name),
            "Install ibverbs-providers (Debian, Ubuntu) or the rest of libibverbs (Fedora, RHEL, SUSE).",
        )
    })
}

/// Devices that libibverbs cannot open, where nothing else says why.
fn unusable(facts: &Facts) -> Vec<Finding> {
    let opened = facts.live.verbs.devices.iter();
    let failed = opened.filter_map(|(name, ports)| Some((name, ports.as_ref().err()?)));
    let found = failed.map(|(name, why)| {
        Finding::problem(
            About::Rdma,
            format!("{name} cannot be opened by a program: {why}."),
            "Look at the device files and limits above, and at the kernel's log (dmesg).",
        )
    });
    found.collect()
}

fn nodes(facts: &Facts) -> Vec<Finding> {
    let nodes = &facts.rdma.nodes;
    let in_container = facts.machine.container.is_some();
    let mut findings: Vec<Finding> = nodes
        .iter()
        .filter(|node| !node.is_usable)
        .map(|node| {
            Finding::problem(
                About::Rdma,
                format!("This user may not use {} (its mode is {:04o}).", node.path, node.mode),
                "Install rdma-core, whose udev rules open it to all users, or `chmod 666` it.",
            )
        })
        .collect();
    if !nodes.iter().any(|node| node.path.contains("uverbs")) {
        findings.push(Finding::problem(
            About::Rdma,
            "There is no /dev/infiniband/uverbs*, through which programs use RDMA devices.",
            if in_container {
                "Start the container with `--device /dev/infiniband`."
            } else {
                "`modprobe ib_uverbs`."
            },
        ));
    } else if !nodes.iter().any(|node| node.path.ends_with("rdma_cm")) {
        findings.push(
            Finding::note(
                About::Rdma,
                "There is no /dev/infiniband/rdma_cm, so queue pairs are joined by numbers sent over TCP.",
            )
            .advise(if in_container {
                "Start the container with `--device /dev/infiniband`."
            } else {
                "`modprobe rdma_ucm`."
            }),
        );
    }
    findings
}

fn memlock(facts: &Facts) -> Option<Finding> {
    let live = &facts.live;
    let limit = live.memlock.filter(|_| !live.may_lock_all)?;
    if limit >= ENOUGH_LOCKED {
        return Some(Finding::good(About::Rdma, format!("{} of memory may be locked.", binary(limit))));
    }
    let advice = match facts.machine.container {
        Some(_) => "Start the container with `--ulimit memlock=-1`.",
        None => {
            "Put `* - memlock unlimited` into /etc/security/limits.d/rdma.conf and log in again; for a service of systemd, \
             set LimitMEMLOCK=infinity."
        }
    };
    Some(Finding::problem(
        About::Rdma,
        format!(
            "Only {} of memory may be locked (`ulimit -l`), and registering memory with a card locks it: staging wants \
             {}, pinned memory of programs comes on top. Sessions make do with less staging, down to 1 MiB for each direction, and \
             copy pinned memory that is refused through it.",
            binary(limit),
            binary(ENOUGH_LOCKED)
        ),
        advice,
    ))
}
