//! The files of a machine that is made up, laid out and linked as the kernel does.

use causeway_doctor::facts::{Facts, Live};
use causeway_doctor::read::{System, facts};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new(host: &str, kernel: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.file("/proc/sys/kernel/hostname", host);
        tree.file("/proc/sys/kernel/osrelease", kernel);
        tree
    }

    pub fn facts(&self, live: Live) -> Facts {
        facts(&System::new(self.0.path()), live)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    /// A link; both paths begin at the root.
    pub fn link(&self, from: &str, to: &str) {
        let at = self.at(from);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        let up = "../".repeat(from.trim_start_matches('/').matches('/').count());
        symlink(Path::new(&up).join(to.trim_start_matches('/')), at).unwrap();
    }

    /// A device below bridges, with the folder that stands for it.
    pub fn pci(&self, path: &str, numa_node: u32, vendor: &str, class: &str) -> String {
        let folder = format!("/sys/devices/{path}");
        let address = path.rsplit('/').next().unwrap();
        self.file(&format!("{folder}/vendor"), vendor);
        self.file(&format!("{folder}/class"), class);
        self.file(&format!("{folder}/numa_node"), numa_node.to_string());
        self.link(&format!("/sys/bus/pci/devices/{address}"), &folder);
        folder
    }

    pub fn bridge(&self, path: &str) {
        let folder = self.pci(path, 0, "0x8086", "0x060400");
        // The 64 bytes that an ordinary user sees.
        self.file(&format!("{folder}/config"), [0; 64]);
    }

    /// What root sees of a bridge with access control.
    pub fn access_control(&self, path: &str, redirects: bool) {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&[0x0d, 0, 1, 0]);
        config[0x106] = if redirects { 0x1d } else { 0x01 };
        self.file(&format!("/sys/devices/{path}/config"), config);
        let address = path.rsplit('/').next().unwrap();
        let link = format!("/sys/bus/pci/devices/{address}");
        if !self.at(&link).exists() {
            self.link(&link, &format!("/sys/devices/{path}"));
        }
    }

    pub fn gpu(&self, path: &str, numa_node: u32) {
        self.pci(path, numa_node, "0x10de", "0x030200");
    }

    pub fn iommu_group(&self, address: &str, kind: &str) {
        let group = format!("/sys/kernel/iommu_groups/{}", address.replace([':', '.'], ""));
        self.file(&format!("{group}/type"), kind);
        let device = fs::read_link(self.at(&format!("/sys/bus/pci/devices/{address}"))).unwrap();
        let device = device.to_str().unwrap().trim_start_matches("../").to_owned();
        self.link(&format!("/{device}/iommu_group"), &group);
    }

    pub fn rdma_device(&self, path: &str, numa_node: u32, name: &str) {
        let folder = self.pci(path, numa_node, "0x15b3", "0x020700");
        self.file(&format!("{folder}/infiniband/{name}/fw_ver"), "16.35.2000");
        self.file(&format!("{folder}/infiniband/{name}/hca_type"), "MT4119");
        self.link(&format!("/sys/class/infiniband/{name}"), &format!("{folder}/infiniband/{name}"));
        self.link(&format!("{folder}/infiniband/{name}/device"), &folder);
        self.file("/sys/bus/pci/drivers/mlx5_core/module", "");
        self.link(&format!("{folder}/driver"), "/sys/bus/pci/drivers/mlx5_core");
    }

    pub fn software_device(&self, name: &str, interface: &str) {
        let folder = format!("/sys/devices/virtual/infiniband/{name}");
        self.file(&format!("{folder}/parent"), interface);
        self.link(&format!("/sys/class/infiniband/{name}"), &folder);
    }

    fn port(&self, rdma_device: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            self.file(&format!("/sys/class/infiniband/{rdma_device}/ports/1/{file}"), text);
        }
        self.file(&format!("/sys/class/infiniband/{rdma_device}/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
        self.file(
            &format!("/sys/class/infiniband/{rdma_device}/ports/1/gids/9"),
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        );
    }

    pub fn infiniband_port(&self, rdma_device: &str, state: &str, physical: &str, lid: u32) {
        let lid = format!("{lid:#x}\n");
        let gid = "fe80:0000:0000:0000:0002:c903:0000:0001\n";
        let files = [
            ("state", state),
            ("phys_state", physical),
            ("lid", lid.as_str()),
            ("sm_lid", "0x1\n"),
            ("gids/0", gid),
        ];
        self.port(rdma_device, &files);
        self.port(rdma_device, &[("link_layer", "InfiniBand\n"), ("gid_attrs/types/0", "IB/RoCE v1\n")]);
    }

    pub fn ethernet_port(&self, rdma_device: &str, state: &str, physical: &str, gids: &[(u32, &str)]) {
        self.port(
            rdma_device,
            &[("state", state), ("phys_state", physical), ("lid", "0x0\n"), ("link_layer", "Ethernet\n")],
        );
        for (index, kind) in gids {
            let (gid, kind_file) = (format!("gids/{index}"), format!("gid_attrs/types/{index}"));
            self.port(
                rdma_device,
                &[(gid.as_str(), "0000:0000:0000:0000:0000:ffff:0a4d:0001\n"), (kind_file.as_str(), kind)],
            );
        }
    }

    pub fn interface(&self, rdma_device: &str, name: &str, mtu: u32) {
        self.file(&format!("/sys/class/net/{name}/mtu"), format!("{mtu}\n"));
        self.file(&format!("/sys/class/infiniband/{rdma_device}/device/net/{name}/mtu"), format!("{mtu}\n"));
    }

    pub fn verbs_nodes(&self, rdma_devices: &[&str]) {
        for (number, rdma_device) in rdma_devices.iter().enumerate() {
            self.file(
                &format!("/sys/class/infiniband_verbs/uverbs{number}/ibdev"),
                format!("{rdma_device}\n"),
            );
            self.file(&format!("/dev/infiniband/uverbs{number}"), "");
        }
        self.file("/dev/infiniband/rdma_cm", "");
    }
}
