//! Table of all environment variables.
//!
//! First those that people set, in the order in which the book lists them; then NVIDIA's own, and those
//! of tests. What a variable is called in configuration files follows from its name
//! ([`Variable::key`]).

use crate::transport_kind::TransportKind;
use crate::variable::{Component, Fallback, Values, Variable};

use Component::{Client, Mpirun, Nccl, Rank, Run, Server, Team, Test, Worker};

const fn variable(
    name: &'static str,
    components: &'static [Component],
    values: Values,
    default: Fallback,
    text: &'static str,
    more: &'static str,
) -> Variable {
    Variable { name, components, values, default, text, more }
}

const ANY: Values = Values::Text("");
const NOTHING: Fallback = Fallback::Text("");

/// Folder of the pipes of NVIDIA's MPS, where `CUDA_MPS_PIPE_DIRECTORY` names none.
pub const MPS_PIPE_DIRECTORY_DEFAULT: &str = "/tmp/nvidia-mps";

/// Defines a constant for each variable, and the list of all.
macro_rules! table {
    ($($constant:ident: $name:literal, $components:expr, $values:expr, $default:expr, $text:literal, $more:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $text, ".")]
            pub const $constant: Variable = variable($name, &$components, $values, $default, $text, $more);
        )*

        /// Every variable, in the order of the book.
        pub static ALL: &[&Variable] = &[$(&$constant),*];
    };
}

/// Queue pairs of a session by default. Two a port were the published optimum (2 % below 2 KiB, 5 % above; more
/// gave nothing).
pub const VERBS_QUEUE_PAIRS_DEFAULT: u64 = 2;
/// The most queue pairs of a session.
pub const MAX_VERBS_QUEUE_PAIRS: u64 = 16;
/// Messages of a kind under way on a queue pair by default. A capacity of 128 requests was the published optimum
/// (against 2: up to 5.8 times the rate; more gave nothing).
pub const VERBS_QUEUE_DEPTH_DEFAULT: u64 = 128;
/// The most of them.
pub const MAX_VERBS_QUEUE_DEPTH: u64 = 1024;
/// Bytes that go into the queue with their request: an announcement is 48.
pub const VERBS_INLINE_DEFAULT: u64 = 64;
/// One request in so many has a completion.
pub const VERBS_SIGNAL_INTERVAL_DEFAULT: u64 = 16;
/// Bytes of staging for each direction, at either end: four pieces of a long copy. It is registered, and so taken
/// from the system, at the start.
pub const VERBS_STAGING_DEFAULT: u64 = 16 << 20;
/// Bytes of the staging arena of a session over shared memory.
pub const SHM_STAGING_DEFAULT: u64 = 256 << 20;
/// The least and the most of them.
pub const SHM_STAGING_LIMITS: (u64, u64) = (1 << 20, 16 << 30);
/// Sockets of a connection of NCCL: as many as fill a fast network, or the host's memory.
pub const NCCL_LANES_DEFAULT: u64 = 4;
/// The most of them.
pub const MAX_NCCL_LANES: u64 = 16;
/// Messages from here on are fetched from the sender's GPU; shorter ones travel with the MPI.
pub const COMM_THRESHOLD_DEFAULT: u64 = 4096;
/// Collective calls from here on go from GPU to GPU; shorter ones are staged in the host's memory.
pub const COMM_COLLECTIVE_THRESHOLD_DEFAULT: u64 = 64 << 10;

/// Seconds that a collective call in a graph waits for other ranks.
pub const COMM_GRAPH_TIMEOUT_DEFAULT: u64 = 600;
/// Operations with a peer that end a period of the tracer.
pub const COMM_TRACE_DEFAULT: u64 = 64;
/// Seconds without a byte of the server after which a program gives it up.
pub const KEEPALIVE_TIMEOUT_DEFAULT: u64 = 15;
/// The most connections that carry large copies.
pub const MAX_LANES: u64 = 32;
/// The most devices of the software GPU: more no program expects.
pub const MAX_SOFTWARE_GPU_DEVICES: u64 = 16;

table! {
    CONFIG: "CAUSEWAY_CONFIG", [Client, Server, Run], Values::Path,
        Fallback::Text("`~/.config/causeway/config.toml`, and then `/etc/causeway/*.toml`"),
        "the only configuration file that is read",
        "If it is empty, none is. See the guide on configuration.";
    ON: "CAUSEWAY_ON", [Client], ANY, NOTHING,
        "the server: a name from a configuration file, `HOST:PORT`, `unix:PATH`, `vsock:CID:PORT`, or the connect string that \
         `causeway serve` printed; `local` for this machine's own GPUs; or several, with commas between them",
        "`unix:@NAME` is an abstract socket of this machine. Behind the address `?clear` is for a server \
         that was started with `--clear` and is to send in the clear, `?insecure-no-key` for one that \
         asks for no key; a key in it still works, and `causeway` warns of it. The program has the \
         devices of several servers one after the other. `causeway run --on` sets it.";
    KEY_FILE: "CAUSEWAY_KEY_FILE", [Client], Values::Path,
        Fallback::Text("`~/.config/causeway/keys`, which `causeway key add` fills, then \
         `~/.config/causeway/key`, which a server of this user creates"),
        "file with the servers' keys, as with `--key-file`",
        "Each line is a key, or `HOST:PORT` and a key; `#` begins a comment. Only the owner may have access to \
         the file. `causeway run` sets the variable for the program if the key was passed in another way, so \
         that no key is in arguments or the environment.";
    LANES: "CAUSEWAY_LANES", [Client], Values::Number(1, MAX_LANES),
        Fallback::Text("4; 8 on a machine with 8 cores or more; if the round trip is longer than 5 ms, one for \
         each 1.25 ms, at most 16"),
        "number of connections that carry large copies",
        "The kernel has at most about 2.7 MiB in flight on each.";
    KEEPALIVE_TIMEOUT: "CAUSEWAY_KEEPALIVE_TIMEOUT", [Client], Values::Seconds(0, 86_400),
        Fallback::Number(KEEPALIVE_TIMEOUT_DEFAULT),
        "seconds without received data after which a TCP connection to a server is considered dead",
        "Both ends send a message every second, however long a kernel runs; silence means that the worker is \
         stopped, or that the network no longer forwards data. 0 disables the timeout; 1 and 2 count as 3. It \
         does not apply to older servers, which send no such messages.";
    RESUME_TIMEOUT: "CAUSEWAY_RESUME_TIMEOUT", [Client], Values::Seconds(0, 86_400), Fallback::Number(0),
        "seconds for which a program that has lost its TCP connection tries to reconnect and resume its session",
        "0: the session ends with its connection. The server must allow it (`causeway serve --resume-timeout`, \
         default 60 s); the shorter time applies. A copy from pageable memory takes one round trip longer, \
         since its bytes are kept until the server has received them.";
    FORK: "CAUSEWAY_FORK", [Client], Values::Switch, Fallback::Text("off"),
        "allows the program to fork together with its session (`causeway_gpu.fork()`)",
        "The server then keeps the code that the program has loaded, and the calls that created its objects. A \
         session that can be resumed (`CAUSEWAY_RESUME_TIMEOUT`) can always be forked.";
    JOB: "CAUSEWAY_JOB", [Client], ANY,
        Fallback::Text("batch system and number of the job, from `SLURM_JOB_ID`, `PBS_JOBID`, `LSB_JOBID` or \
         `CI_JOB_ID`"),
        "name of the program's job in `causeway sessions`, the audit log and `causeway usage`",
        "The server does not verify it.";
    DEDUP: "CAUSEWAY_DEDUP", [Client], Values::Switch, Fallback::Text("off"),
        "copies of 1 MiB and more from pageable memory to a device send only data that the server does not \
         have from earlier copies", "";
    PIPELINE: "CAUSEWAY_PIPELINE", [Client], Values::Text("rules such as `..1M: 4x256K; 1M..: 8x4M, 8 lanes`"),
        Fallback::Text("the results of `causeway tune`, or else a built-in table"),
        "how copies are split and transferred, by size", "See [below](#how-copies-are-carried).";
    VIA: "CAUSEWAY_VIA", [Client], Values::Word(TransportKind::CHOICES),
        Fallback::Text("`auto`: memory shared with the server on the same host, otherwise InfiniBand if both \
         hosts have it, otherwise TCP"),
        "transport for calls and copies",
        "An unavailable transport is an error: `cuInit` finds no device, and the reason is printed on standard \
         error. `causeway run --via` sets the variable.";
    BETWEEN_SERVERS: "CAUSEWAY_BETWEEN_SERVERS", [Client],
        Values::Word(TransportKind::CHOICES_BETWEEN_SERVERS),
        Fallback::Text("`auto`: the destination's device itself if it can access the source's memory, \
         otherwise the link between the workers, otherwise the client"),
        "path of copies between devices of two servers",
        "`link` excludes access by the device itself; `shm`, `verbs` and `tcp` are the link over this \
         transport alone, otherwise the client; `client` is for comparison. `verbs` also allows unencrypted \
         data.";
    SOCKET_DIR: "CAUSEWAY_SOCKET_DIR", [Client, Server, Rank, Nccl], Values::Path,
        Fallback::Text("`causeway` in `$XDG_RUNTIME_DIR`, or `/tmp/causeway-UID`"),
        "folder, shared by containers of one host, for the socket over which client and worker set up shared \
         memory",
        "For `causeway serve` the same as `--socket-dir`; for clients the path of that folder in their \
         container. Workers look there for the sockets of other servers of their host.";
    SHM_STAGING: "CAUSEWAY_SHM_STAGING", [Server],
        Values::Size(SHM_STAGING_LIMITS.0, SHM_STAGING_LIMITS.1), Fallback::Size(SHM_STAGING_DEFAULT),
        "bytes of the staging arena that a worker shares with a client of the same host, for both directions \
         together",
        "At most an eighth of the limit of the server's memory cgroup. Memory is allocated only as it is used.";
    GPUDIRECT: "CAUSEWAY_GPUDIRECT", [Worker, Server],
        Values::Word(&["auto", "dma-buf", "peermem", "off", "on", "1", "0"]),
        Fallback::Text("`auto`: by dma-buf, otherwise with `nvidia_peermem`, otherwise through staging memory \
         of the host"),
        "how network cards access the GPU's memory",
        "`off` selects staging, for comparison. A client's setting takes precedence over the server's. \
         `causeway run --stats` reports the method in use and its bytes, `causeway doctor` the available ones; \
         see docs/src/reference/limits.md.";
    CORES: "CAUSEWAY_CORES", [Client, Server], Values::Number(1, 4096),
        Fallback::Text("as many as the process may use"),
        "number of cores that Causeway may use",
        "With 8 and more, threads busy-poll for some milliseconds before they sleep, which shortens waits and \
         takes processor time; with 4 to 7 for 50 us; with fewer they sleep at once. `1` leaves the processor \
         to the program, and calls that wait take longer. The numbers of lanes and of threads that copy also \
         depend on it.";
    SYNC: "CAUSEWAY_SYNC", [Client], Values::Switch, Fallback::Text("off"),
        "every call waits for its result, so that an error is returned by the call that causes it", "";
    STATS: "CAUSEWAY_STATS", [Client], Values::Path, Fallback::Text("not written"),
        "file to which counts of calls, and of copies by transport and kind of memory, are written as JSON \
         when the program ends",
        "`%p` in the file name is replaced by the process number; a program that starts others needs it, or \
         only the counts of the last process to end remain. `causeway run --stats` prints a summary of all \
         processes, and warns of pageable memory and of many short copies.";
    DEVICE_TIMES: "CAUSEWAY_DEVICE_TIMES", [Client], Values::Switch, Fallback::Text("off"),
        "the counts of `CAUSEWAY_STATS` include the time of kernels and copies on the devices, and their \
         overlap",
        "Each launch and copy is enclosed in two events, up to 16,384; later ones are counted without times. \
         `causeway run --stats --device-times` sets the variable.";
    TRACE: "CAUSEWAY_TRACE", [Client], Values::Path, Fallback::Text("not written"),
        "file to which the program's calls, waits and device times are written as trace events when the \
         program ends",
        "`%p` in the file name is replaced by the process number. `causeway trace` sets the variable and \
         merges the traces of several processes into one file for Perfetto, Chrome and speedscope.";
    LOG: "CAUSEWAY_LOG", [Client],
        Values::Word(&["off", "error", "info", "debug", "trace"]), Fallback::Text("`error`"),
        "level of the client library's log on standard error", "";
    CACHE_DIR: "CAUSEWAY_CACHE_DIR", [Client, Rank], Values::Path, Fallback::Text(
    "`causeway` in `$XDG_CACHE_HOME` or `~/.cache`"),
        "folder of the caches: hashes of images in libraries, results of NVRTC, and measured costs of channels \
         between the ranks of MPI programs",
        "At most 1 GiB; the oldest entries are removed first. `CUDA_CACHE_DISABLE=1` excludes the results of \
         NVRTC. An empty value disables the caches.";
    LIB_DIR: "CAUSEWAY_LIB_DIR", [Run], Values::Path,
        Fallback::Text("the folder of the program `causeway`, or `../lib/causeway` relative to it"),
        "folder with `libcuda.so.1`, `libnvidia-ml.so.1` and the stubs of other libraries of the driver", "";
    DRIVER: "CAUSEWAY_DRIVER", [Server], Values::Path, Fallback::Text("the usual search"),
        "path of NVIDIA's `libcuda.so.1`", "";
    NVML: "CAUSEWAY_NVML", [Server], Values::Path, Fallback::Text("the usual search"),
        "path of NVIDIA's `libnvidia-ml.so.1`", "";
    SOFTWARE_GPU_DEVICES: "CAUSEWAY_SOFTWARE_GPU_DEVICES", [Server],
        Values::Number(1, MAX_SOFTWARE_GPU_DEVICES), Fallback::Number(1),
        "number of devices of the software GPU", "They share processor and memory.";
    SOFTWARE_GPU_MEMORY: "CAUSEWAY_SOFTWARE_GPU_MEMORY", [Server], Values::Size(1 << 20, 8 << 40),
        Fallback::Text("half of the machine's, at most 8 GiB"),
        "bytes of memory of the software GPU", "";
    SOFTWARE_GPU_PINNED: "CAUSEWAY_SOFTWARE_GPU_PINNED", [Server],
        Values::Size(0, u64::MAX), Fallback::Text("no limit"),
        "maximum bytes of registered host memory of the software GPU",
        "For tests of a system that limits locked memory.";
    SOFTWARE_GPU_CUDA: "CAUSEWAY_SOFTWARE_GPU_CUDA", [Server], Values::Text("a version of CUDA such as 12.4"),
        Fallback::Text("13.0, and all PTX up to version 9.5, that of CUDA 13.5"),
        "CUDA version of the software GPU's driver, which limits the PTX versions that it accepts", "";
    SOFTWARE_GPU_CAPABILITY: "CAUSEWAY_SOFTWARE_GPU_CAPABILITY", [Server],
        Values::Word(&["5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0",
        "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]),
        Fallback::Text("12.0, since libraries that are built for many GPUs have PTX for the newest only"),
        "compute capability of the software GPU",
        "It selects the PTX of an image, the newest for such a device, and the code that programs choose; \
         memory, registers and threads of a multiprocessor do not depend on it. With a lower one, such as 7.5, \
         some programs avoid instructions that the software GPU does not support.";

    VERBS_DEVICE: "CAUSEWAY_VERBS_DEVICE", [Client, Server, Rank, Team], ANY,
        Fallback::Text("the device with the address of the TCP connection, otherwise the fastest with an \
         active port"),
        "RDMA device, as listed by `ibv_devices`",
        "rdma_cm can only use the device with that address; it is an error to name another one.";
    VERBS_GID: "CAUSEWAY_VERBS_GID", [Client, Server, Rank, Team], Values::Number(0, 1023),
        Fallback::Text("on Ethernet a RoCE v2 GID, preferably of an IPv4 address"),
        "index of the GID in the port's table", "";
    VERBS_CONNECT: "CAUSEWAY_VERBS_CONNECT", [Client, Server], Values::Word(&["auto", "rdma_cm", "numbers"]),
        Fallback::Text("`auto`: `rdma_cm` for iWARP devices, otherwise `numbers`"),
        "how queue pairs are connected",
        "`numbers`: the queue pairs' numbers are exchanged over TCP; `rdma_cm`: librdmacm connects them.";
    VERBS_QUEUE_PAIRS: "CAUSEWAY_VERBS_QUEUE_PAIRS", [Client, Server, Rank],
        Values::Number(1, MAX_VERBS_QUEUE_PAIRS),
        Fallback::Number(VERBS_QUEUE_PAIRS_DEFAULT), "number of queue pairs of a session, and of two ranks", "";
    VERBS_QUEUE_DEPTH: "CAUSEWAY_VERBS_QUEUE_DEPTH", [Client, Server, Rank], Values::Number(1, MAX_VERBS_QUEUE_DEPTH),
        Fallback::Number(VERBS_QUEUE_DEPTH_DEFAULT),
        "maximum number of messages of each kind in flight on a queue pair, a quarter of it for messages with \
         commands; between ranks, of reads", "";
    VERBS_MTU: "CAUSEWAY_VERBS_MTU", [Client, Server], Values::NumberOf(&[256, 512, 1024, 2048, 4096]),
        Fallback::Text("the port's; with rdma_cm, the path's"),
        "path MTU: bytes of a packet's payload", "";
    VERBS_INLINE: "CAUSEWAY_VERBS_INLINE", [Client, Server],
        Values::Number(0, 1024), Fallback::Number(VERBS_INLINE_DEFAULT),
        "maximum bytes that are sent inline with their request, instead of being read from memory by the device", "";
    VERBS_SIGNAL_INTERVAL: "CAUSEWAY_VERBS_SIGNAL_INTERVAL", [Client, Server], Values::Number(1, 1024),
        Fallback::Number(VERBS_SIGNAL_INTERVAL_DEFAULT), "number of requests per signalled completion", "";
    VERBS_POLL_US: "CAUSEWAY_VERBS_POLL_US", [Client, Server], Values::Number(0, 1_000_000),
        Fallback::Text("20, or 0 with fewer than four cores"),
        "microseconds for which a thread polls for completions before it sleeps", "";
    VERBS_TO_DEVICE: "CAUSEWAY_VERBS_TO_DEVICE", [Client, Server], Values::Word(&["auto", "read", "write"]),
        Fallback::Text("`auto`: copies of 1 MiB and more are read"),
        "how pinned memory is transferred to a server whose network card cannot access its GPU's memory",
        "`write`: the client's card writes it; `read`: the server's card reads it. The client's setting \
         applies.";
    VERBS_STAGING: "CAUSEWAY_VERBS_STAGING", [Client, Server], Values::Size(1 << 20, 4 << 30),
        Fallback::Size(VERBS_STAGING_DEFAULT),
        "bytes of registered staging memory for each direction at each end",
        "The limit of locked memory (`ulimit -l`) may reduce it.";

    COMM_JOB: "CAUSEWAY_COMM_JOB", [Rank], Values::Text("32 hexadecimal digits"),
        Fallback::Text("messages from and to GPUs are sent by the MPI"),
        "secret of an MPI job, with which its ranks authenticate each other",
        "`causeway mpirun` creates one for each job.";
    COMM_CHANNELS: "CAUSEWAY_COMM_CHANNELS", [Rank, Team],
        Values::Text("`ipc`, `vmm`, `staged`, `bar`, `rdma`, `loopback`, `tcp`, separated by commas"),
        Fallback::Text("all; the best one is selected for each message"), "channels that messages may use",
        "Without `rdma`, teams of kernels on several hosts use TCP.";
    COMM_THRESHOLD: "CAUSEWAY_COMM_THRESHOLD", [Rank], Values::Size(79, u64::MAX),
        Fallback::Size(COMM_THRESHOLD_DEFAULT),
        "bytes from which on a message is transferred from GPU to GPU",
        "Shorter messages are sent by the MPI; if the variable is not set, only those from memory that the \
         receiver does not have open.";
    COMM_COLLECTIVE_THRESHOLD: "CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", [Rank], Values::Size(1, u64::MAX),
        Fallback::Size(COMM_COLLECTIVE_THRESHOLD_DEFAULT),
        "bytes from which on a collective call transfers from GPU to GPU, if all ranks' memory is on GPUs",
        "Shorter calls are staged in host memory; reductions only below a sixteenth of it, if the ranks of a \
         host can open each other's memory. It must be the same at all ranks.";
    COMM_GRAPH_TIMEOUT: "CAUSEWAY_COMM_GRAPH_TIMEOUT", [Rank], Values::Seconds(1, 86_400),
        Fallback::Number(COMM_GRAPH_TIMEOUT_DEFAULT),
        "seconds for which a collective call in a graph waits until the other ranks have launched theirs",
        "After that it fails, as do later calls of the group: their graphs do nothing. The end of a rank is \
         detected at once.";
    COMM_TRACE: "CAUSEWAY_COMM_TRACE", [Rank], Values::Number(1, u32::MAX as u64),
        Fallback::Number(COMM_TRACE_DEFAULT),
        "number of blocking or non-blocking operations with a peer that classify its traffic as bound by \
         latency or by bandwidth", "";
    COMM_TABLE: "CAUSEWAY_COMM_TABLE", [Rank],
        Values::Text("`published`, or rules such as `..4K: staged; bandwidth 4K..512K: loopback, vmm`"),
        Fallback::Text("none; the cheapest channel is determined by measurement"),
        "channel of messages, by size and kind",
        "See [below](#which-channel-a-message-takes).";
    COMM_CHECK: "CAUSEWAY_COMM_CHECK", [Rank], Values::Switch, Fallback::Text("off"),
        "the ranks compare each collective call of MPI before they execute it",
        "Different calls, roots or lengths, and ranks that do not call within 8 s, are reported as errors. It \
         must be the same at all ranks.";
    COMM_EXPLAIN: "CAUSEWAY_COMM_EXPLAIN", [Rank, Team], Values::Switch, Fallback::Text("off"),
        "each rank reports at its end which channels its messages used, and why", "";
    COMM_NUMA: "CAUSEWAY_COMM_NUMA", [Rank, Team], Values::Word(&["auto", "off"]), Fallback::Text("`auto`"),
        "places the library's threads and staging memory on the NUMA node of their GPU or RDMA device",
        "`auto`: if the machine has several nodes. The program's own threads are not moved.";
    DEVICE_INITIATOR: "CAUSEWAY_DEVICE_INITIATOR", [Team], Values::Word(&["auto", "direct", "proxy", "verbs"]),
        Fallback::Text("`auto`"),
        "initiator of puts and gets of kernels: the kernel's threads (`direct`), a host thread (`proxy`), the \
         network card, to which kernels post requests (`verbs`), or for each message the cheapest (`auto`)",
        "`verbs` applies to ranks that a network card reaches; for others the cheaper initiator is used. \
         `proxy` does not map peers' memory, so atomic operations need windows in host memory, unless the \
         team's ranks are on several hosts.";
    DEVICE_EXPLAIN: "CAUSEWAY_DEVICE_EXPLAIN", [Team], Values::Switch, Fallback::Text("off"),
        "each rank reports at the end of a team which initiator was used for which message sizes, and why", "";
    DEVICE_NONCE: "CAUSEWAY_DEVICE_NONCE", [Team],
        Values::Text("32 hexadecimal digits, new ones for each job"),
        Fallback::Text("none; PEs that join by MPI or a unique id need none"),
        "secret with which the PEs of `nvshmem_init` that a process launcher has started prove to belong to \
         one job",
        "Read by `nvshmem.h`, only from the environment.";
    COMM_HOSTS: "CAUSEWAY_COMM_HOSTS", [Rank, Team],
        Values::Text("names or addresses, separated by commas"),
        Fallback::Text("none; messages to other hosts are sent by the MPI"),
        "the job's hosts: their ranks transfer messages between GPUs by RDMA devices or over TCP, and their \
         kernels communicate over TCP",
        "Each rank then listens on a port. Ranks authenticate each other; the data is not encrypted.";
    COMM_CONTAINER: "CAUSEWAY_COMM_CONTAINER", [Rank],
        Values::Text("`[container, cores, sockets]`, such as `[1, 0-3, 0]`, or the path of a file with that"),
        Fallback::Text("as the kernel reports them"), "container, cores and sockets of the rank, as set by a \
         launcher",
        "`causeway mpirun` sets it for the ranks of its own container, and devices of `causeway cdi` for \
         theirs; then `@` and 16 digits follow, and it applies to that container only.";
    MPI_LIBRARY: "CAUSEWAY_MPI_LIBRARY", [Mpirun], Values::Path,
        Fallback::Text("`mpi/openmpi` or `mpi/mpich` beside the program `causeway`, or in `../lib/causeway`"),
        "interposer library, as with `--library`", "";
    NCCL_GPU: "CAUSEWAY_NCCL_GPU", [Nccl], Values::Word(&["auto", "on", "off"]), Fallback::Text("`auto`: for \
         GPUs of this machine"),
        "whether NCCL may send GPU memory without a copy of its own in host memory",
        "`on`: also of GPUs that Causeway forwards. NCCL uses it as `NCCL_NET_GDR_LEVEL` allows.";
    NCCL_LANES: "CAUSEWAY_NCCL_LANES", [Nccl], Values::Number(1, MAX_NCCL_LANES),
        Fallback::Number(NCCL_LANES_DEFAULT), "number of sockets of a connection, over which long messages are \
         striped", "";
    NCCL_PATH: "CAUSEWAY_NCCL_PATH", [Nccl], Values::Word(&["auto", "unix", "tcp"]),
        Fallback::Text("`auto`: a Unix socket if the peer's can be reached, otherwise TCP"),
        "connection to peers", "";
    NCCL_SPEED: "CAUSEWAY_NCCL_SPEED", [Nccl], Values::Number(1, 10_000_000),
        Fallback::Text("the speed of the fastest network interface"),
        "network speed that is reported to NCCL, in Mbit/s",
        "NCCL selects its channels by it.";

    CUDA_CACHE_PATH: "CUDA_CACHE_PATH", [Server], Values::Path, Fallback::Text("`~/.nv/ComputeCache`"),
        "folder where NVIDIA's driver caches compiled code",
        "A server that runs as root uses a folder of `/var/cache/causeway/cuda` for each worker user instead.";
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", [Server],
        Values::Number(1, 100), Fallback::Number(100),
        "percentage of the multiprocessors that each worker may use under NVIDIA's MPS",
        "Shares of clients lower it.";
    CUDA_MPS_PIPE_DIRECTORY: "CUDA_MPS_PIPE_DIRECTORY", [Server],
        Values::Path, Fallback::Text("`/tmp/nvidia-mps`"),
        "folder of the pipes of NVIDIA's MPS",
        "The folder must belong to root or the server's user. If it exists, all workers have one user, unless \
         `--worker-users` is given.";
    NCCL_SOCKET_IFNAME: "NCCL_SOCKET_IFNAME", [Nccl], ANY, Fallback::Text("all"),
        "network interfaces whose addresses peers use for this process, as for NCCL's own sockets", "";
    LD_LIBRARY_PATH: "LD_LIBRARY_PATH", [Server], ANY, NOTHING,
        "folders of libraries, besides the system's",
        "Workers may read these folders, as those of `CAUSEWAY_DRIVER` and `CAUSEWAY_NVML`.";
    CUDA_VISIBLE_DEVICES: "CUDA_VISIBLE_DEVICES", [Client, Server], ANY, Fallback::Text("all"),
        "numbers or UUIDs of the server's devices that the program sees",
        "The list ends at the first device that does not exist, and must not name a device twice. If it is set \
         for `causeway serve`, only those devices are offered, and a program's list selects among them.";
    CUDA_DEVICE_ORDER: "CUDA_DEVICE_ORDER", [Client], ANY, Fallback::Text("`FASTEST_FIRST`"),
        "`FASTEST_FIRST` (the server's order) or `PCI_BUS_ID`", "";
    CUDA_LAUNCH_BLOCKING: "CUDA_LAUNCH_BLOCKING", [Client], ANY, NOTHING,
        "`1`: each launch waits until its kernel is done", "";
    ADDRESSES_TAKEN: "CAUSEWAY_ADDRESSES_TAKEN", [Worker],
        Values::Text("ranges of hexadecimal addresses, such as `100000000000-108000000000`, separated by commas"),
        Fallback::Text("those that the client library finds in the program"),
        "addresses of the program that a server must not use for its address windows",
        "The client library sets it.";
    CUDA_MODULE_LOADING: "CUDA_MODULE_LOADING", [Worker], ANY, NOTHING,
        "`LAZY` or `EAGER`: when code of modules is loaded", "";
    CUDA_MODULE_DATA_LOADING: "CUDA_MODULE_DATA_LOADING", [Worker], ANY, NOTHING,
        "`LAZY` or `EAGER`: when data of modules is loaded", "";
    CUDA_DEVICE_MAX_CONNECTIONS: "CUDA_DEVICE_MAX_CONNECTIONS", [Worker], ANY, NOTHING,
        "hardware queues of a context", "";
    CUDA_DEVICE_MAX_COPY_CONNECTIONS: "CUDA_DEVICE_MAX_COPY_CONNECTIONS", [Worker], ANY, NOTHING,
        "hardware queues for copies of a context", "";
    CUDA_SCALE_LAUNCH_QUEUES: "CUDA_SCALE_LAUNCH_QUEUES", [Worker], ANY, NOTHING,
        "size of the launch queues", "";
    CUDA_DISABLE_PTX_JIT: "CUDA_DISABLE_PTX_JIT", [Worker], ANY, NOTHING,
        "`1`: PTX in images is not compiled", "";
    CUDA_FORCE_JIT: "CUDA_FORCE_JIT", [Client, Worker], ANY, NOTHING,
        "`1`: PTX is compiled even where a binary would fit", "";
    CUDA_FORCE_PTX_JIT: "CUDA_FORCE_PTX_JIT", [Client, Worker], ANY, NOTHING,
        "`1`: binaries in images are ignored in favour of PTX", "";
    CUDA_CACHE_DISABLE: "CUDA_CACHE_DISABLE", [Client, Worker], ANY, NOTHING,
        "`1`: compiled PTX is not cached", "";
    CUDA_CACHE_MAXSIZE: "CUDA_CACHE_MAXSIZE", [Worker], ANY, NOTHING,
        "maximum size of the cache of compiled PTX, in bytes", "";
    CUDA_AUTO_BOOST: "CUDA_AUTO_BOOST", [Worker], ANY, NOTHING, "as NVIDIA documents it", "";
    CUDA_BINARY_LOADER_THREAD_COUNT: "CUDA_BINARY_LOADER_THREAD_COUNT", [Worker], ANY, NOTHING,
        "as NVIDIA documents it", "";
    CUDA_GRAPHS_USE_NODE_PRIORITY: "CUDA_GRAPHS_USE_NODE_PRIORITY", [Worker],
        ANY, NOTHING, "as NVIDIA documents it", "";
    CUDA_L2_PERSISTING: "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT", [Worker], ANY, NOTHING,
        "as NVIDIA documents it", "";

    TEST_DELAYS: "CAUSEWAY_TEST_DELAYS", [Test],
        Values::Text("PER_MILLE:MICROSECONDS, such as 50:2000"), Fallback::Text("none"),
        "random delays of hand-overs between threads: how many in a thousand, and up to how many microseconds; \
         only in builds with debug assertions", "";
}

/// Variables that had another name, which still works until version 0.4: the former name, and the variable.
pub static RENAMED: &[(&str, &Variable)] = &[
    ("CAUSEWAY_VERBS_DEPTH", &VERBS_QUEUE_DEPTH),
    ("CAUSEWAY_COMM_GRAPH_LIMIT", &COMM_GRAPH_TIMEOUT),
    ("CAUSEWAY_COMM_PLACE", &COMM_CONTAINER),
];

/// The variables that the worker gets from its client.
pub fn for_worker() -> impl Iterator<Item = &'static Variable> {
    ALL.iter().copied().filter(|variable| variable.components.contains(&Worker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    #[test]
    fn names_are_one_each_and_defaults_may_be_given() {
        for (index, variable) in ALL.iter().enumerate() {
            let Variable { name, values, default, text, .. } = variable;
            assert!(ALL[..index].iter().all(|other| other.name != *name), "{name} is there twice");
            assert!(!text.is_empty() && !text.ends_with('.'), "{name}: {text}");
            match default {
                Fallback::Number(number) => assert!(values.admits(&number.to_string()), "{name}"),
                Fallback::Size(bytes) => assert!(values.admits(&Size(*bytes).to_string()), "{name}"),
                Fallback::Text(_) => {}
            }
        }
    }

    #[test]
    fn the_worker_gets_nothing_that_names_a_server_or_its_devices() {
        assert!(for_worker().all(|variable| ![&ON, &KEY_FILE, &CUDA_VISIBLE_DEVICES].contains(&variable)));
        assert!(for_worker().any(|variable| variable == &CUDA_MODULE_LOADING));
    }
}
