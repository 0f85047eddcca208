//! Facts about GPU and RDMA that a process sends to the other.

use std::path::Path;

use crate::bootstrap::MESSAGE_BYTES;
use crate::channels::bar;
use crate::channels::{Ends, Gpu, Joined};
use crate::cuda::{self, Abilities, Driver, GpuAccess, GpuNumber};
use crate::verbs;

/// What a process has. It fits into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its GPU, with the number by which all processes know it; none where it has no CUDA driver that starts.
    pub gpu: Option<(Gpu, GpuNumber)>,
    /// Whether the driver is there that maps a GPU's BAR.
    pub has_gdrdrv: bool,
    /// Whether the process sees an RDMA device.
    pub has_rdma: bool,
}

impl Facts {
    /// Those of this process, whose first GPU is looked at. The driver is loaded and started for that.
    pub fn of_this_process() -> Self {
        Self::read(Path::new("/"), first_gpu())
    }

    /// The same, of a file system below another root.
    fn read(root: &Path, gpu: Option<(Gpu, GpuNumber)>) -> Self {
        Self { gpu, has_gdrdrv: bar::has_module(root), has_rdma: verbs::count_rdma_devices(root) > 0 }
    }

    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let flag = |bit: u8, is_set: bool| u8::from(is_set) << bit;
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = flag(0, self.gpu.is_some()) | flag(1, self.has_gdrdrv) | flag(2, self.has_rdma);
        if let Some((gpu, number)) = &self.gpu {
            bytes[1] = flag(0, gpu.ipc) | flag(1, gpu.export) | flag(2, gpu.gpudirect);
            bytes[8..].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Self {
        let has = |at: usize, bit: u8| bytes[at] >> bit & 1 == 1;
        let number = u64::from_le_bytes(core::array::from_fn(|at| bytes[8 + at]));
        let gpu = Gpu { ipc: has(1, 0), export: has(1, 1), gpudirect: has(1, 2) };
        Self { gpu: has(0, 0).then_some((gpu, number)), has_gdrdrv: has(0, 1), has_rdma: has(0, 2) }
    }

    /// What two processes have, as channels ask for it. A process without a GPU is taken for one that has the
    /// other's, or one that can do everything: what lies between the two is to be told all the same.
    pub(super) fn ends(&self, peer: &Self, reach: impl Fn(GpuNumber) -> GpuAccess) -> Ends {
        let able = Gpu { ipc: true, export: true, gpudirect: true };
        let (own, other) = (self.gpu.or(peer.gpu), peer.gpu.or(self.gpu));
        let joined = match (own, other) {
            (Some((_, one)), Some((_, two))) if one != two => match reach(two) {
                GpuAccess::Peer => Joined::Peers,
                GpuAccess::Seen(_) => Joined::ByDriver,
                GpuAccess::Unseen => Joined::Apart,
            },
            _ => Joined::SameGpu,
        };
        let both = |here: bool, there: bool, what: &str| match (here, there) {
            (true, true) => Ok(()),
            (false, false) => Err(format!("neither process has {what}")),
            (false, true) => Err(format!("the other process alone has {what}")),
            (true, false) => Err(format!("this process alone has {what}")),
        };
        Ends {
            own: Some(own.map_or(able, |(gpu, _)| gpu)),
            peer: Some(other.map_or(able, |(gpu, _)| gpu)),
            joined,
            bar: both(self.has_gdrdrv, peer.has_gdrdrv, "/dev/gdrdrv (the kernel module of GDRCOPY)"),
            rdma: both(self.has_rdma, peer.has_rdma, "an RDMA device"),
        }
    }
}

/// The first GPU, where there is a driver that starts.
fn first_gpu() -> Option<(Gpu, GpuNumber)> {
    let driver = Driver::started()?;
    let Abilities { export, gpudirect } = cuda::abilities(driver, 0);
    // No question about a device tells whether it opens handles of cudaIPC: memory is asked, when there is
    // some.
    Some((Gpu { ipc: true, export, gpudirect }, cuda::gpu_number(driver, 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_IPC: Gpu = Gpu { ipc: false, export: true, gpudirect: false };

    #[test]
    fn facts_survive_the_way() {
        for gpu in
            [None, Some((NO_IPC, 1 << 63)), Some((Gpu { ipc: true, export: false, gpudirect: true }, 0))]
        {
            for (has_gdrdrv, has_rdma) in [(false, true), (true, false)] {
                let facts = Facts { gpu, has_gdrdrv, has_rdma };
                assert_eq!(Facts::decode(&facts.encode()), facts);
            }
        }
    }

    #[test]
    fn devices_are_found_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        let none = Facts { gpu: None, has_gdrdrv: false, has_rdma: false };
        assert_eq!(Facts::read(root.path(), None), none);
        std::fs::create_dir_all(root.path().join("sys/class/infiniband")).unwrap();
        assert_eq!(Facts::read(root.path(), None), none, "a folder without devices");
        std::fs::create_dir_all(root.path().join("sys/class/infiniband/mlx5_0")).unwrap();
        std::fs::create_dir_all(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/gdrdrv"), "").unwrap();
        assert_eq!(Facts::read(root.path(), None), Facts { has_gdrdrv: true, has_rdma: true, ..none });
    }

    #[test]
    fn two_ends_are_what_both_have() {
        let with = |gpu| Facts { gpu, has_gdrdrv: true, has_rdma: false };
        let ends = |one, two, reach| with(one).ends(&with(two), |_| reach);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 1)), GpuAccess::Unseen).joined, Joined::SameGpu);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 2)), GpuAccess::Peer).joined, Joined::Peers);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 2)), GpuAccess::Seen(1)).joined, Joined::ByDriver);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 2)), GpuAccess::Unseen).joined, Joined::Apart);
        let one_sided = ends(Some((NO_IPC, 1)), None, GpuAccess::Unseen);
        assert_eq!((one_sided.own, one_sided.peer), (Some(NO_IPC), Some(NO_IPC)));
        assert!(ends(None, None, GpuAccess::Unseen).own.unwrap().ipc);
        let here = Facts { has_rdma: true, ..with(None) };
        assert_eq!(
            here.ends(&with(None), |_| GpuAccess::Peer).rdma,
            Err("this process alone has an RDMA device".into())
        );
        assert_eq!(here.ends(&here, |_| GpuAccess::Peer).bar, Ok(()));
    }
}
