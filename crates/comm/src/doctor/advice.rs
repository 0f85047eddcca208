//! Advice on missing channels.

use crate::channels::{Channel, Missing};

/// What to do, where something helps that is worth it.
pub fn advice(channel: Channel, missing: &Missing) -> Option<&'static str> {
    Some(match (channel, missing) {
        (_, Missing::LeftOut) => "Take CAUSEWAY_COMM_CHANNELS away, or add the channel to it.",
        // One of these says it for all.
        (Channel::Staged, Missing::OtherHost | Missing::NoMemory(_)) | (_, Missing::NoDescriptors(_)) => {
            "Give both containers one folder, and name it in CAUSEWAY_SOCKET_DIR: podman run \
             --volume /run/job:/job --env CAUSEWAY_SOCKET_DIR=/job. Nothing else has to be shared."
        }
        (Channel::Ipc, Missing::Hidden) => {
            "Memory of cudaMalloc goes by a buffer on the GPU (`vmm`), which costs a copy more. Have it \
             allocated so that it can be exported (PyTorch: \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or give both containers one PID namespace: \
             podman run --pid host, or --pid container:NAME."
        }
        (Channel::Ipc | Channel::Vmm, Missing::PeerAccess) => {
            "Choose GPUs for the two that reach each other's memory; `causeway doctor` tells the distances."
        }
        (Channel::Vmm, Missing::NoExport) => {
            "Where the GPU is a virtual one, its provider decides what can be exported; `staged` does \
             without."
        }
        (Channel::Tcp, Missing::NoNetwork(_)) => {
            "For ranks that share nothing of a host, give both containers a network with addresses, and \
             name the hosts in CAUSEWAY_COMM_HOSTS."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_folder_helps_against_is_said() {
        for (channel, missing) in [
            (Channel::Staged, Missing::OtherHost),
            (Channel::Staged, Missing::NoMemory("no socket".into())),
            (Channel::Vmm, Missing::NoDescriptors("no socket".into())),
        ] {
            assert!(
                advice(channel, &missing).unwrap().contains("CAUSEWAY_SOCKET_DIR"),
                "{channel}: {missing}"
            );
        }
        assert!(advice(Channel::Ipc, &Missing::Hidden).unwrap().contains("--pid"));
        assert!(advice(Channel::Tcp, &Missing::LeftOut).unwrap().contains("CAUSEWAY_COMM_CHANNELS"));
        assert_eq!(advice(Channel::Rdma, &Missing::SameHost), None);
    }
}
