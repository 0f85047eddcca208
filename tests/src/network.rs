//! Two network namespaces of this machine, joined by a cable of which the length and the rate are known; or
//! two hosts with RDMA devices, where the tests run in the guest of `tests/verbs`.
//!
//! Making namespaces takes root's rights. Where those are missing the reason comes back instead, and the test
//! that wanted a network says so and ends.

use crate::built::source_tree;
use crate::process::{Running, run};
use crate::server::Server;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The server's address in every network.
pub const SERVER: &str = "10.213.79.2";

/// The client's address in every network.
pub const CLIENT: &str = "10.213.79.1";

/// The name of the device at either end of a plain cable.
const DEVICE: &str = "eth0";

/// The end at the bridge of the server's cable, in the guest.
const SERVER_PORT: &str = "port2";

/// How long one command that sets a network up may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What joins the two namespaces.
#[derive(Debug, Clone, Copy)]
pub enum Cable<'a> {
    /// A pair of virtual devices of the kernel, at most as fast as `tc tbf` allows (`1gbit`, `10gbit`) where
    /// a rate is given.
    Plain {
        /// The rate, as `tc` writes it.
        rate: Option<&'a str>,
    },
    /// A process that carries the frames (`tests/net/netwire.c`, which says what its arguments mean).
    Carried {
        /// Delay, loss, rate and the like.
        arguments: &'a [&'a str],
    },
}

/// One end of the cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where programs run.
    Client,
    /// Where `causeway serve` runs.
    Server,
}

/// Two namespaces and their cable.
#[derive(Debug)]
pub struct Network {
    namespaces: [String; 2],
    /// Whether the namespaces were made for this value and go with it.
    is_own: bool,
    /// What carries the calls and copies of programs at the client's side.
    via: &'static str,
    /// What carries the frames of a [`Cable::Carried`].
    carrier: Option<Running>,
}

impl Network {
    /// Makes the namespaces and lays the cable; otherwise a sentence that says what is missing for that.
    pub fn lay(cable: Cable<'_>) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("causeway-{}-{number}-{side}", std::process::id());
        let namespaces = [name("client"), name("server")];
        let mut network = Self { namespaces, is_own: true, via: "tcp", carrier: None };
        for namespace in &network.namespaces {
            must_run(Command::new("ip").args(["netns", "add", namespace]))?;
        }
        for side in [Side::Client, Side::Server] {
            network.ip(side, &["link", "set", "lo", "up"])?;
        }
        match cable {
            Cable::Plain { rate } => network.join(rate)?,
            Cable::Carried { arguments } => network.carrier = Some(network.carry(arguments)?),
        }
        Ok(network)
    }

    /// The hosts h1 and h2 of the guest of `tests/verbs`, on which programs are carried by verbs; otherwise a
    /// sentence that says that this is no such guest.
    pub fn of_guest() -> Result<Self, String> {
        match std::env::var("CAUSEWAY_GUEST_DEVICE") {
            Ok(_) => {
                let namespaces = ["h1", "h2"].map(str::to_owned);
                Ok(Self { namespaces, is_own: false, via: "verbs", carrier: None })
            }
            Err(_) => Err("there are no RDMA devices here; `make verbs-test` has some".to_owned()),
        }
    }

    fn name(&self, side: Side) -> &str {
        &self.namespaces[side as usize]
    }

    /// Runs `ip` for the namespace at this side.
    pub fn ip(&self, side: Side, arguments: &[&str]) -> Result<(), String> {
        must_run(Command::new("ip").args(["-n", self.name(side)]).args(arguments))
    }

    fn join(&self, rate: Option<&str>) -> Result<(), String> {
        let far = self.name(Side::Server);
        self.ip(
            Side::Client,
            &["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", far],
        )?;
        for (side, address) in [(Side::Client, CLIENT), (Side::Server, SERVER)] {
            self.ip(side, &["address", "add", &format!("{address}/24"), "dev", DEVICE])?;
            self.ip(side, &["link", "set", DEVICE, "up"])?;
            if let Some(rate) = rate {
                let mut limit = Command::new("tc");
                limit.args(["qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate", rate]);
                limit.args(["burst", "2mb", "latency", "5ms"]);
                must_run(&mut self.inside(side, &limit))?;
            }
        }
        Ok(())
    }

    fn carry(&self, arguments: &[&str]) -> Result<Running, String> {
        let folder = tempfile::tempdir().map_err(|cause| format!("there is no temporary folder: {cause}"))?;
        let program = folder.path().join("netwire");
        let source = source_tree().join("tests/net/netwire.c");
        must_run(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source))?;
        let mut command = Command::new(&program);
        command.args([self.name(Side::Client), &format!("{CLIENT}/24")]);
        command.args([self.name(Side::Server), &format!("{SERVER}/24")]).args(arguments);
        let carrier = Running::start(&mut command);
        // Its file may go: the process has it.
        match carrier.find(LIMIT, |printed| printed.contains("ready").then_some(())) {
            Some(()) => Ok(carrier),
            None => Err(format!("the cable could not be laid: {}", carrier.stderr().trim())),
        }
    }

    /// The command as it runs in the namespace at this side. Programs of the client use the network, although
    /// both sides are on one host, unless their command says otherwise.
    pub fn inside(&self, side: Side, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{}", self.name(side))).arg("--");
        inside.arg(command.get_program()).args(command.get_args());
        if side == Side::Client {
            inside.env("CAUSEWAY_VIA", self.via);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Starts a server at the far side, with a key in `folder` as every server has that others can reach.
    pub fn server(&self, folder: &Path, more: &[&str]) -> Server {
        let key = folder.join("key");
        let key = key.to_str().expect("temporary folders have plain names");
        let command = Server::command(&[&["--listen", SERVER, "--key-file", key], more].concat());
        Server::start_command(self.inside(Side::Server, &command))
    }

    /// Disturbs what leaves this side as `tc netem` is told: `loss 1%`, `delay 1ms reorder 5%`. Nothing at
    /// all ends that.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn disturb(&self, side: Side, how: &[&str]) {
        let mut disturb = Command::new("tc");
        disturb.args(["qdisc", if how.is_empty() { "delete" } else { "replace" }, "dev", DEVICE, "root"]);
        if !how.is_empty() {
            disturb.arg("netem").args(how);
        }
        must_run(&mut self.inside(side, &disturb)).expect("the kernel has netem");
    }

    /// Leaves a side no other ports than these for whoever asks for any, of which one in `taken` belongs to
    /// somebody who listens there, as long as the result lives.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn leave_ports(&self, side: Side, ports: Range<u16>, taken: usize) -> Vec<TcpListener> {
        let range = format!("net.ipv4.ip_local_port_range={} {}", ports.start, ports.end - 1);
        must_run(&mut self.inside(side, Command::new("sysctl").args(["-q", "-w", &range])))
            .expect("the range can be set");
        let address = if side == Side::Client { CLIENT } else { SERVER };
        let namespace =
            File::open(format!("/run/netns/{}", self.name(side))).expect("the namespace is there");
        let listen = || {
            // This thread alone, which ends here.
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter the namespace");
            ports
                .step_by(taken)
                .map(|port| TcpListener::bind((address, port)).expect("the port is free"))
                .collect()
        };
        std::thread::scope(|scope| scope.spawn(listen).join().expect("the ports can be taken"))
    }

    /// Cuts the cable at the server's end, without either end being told; or mends it.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        let done = if self.is_own {
            self.ip(Side::Server, &["link", "set", DEVICE, state])
        } else {
            // At the bridge, as when a plug is pulled: siw ends its queue pairs when its own interface is
            // taken down.
            must_run(Command::new("ip").args(["link", "set", SERVER_PORT, state]))
        };
        done.expect("the device can be set");
        if !is_cut && self.is_own {
            // A question for the other's address that nobody answered meanwhile would make the next
            // connection fail.
            for side in [Side::Client, Side::Server] {
                self.ip(side, &["neigh", "flush", "dev", DEVICE]).expect("neighbours can be forgotten");
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        // Ends the carrier first: its devices are in the namespaces.
        self.carrier = None;
        for namespace in &self.namespaces {
            // One that could not be made is not there.
            let _ = must_run(Command::new("ip").args(["netns", "delete", namespace]));
        }
    }
}

/// Runs a command that must succeed; otherwise says what it said.
fn must_run(command: &mut Command) -> Result<(), String> {
    let what = format!("{command:?}");
    if std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .all(|folder| !folder.join(command.get_program()).exists())
    {
        return Err(format!("`{}` is not installed", command.get_program().to_string_lossy()));
    }
    let outcome = run(command, LIMIT);
    match outcome.code() {
        Some(0) => Ok(()),
        _ => Err(format!("{what} failed: {}", outcome.stderr.trim())),
    }
}
