//! Sandbox plan: which parts are used on a machine with these facts, and why not the others.

use std::path::PathBuf;

use rustix::thread::CapabilitySet;

use super::facts::Facts;
use super::request::{Missing, Part, SandboxRequest, Shared};
use crate::files;
use crate::users::UserRange;

/// What is to be tried. The control groups and the network are known to work only when they have been made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// The users of the processes; those of the server if none are given.
    pub users: Option<UserRange>,
    /// Why all processes have the first of them, if they do.
    pub shared: Option<Shared>,
    /// Whether files are kept from the processes.
    pub files: bool,
    /// Whether system calls are.
    pub calls: bool,
    /// Whether they get an empty network.
    pub empty_network: bool,
    /// What there will not be.
    pub missing: Vec<Missing>,
}

/// Decides. `readable` are the files that processes may read.
pub fn decide(facts: &Facts, requested: &SandboxRequest, readable: &[PathBuf]) -> Decision {
    let mut decision = Decision::default();
    let mut missing = |part, why: String| decision.missing.push(Missing { part, why });
    match users(facts, requested.users) {
        Ok(range) => decision.users = Some(range),
        Err(why) => missing(Part::Users, why),
    }
    if !facts.has_landlock {
        missing(
            Part::Files,
            "the kernel has no Landlock (Linux 5.13), or it is not switched on (lsm=)".to_owned(),
        );
    }
    if !facts.has_seccomp {
        missing(Part::Calls, "the kernel does not filter system calls (CONFIG_SECCOMP_FILTER)".to_owned());
    }
    // Another user does not read the key, whatever Landlock lets through.
    let beneath = requested.key_file.as_ref().and_then(|key| files::holds(readable, key));
    if let (Some(key), Some(folder), None) = (&requested.key_file, beneath, decision.users) {
        let (key, folder) = (key.display(), folder.display());
        missing(
            Part::Key,
            format!("the key file {key} lies beneath {folder}, where workers read libraries: move it"),
        );
    }
    if !facts.has_rdma {
        if facts.capabilities.contains(CapabilitySet::SYS_ADMIN) {
            decision.empty_network = true;
        } else {
            missing(Part::Network, "making an empty one needs CAP_SYS_ADMIN, as root has it".to_owned());
        }
    }
    decision.files = facts.has_landlock;
    decision.calls = facts.has_seccomp;
    if decision.users.is_some() && !requested.apart {
        decision.shared = shared(facts, requested.uses_driver);
    }
    decision
}

/// Why processes share a user.
fn shared(facts: &Facts, uses_driver: bool) -> Option<Shared> {
    match (uses_driver, &facts.mps) {
        (true, Some(_)) => Some(Shared::Mps),
        (true, None) if facts.has_nvidia => Some(Shared::Events),
        _ => None,
    }
}

/// The users that processes get, or why they have none of their own.
fn users(facts: &Facts, requested: UserRange) -> Result<UserRange, String> {
    if facts.user != 0 {
        return Err("the server is not root".to_owned());
    }
    let changes = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if !facts.capabilities.contains(changes) {
        return Err("the server is root without CAP_SETUID and CAP_SETGID".to_owned());
    }
    let has = |map: &[(u32, u32)]| {
        let ends_within = |(first, count): &(u32, u32)| {
            *first <= requested.first() && u64::from(requested.last()) < u64::from(*first) + u64::from(*count)
        };
        map.iter().any(ends_within)
    };
    if has(&facts.users) && has(&facts.groups) {
        Ok(requested)
    } else {
        Err(format!("this container has no users {requested}: give others with --worker-users"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Found;

    fn root() -> Facts {
        Facts {
            user: 0,
            capabilities: CapabilitySet::all(),
            users: vec![(0, u32::MAX)],
            groups: vec![(0, u32::MAX)],
            has_landlock: true,
            has_seccomp: true,
            has_rdma: false,
            has_nvidia: false,
            mps: None,
            control_groups: Found::default(),
        }
    }

    fn requested() -> SandboxRequest {
        SandboxRequest { key_file: Some("/root/key".into()), ..SandboxRequest::default() }
    }

    fn parts(decision: &Decision) -> Vec<Part> {
        decision.missing.iter().map(|one| one.part).collect()
    }

    #[test]
    fn root_on_a_new_kernel_has_everything() {
        let decision = decide(&root(), &requested(), &[]);
        assert_eq!(decision.missing, []);
        assert_eq!(decision.users, Some(UserRange::DEFAULT));
        assert!(decision.files && decision.calls && decision.empty_network && decision.shared.is_none());
    }

    #[test]
    fn each_part_that_cannot_be_had_is_named() {
        let none = CapabilitySet::empty();
        let user = Facts { user: 1000, capabilities: none, ..root() };
        assert_eq!(parts(&decide(&user, &requested(), &[])), [Part::Users, Part::Network]);
        let old = Facts { has_landlock: false, has_seccomp: false, ..root() };
        let decision = decide(&old, &requested(), &[]);
        assert_eq!(parts(&decision), [Part::Files, Part::Calls]);
        assert!(!decision.files && !decision.calls);
        let bare = Facts { capabilities: none, ..root() };
        assert_eq!(parts(&decide(&bare, &requested(), &[])), [Part::Users, Part::Network]);
    }

    #[test]
    fn users_must_exist_in_the_container() {
        let container = Facts { users: vec![(0, 65536)], groups: vec![(0, 65536)], ..root() };
        let decision = decide(&container, &requested(), &[]);
        assert_eq!((parts(&decision), decision.users), (vec![Part::Users], None));
        assert!(decision.missing[0].to_string().contains("--worker-users"), "{}", decision.missing[0]);
        let users = UserRange::new(60_000, 65_535).unwrap();
        assert_eq!(decide(&container, &SandboxRequest { users, ..requested() }, &[]).users, Some(users));
        let users = UserRange::new(60_000, 65_536).unwrap();
        assert_eq!(decide(&container, &SandboxRequest { users, ..requested() }, &[]).users, None);
    }

    #[test]
    fn cards_need_the_servers_network() {
        let decision = decide(&Facts { has_rdma: true, ..root() }, &requested(), &[]);
        assert!(!decision.empty_network && decision.missing.is_empty());
    }

    #[test]
    fn a_key_among_the_libraries_is_secret_from_other_users_only() {
        let requested = SandboxRequest { key_file: Some("/usr/share/key".into()), ..requested() };
        let readable = [PathBuf::from("/usr")];
        assert_eq!(parts(&decide(&root(), &requested, &readable)), []);
        let user = Facts { user: 1000, ..root() };
        assert_eq!(parts(&decide(&user, &requested, &readable)), [Part::Users, Part::Key]);
    }

    #[test]
    fn processes_share_a_user_where_nvidias_driver_serves_unless_they_are_to_be_apart() {
        let driver = Facts { has_nvidia: true, ..root() };
        let mps = Facts { mps: Some("/tmp/nvidia-mps".into()), ..driver.clone() };
        let requested = SandboxRequest { uses_driver: true, ..requested() };
        let shared = |facts: &Facts, requested: &SandboxRequest| decide(facts, requested, &[]).shared;
        assert_eq!(shared(&driver, &requested), Some(Shared::Events));
        assert_eq!(shared(&mps, &requested), Some(Shared::Mps));
        assert_eq!(shared(&root(), &requested), None, "no driver");
        assert_eq!(
            shared(&mps, &SandboxRequest { uses_driver: false, ..requested.clone() }),
            None,
            "the software GPU"
        );
        assert_eq!(shared(&mps, &SandboxRequest { apart: true, ..requested.clone() }), None);
        assert_eq!(shared(&Facts { user: 1000, ..mps }, &requested), None, "there are no users to share");
    }
}
