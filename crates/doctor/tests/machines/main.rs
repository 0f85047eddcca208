//! Machines that are made up, from their files to what a person is told.

mod tree;

use causeway_doctor::checks::path::{self, ServerPath};
use causeway_doctor::checks::{About, Finding, Level, problems};
use causeway_doctor::facts::{CudaDevice, DriverProbe, Facts, Feature, Live, PathMtu, Verbs};
use causeway_doctor::{check, print};
use tree::Tree;

const MISSING: &str = "cannot open shared object file: No such file or directory";

/// A process of an ordinary user with nothing in its way, on a machine without a GPU.
fn live() -> Live {
    Live {
        release: "0.1.0".into(),
        memlock: None,
        shm: Some(32 << 30),
        libraries: vec![
            ("libibverbs.so.1".into(), None),
            ("librdmacm.so.1".into(), None),
            ("libcuda.so.1".into(), None),
            ("libnvidia-ml.so.1".into(), None),
        ],
        driver: DriverProbe::None { is_installed: false, why: "There is no driver.".into() },
        features: vec![
            (Feature::SealedMemory, true),
            (Feature::CloseRange, true),
            (Feature::WrittenPages, true),
        ],
        ..Live::default()
    }
}

fn with_gpus(addresses: &[&str], paths: &[&str]) -> Live {
    let devices = addresses.iter().map(|address| CudaDevice {
        name: "Tesla V100-SXM2-32GB".into(),
        address: (*address).into(),
        paths: paths.iter().map(|way| (*way).to_owned()).collect(),
        closed: if paths.is_empty() {
            vec![("peermem".into(), "nvidia_peermem is not loaded".into())]
        } else {
            Vec::new()
        },
    });
    let driver = DriverProbe::Started { name: "NVIDIA driver 580.65".into(), devices: devices.collect() };
    Live { driver, ..live() }
}

/// A node with two processors: on the first a card and two GPUs below one switch, on the second a card below
/// a root port and two GPUs below another.
fn edr_node() -> Tree {
    let tree = Tree::new("node1", "6.8.0");
    tree.bridge("pci0000:17/0000:17:00.0/0000:18:00.0");
    for (port, rdma_device) in [
        ("0000:19:00.0", None),
        ("0000:19:04.0", Some("0000:1a:00.0")),
        ("0000:19:08.0", Some("0000:1b:00.0")),
    ] {
        tree.bridge(&format!("pci0000:17/0000:17:00.0/0000:18:00.0/{port}"));
        if let Some(gpu) = rdma_device {
            tree.gpu(&format!("pci0000:17/0000:17:00.0/0000:18:00.0/{port}/{gpu}"), 0);
        }
    }
    tree.rdma_device("pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1c:00.0", 0, "mlx5_0");
    tree.rdma_device("pci0000:85/0000:85:00.0/0000:86:00.0", 1, "mlx5_1");
    tree.gpu("pci0000:85/0000:85:02.0/0000:87:00.0", 1);
    tree.gpu("pci0000:ae/0000:ae:00.0/0000:af:00.0", 1);
    for (rdma_device, lid, interface) in [("mlx5_0", 5, "ib0"), ("mlx5_1", 6, "ib1")] {
        tree.infiniband_port(rdma_device, "4: ACTIVE", "5: LinkUp", lid);
        tree.interface(rdma_device, interface, 4092);
    }
    tree.verbs_nodes(&["mlx5_0", "mlx5_1"]);
    tree.file("/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "");
    tree.file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)\nGCC version: gcc 13\n",
    );
    tree.file("/sys/module/nvidia_peermem/refcnt", "0");
    tree.file("/sys/module/gdrdrv/refcnt", "0");
    tree.file("/tmp/nvidia-mps/control", "");
    tree
}

const EDR_GPUS: [&str; 4] = ["0000:1a:00.0", "0000:1b:00.0", "0000:87:00.0", "0000:af:00.0"];

fn of<'a>(findings: &'a [Finding], level: Level, part: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.level == level && finding.text.contains(part));
    found.unwrap_or_else(|| panic!("no {level:?} says {part:?} in\n{}", print::found(findings)))
}

#[test]
fn a_node_with_two_edr_cards_and_four_gpus_is_well() {
    let facts = edr_node().facts(with_gpus(&EDR_GPUS, &["dma-buf", "peermem"]));
    assert_eq!((facts.rdma.devices.len(), facts.gpus.devices.len()), (2, 4));
    assert!(facts.gpus.is_open && facts.gpus.has_peermem);
    assert_eq!(facts.gpus.kernel_driver.as_deref(), Some("580.65.06"));
    let findings = check(&facts);
    let text = print::machine(&facts, &findings);
    assert_eq!(problems(&findings), 0, "{text}");
    of(&findings, Level::Good, "mlx5_0 port 1 is active: InfiniBand at 100 Gb/sec (4X EDR), path MTU 4096");
    of(&findings, Level::Good, "memory of GPUs 0, 1, 2, 3 by dma-buf");
    of(&findings, Level::Good, "4 x Tesla V100-SXM2-32GB");
    of(&findings, Level::Note, "0000:87:00.0 is separated from its nearest card, mlx5_1, by a host bridge");
    of(
        &findings,
        Level::Note,
        "0000:af:00.0 is separated from its nearest card, mlx5_1, by several host bridges",
    );
    of(&findings, Level::Note, "(ACS) slows the traffic");
    let distances: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("  mlx5_") && !line.contains("active"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        distances,
        [["mlx5_0", "PIX", "PIX", "SYS", "SYS"], ["mlx5_1", "SYS", "SYS", "PHB", "NODE"]],
        "{text}"
    );
    assert_eq!(facts, Facts::from_json(&facts.to_json()).unwrap());
}

#[test]
fn what_root_sees_of_access_control_and_the_iommu_is_told_with_the_commands() {
    let tree = edr_node();
    tree.access_control("pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:04.0", true);
    for port in ["0000:19:00.0", "0000:19:08.0"] {
        tree.access_control(&format!("pci0000:17/0000:17:00.0/0000:18:00.0/{port}"), false);
    }
    // Nothing between the first card and its GPUs passes this one.
    tree.access_control("pci0000:17/0000:17:00.0", true);
    tree.iommu_group("0000:1a:00.0", "DMA-FQ");
    tree.iommu_group("0000:1b:00.0", "identity");
    let findings = check(&tree.facts(Live { is_root: true, ..with_gpus(&EDR_GPUS, &["peermem"]) }));
    assert_eq!(problems(&findings), 2, "{}", print::found(&findings));
    let control = of(&findings, Level::Problem, "access control");
    assert!(control.advice.as_ref().unwrap().contains("`setpci -s 0000:19:04.0 ECAP_ACS+6.w=0000`"));
    assert!(!control.text.contains("0000:17:00.0") && !control.text.contains("0000:19:08.0"));
    let iommu = of(&findings, Level::Problem, "IOMMU translates the addresses of 0000:1a:00.0,");
    assert!(iommu.advice.as_ref().unwrap().contains("iommu=pt"));
}

#[test]
fn a_roce_node_is_told_about_its_small_frames() {
    let tree = Tree::new("roce", "6.1.0");
    tree.rdma_device("pci0000:00/0000:00:01.0/0000:01:00.0", 0, "mlx5_0");
    tree.ethernet_port("mlx5_0", "4: ACTIVE", "5: LinkUp", &[(0, "IB/RoCE v1"), (1, "RoCE v2")]);
    tree.interface("mlx5_0", "ens1f0np0", 1500);
    tree.verbs_nodes(&["mlx5_0"]);
    tree.file("/usr/lib64/libibverbs/libmlx5-rdmav34.so", "");
    let facts = tree.facts(live());
    assert_eq!(facts.rdma.devices[0].ports[0].gids.len(), 2, "empty addresses do not count");
    let findings = check(&facts);
    assert_eq!(problems(&findings), 0, "{}", print::found(&findings));
    let small = of(&findings, Level::Note, "packets of 1024 bytes");
    assert_eq!(
        small.advice.as_deref(),
        Some("`ip link set ens1f0np0 mtu 9000`, if switch and peers support it, too.")
    );
    of(&findings, Level::Note, "There is no NVIDIA GPU");
}

#[test]
fn a_node_with_everything_wrong_is_told_what_to_do() {
    let tree = Tree::new("bad", "4.18.0");
    tree.file("/.dockerenv", "");
    tree.rdma_device("pci0000:00/0000:00:01.0/0000:01:00.0", 0, "mlx5_0");
    tree.infiniband_port("mlx5_0", "2: INIT", "5: LinkUp", 0);
    tree.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1);
    tree.file("/usr/lib64/libibverbs/libhns-rdmav34.so", "");
    let live = Live {
        memlock: Some(64 << 10),
        shm: Some(64 << 20),
        features: vec![(Feature::CloseRange, false), (Feature::WrittenPages, false)],
        ..with_gpus(&["0000:81:00.0"], &[])
    };
    let findings = check(&tree.facts(live.clone()));
    let advice = |part| of(&findings, Level::Problem, part).advice.clone().unwrap();
    assert!(advice("no subnet manager").contains("opensm"));
    assert!(advice("no driver `mlx5`").contains("ibverbs-providers"));
    assert!(advice("no /dev/infiniband/uverbs*").contains("--device /dev/infiniband"));
    assert!(advice("Only 64 KiB of memory may be locked").contains("--ulimit memlock=-1"));
    assert!(advice("lacks close_range").contains("5.11"));
    assert!(advice("cannot access the memory of GPU 0").contains("peermem: nvidia_peermem is not loaded"));
    assert_eq!(problems(&findings), 6, "{}", print::found(&findings));
    assert!(
        of(&findings, Level::Note, "/dev/shm has only 64 MiB")
            .advice
            .as_ref()
            .unwrap()
            .contains("--shm-size")
    );
    let without = Live { libraries: vec![("libibverbs.so.1".into(), Some(MISSING.into()))], ..live };
    let findings = check(&tree.facts(without));
    assert!(
        of(&findings, Level::Problem, "libibverbs cannot be loaded")
            .advice
            .as_ref()
            .unwrap()
            .contains("libibverbs1")
    );
}

#[test]
fn cards_without_their_driver_and_ports_without_a_cable_are_found() {
    let tree = Tree::new("half", "6.1.0");
    tree.pci("pci0000:00/0000:00:01.0/0000:01:00.0", 0, "0x15b3", "0x020700");
    tree.rdma_device("pci0000:00/0000:00:02.0/0000:02:00.0", 0, "mlx5_1");
    tree.ethernet_port("mlx5_1", "1: DOWN", "3: Disabled", &[]);
    tree.interface("mlx5_1", "eth2", 9000);
    tree.verbs_nodes(&["mlx5_1"]);
    let findings = check(&tree.facts(live()));
    assert!(
        of(&findings, Level::Problem, "card at 0000:01:00.0").advice.as_ref().unwrap().contains("mlx5_ib")
    );
    assert!(
        of(&findings, Level::Problem, "mlx5_1 port 1")
            .advice
            .as_ref()
            .unwrap()
            .contains("ip link set eth2 up")
    );
    assert_eq!(problems(&findings), 2, "{}", print::found(&findings));
}

#[test]
fn what_libibverbs_says_counts_before_what_files_say() {
    let tree = edr_node();
    let mtus = vec![PathMtu { port: 1, active: 2048, max: 4096 }];
    let devices = vec![("mlx5_0".into(), Ok(mtus)), ("mlx5_1".into(), Err("it is broken".into()))];
    let verbs = Verbs { has_dma_buf: false, devices };
    let live = Live { verbs, ..with_gpus(&EDR_GPUS, &["dma-buf"]) };
    let findings = check(&tree.facts(live.clone()));
    of(&findings, Level::Good, "mlx5_0 port 1 is active: InfiniBand at 100 Gb/sec (4X EDR), path MTU 2048");
    assert!(
        of(&findings, Level::Note, "although it supports 4096").advice.as_ref().unwrap().contains("mtu=5")
    );
    of(&findings, Level::Problem, "Programs cannot open mlx5_1: it is broken");
    assert!(
        of(&findings, Level::Problem, "cannot register dma-bufs")
            .advice
            .as_ref()
            .unwrap()
            .contains("rdma-core 34")
    );
    assert_eq!(problems(&findings), 2, "{}", print::found(&findings));
    let facts = tree.facts(live);
    assert_eq!(facts, Facts::from_json(&facts.to_json()).unwrap());
}

#[test]
fn software_devices_lie_on_an_interface() {
    let tree = Tree::new("guest", "6.1.0");
    tree.software_device("rxe1", "eth0");
    tree.ethernet_port("rxe1", "4: ACTIVE", "5: LinkUp", &[(1, "RoCE v2")]);
    tree.file("/sys/class/net/eth0/mtu", "4300");
    tree.verbs_nodes(&["rxe1"]);
    let facts = tree.facts(live());
    assert_eq!((&facts.rdma.devices[0].pci, facts.rdma.devices[0].node.as_str()), (&None, "uverbs0"));
    let findings = check(&facts);
    of(&findings, Level::Good, "rxe1 port 1 is active: Ethernet at 100 Gb/sec (4X EDR), path MTU 4096");
    assert_eq!(problems(&findings), 0, "{}", print::found(&findings));
}

#[test]
fn a_machine_with_nothing_has_no_problem() {
    let facts = Tree::new("plain", "6.1.0").facts(Live {
        libraries: vec![
            ("libibverbs.so.1".into(), Some(MISSING.into())),
            ("libcuda.so.1".into(), Some(MISSING.into())),
        ],
        ..live()
    });
    let findings = check(&facts);
    assert_eq!(problems(&findings), 0, "{}", print::found(&findings));
    of(&findings, Level::Note, "There is no RDMA device");
    assert!(
        of(&findings, Level::Note, "Cannot load libibverbs.so.1")
            .advice
            .as_ref()
            .unwrap()
            .contains("ibverbs-providers")
    );
    of(&findings, Level::Note, "There is no NVIDIA GPU");
    // Not even a /proc.
    let nothing = check(&Facts::default());
    assert_eq!(problems(&nothing), 0);
}

#[test]
fn a_gpu_without_its_driver_is_a_problem_but_in_a_container() {
    let tree = Tree::new("gpu", "6.1.0");
    tree.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 0);
    assert_eq!(problems(&check(&tree.facts(live()))), 1);
    let broken = DriverProbe::None { is_installed: true, why: "cuInit answered 999.".into() };
    let findings = check(&tree.facts(Live { driver: broken, ..live() }));
    assert_eq!(
        of(&findings, Level::Problem, "does not start").advice.as_deref(),
        Some("cuInit answered 999.")
    );
    let not_asked = Live { driver: DriverProbe::NotBuiltIn, ..live() };
    let findings = check(&tree.facts(not_asked.clone()));
    assert!(
        of(&findings, Level::Note, "has no back end").advice.as_ref().unwrap().contains("feature `driver`")
    );
    assert_eq!(problems(&findings), 0);
    let elsewhere = check(&Tree::new("client", "6.1.0").facts(not_asked));
    assert!(elsewhere.iter().all(|finding| !finding.text.contains("back end")));
    tree.file("/run/.containerenv", "");
    let findings = check(&tree.facts(live()));
    assert!(of(&findings, Level::Note, "has no access to it").advice.as_ref().unwrap().contains("--gpus"));
}

#[test]
fn libraries_of_the_driver_that_are_not_forwarded_are_named_with_what_programs_get_in_their_place() {
    let tree = Tree::new("client", "6.1.0");
    let judged = |without_stub: &[&str]| {
        let without_stub = without_stub.iter().map(|name| (*name).to_owned()).collect();
        let client_library = Some(Ok("/opt/causeway/lib".to_owned()));
        check(&tree.facts(Live { client_library, without_stub, ..live() }))
    };
    let speaks = |findings: &[Finding]| findings.iter().any(|finding| finding.text.contains("libnv"));
    assert!(!speaks(&judged(&["libnvcuvid.so.1"])), "there is none of NVIDIA's");
    tree.file("/usr/lib/x86_64-linux-gnu/libnvcuvid.so.580.65.06", "");
    for link in ["/usr/lib/x86_64-linux-gnu/libnvcuvid.so.1", "/usr/lib64/libnvcuvid.so.1"] {
        tree.link(link, "/usr/lib/x86_64-linux-gnu/libnvcuvid.so.580.65.06");
    }
    let findings = judged(&[]);
    let covered = "NVIDIA's /usr/lib/x86_64-linux-gnu/libnvcuvid.so.1 is here";
    assert!(of(&findings, Level::Good, covered).text.contains("stubs from /opt/causeway/lib"));
    tree.file("/usr/lib64/libnvoptix.so.1", "");
    let findings = judged(&["libnvoptix.so.1", "libnvidia-encode.so.1"]);
    of(&findings, Level::Good, covered);
    let bare = of(&findings, Level::Problem, "find NVIDIA's /usr/lib64/libnvoptix.so.1, which wait for ever");
    assert!(bare.advice.as_ref().unwrap().contains("the names libnvoptix.so.1, libnvidia-encode.so.1;"));
    assert!(!speaks(&check(&tree.facts(live()))), "a server gives programs no library");
}

#[test]
fn the_way_between_two_machines_is_judged_from_both() {
    let (here, there) = (edr_node().facts(live()), edr_node().facts(live()));
    let path = ServerPath {
        target: "node2:9000".into(),
        round_trip: Some((30.0, 45.0)),
        path_mtu: Some(1500),
        used: Some("tcp".into()),
        not_used: vec![
            ("shm".into(), "the server is on another host".into()),
            ("verbs".into(), "no route".into()),
        ],
        backend: Some("NVIDIA driver 580".into()),
        ..ServerPath::default()
    };
    let findings = path::check(&here, &there, &path);
    of(&findings, Level::Good, "Sessions use tcp and NVIDIA driver 580");
    of(&findings, Level::Good, "cannot use shm: the server is on another host");
    assert!(of(&findings, Level::Problem, "cannot use verbs: no route").advice.is_some());
    let mut plain = there.clone();
    plain.rdma.devices.clear();
    assert_eq!(problems(&path::check(&here, &plain, &path)), 0, "a server without a card has no verbs");
    let chosen = ServerPath { is_chosen: true, ..path.clone() };
    assert_eq!(problems(&path::check(&here, &there, &chosen)), 0, "what the user chose is no problem");
    let silent = ServerPath { silence: Some("it is old".into()), ..path.clone() };
    assert_eq!(problems(&path::check(&here, &Facts::default(), &silent)), 1);
    let refused = ServerPath { used: None, failure: Some("it is full".into()), ..path };
    assert_eq!(problems(&path::check(&here, &there, &refused)), 1);
    let advice = |path: &ServerPath| {
        let findings = path::check(&here, &there, path);
        of(&findings, Level::Problem, "opens no session: it is full.").advice.clone()
    };
    assert_eq!(advice(&refused), None, "the reason says it all");
    let advised = ServerPath { advice: Some("Wait.".into()), ..refused.clone() };
    assert_eq!(advice(&advised).as_deref(), Some("Wait."));
    assert!(findings.iter().all(|finding| finding.about == About::Path));
}

#[test]
fn facts_of_a_hostile_machine_are_bounded() {
    assert_eq!(Facts::from_json(b"{\"rdma\": 5}"), None);
    assert_eq!(Facts::from_json(b"not json"), None);
    assert_eq!(Facts::from_json("[".repeat(100_000).as_bytes()), None);
    let many = format!("{{\"rdma\": {{\"devices\": [{}{{}}]}}}}", "{},".repeat(10_000));
    let facts = Facts::from_json(many.as_bytes()).unwrap();
    assert_eq!(facts.rdma.devices.len(), 64);
    let long = format!("{{\"machine\": {{\"host\": \"{}\"}}}}", "x".repeat(2 << 20));
    assert_eq!(Facts::from_json(long.as_bytes()), None);
}
