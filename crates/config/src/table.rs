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
        Fallback::Text("`~/.config/causeway/keys`, which `causeway key add` fills, and then \
         `~/.config/causeway/key`, which a server of this user has made"),
        "a file with the servers' keys, as `--key-file` names it",
        "A line is a key, or `HOST:PORT` and a key; `#` begins a remark. Only its owner may be able to \
         read it. `causeway run` sets it for the program where the key came in another way, so that no \
         key is in arguments or the environment.";
    LANES: "CAUSEWAY_LANES", [Client], Values::Number(1, MAX_LANES),
        Fallback::Text("4, or 8 on a machine with 8 cores or more, and on a network whose round trip is \
         longer than 5 ms one for each 1.25 ms of it, 16 at most"),
        "how many connections carry large copies",
        "The kernel keeps no more than about 2.7 MiB under way on each.";
    KEEPALIVE_TIMEOUT: "CAUSEWAY_KEEPALIVE_TIMEOUT", [Client], Values::Seconds(0, 86_400),
        Fallback::Number(KEEPALIVE_TIMEOUT_DEFAULT),
        "after how many seconds without a byte a connection over TCP to a server counts as dead",
        "Both ends send something every second, however long a kernel runs, so that silence means that the worker is \
         stopped, or that something on the way forwards nothing any more. 0 is never; 1 and 2 are 3. A server that \
         sends nothing, since it is older, is not given up.";
    RESUME_TIMEOUT: "CAUSEWAY_RESUME_TIMEOUT", [Client], Values::Seconds(0, 86_400), Fallback::Number(0),
        "for how many seconds a program whose connection over TCP is lost goes on trying to connect again, and then \
         goes on as if nothing had been",
        "0: it ends with its connection. The server has to grant it (`causeway serve --resume-timeout`, 60 s unless said \
         otherwise), and the shorter time counts. A copy from pageable memory takes a round trip longer, since its bytes \
         are kept until the server has them.";
    FORK: "CAUSEWAY_FORK", [Client], Values::Switch, Fallback::Text("off"),
        "the program may fork together with its session (`causeway_gpu.fork()`)",
        "The server then keeps what code the program has loaded and by which calls it has made what it has. A \
         session that is resumed (`CAUSEWAY_RESUME_TIMEOUT`) can be forked in any case.";
    JOB: "CAUSEWAY_JOB", [Client], ANY,
        Fallback::Text("the batch system and the number of the job: `SLURM_JOB_ID`, `PBS_JOBID`, `LSB_JOBID`, `CI_JOB_ID`"),
        "the name of the job to which the program belongs, in `causeway sessions`, the audit log and `causeway usage`",
        "The server believes it.";
    DEDUP: "CAUSEWAY_DEDUP", [Client], Values::Switch, Fallback::Text("off"),
        "copies of 1 MiB and more from pageable memory to a device send only what the server does not \
         have from earlier ones", "";
    PIPELINE: "CAUSEWAY_PIPELINE", [Client], Values::Text("rules such as `..1M: 4x256K; 1M..: 8x4M, 8 \
     lanes`"),
        Fallback::Text("what `causeway tune` has measured, or a built-in table"),
        "how copies are cut and carried, by their size", "See [below](#how-copies-are-carried).";
    VIA: "CAUSEWAY_VIA", [Client], Values::Word(TransportKind::CHOICES),
        Fallback::Text("`auto`: memory shared with the server on the same host, otherwise InfiniBand \
         where both have it, otherwise TCP"),
        "what carries calls and copies",
        "An unavailable transport is an error: `cuInit` finds no device, and the reason is on standard error. \
         `causeway run --via` sets it.";
    BETWEEN_SERVERS: "CAUSEWAY_BETWEEN_SERVERS", [Client],
        Values::Word(TransportKind::CHOICES_BETWEEN_SERVERS),
        Fallback::Text("`auto`: the destination's device by itself where it reaches the source's memory, \
         else the link between the workers, else the client"),
        "what carries copies between devices of two servers",
        "`link` is never the device by itself; `shm`, `verbs` and `tcp` are the link over this alone, \
         else the client; `client` is for comparison. `verbs` also says that bytes need not be \
         encrypted.";
    SOCKET_DIR: "CAUSEWAY_SOCKET_DIR", [Client, Server, Rank, Nccl], Values::Path,
        Fallback::Text("`causeway` in `$XDG_RUNTIME_DIR`, or `/tmp/causeway-UID`"),
        "a folder that containers of one host share, with the socket by which client and worker come to \
         share memory",
        "For `causeway serve` the same as `--socket-dir`, for clients the place where their container \
         has that folder. Workers look there for the sockets of other servers of their host.";
    SHM_STAGING: "CAUSEWAY_SHM_STAGING", [Server],
        Values::Size(SHM_STAGING_LIMITS.0, SHM_STAGING_LIMITS.1), Fallback::Size(SHM_STAGING_DEFAULT),
        "bytes of the staging arena that a worker shares with a client of the same host, both directions \
         together",
        "Never more than an eighth of the limit of the server's memory cgroup. It is taken from the \
         system only as far as it is used.";
    GPUDIRECT: "CAUSEWAY_GPUDIRECT", [Worker, Server],
        Values::Word(&["auto", "dma-buf", "peermem", "off", "on", "1", "0"]),
        Fallback::Text("`auto`: by dma-buf, else with `nvidia_peermem`, else through staging memory of \
         the host"),
        "how network cards reach the GPU's memory",
        "`off` is staging, for comparison. A client's setting counts before the server's. `causeway run \
         --stats` tells which one is in use and how many bytes went by it, `causeway doctor` what there \
         is; what it is for stands in docs/src/reference/limits.md.";
    CORES: "CAUSEWAY_CORES", [Client, Server], Values::Number(1, 4096),
        Fallback::Text("as many as the process may use"),
        "how many cores Causeway counts on",
        "From 8 on threads stay awake for some milliseconds for what is about to come, which is quicker \
         and takes processor time, from 4 on for 50 us; below that they sleep at once. So `1` leaves the \
         processor to the program, and calls that wait take longer. Lanes and threads that copy follow \
         the number, too.";
    SYNC: "CAUSEWAY_SYNC", [Client], Values::Switch, Fallback::Text("off"),
        "every call waits for its outcome, so that errors appear where they are made", "";
    STATS: "CAUSEWAY_STATS", [Client], Values::Path, Fallback::Text("none is written"),
        "a file that gets counts of calls, and of copies by what carried them and by what memory they \
         were of, as JSON, when the program ends",
        "`%p` in the file's name becomes the number of the process: a program that starts others needs it, or the last one \
         to end leaves its counts alone. `causeway run --stats` puts those of all of them into words and warns of pageable \
         memory and of many short copies.";
    DEVICE_TIMES: "CAUSEWAY_DEVICE_TIMES", [Client], Values::Switch, Fallback::Text("off"),
        "the counts of `CAUSEWAY_STATS` have the time that kernels and copies took on the devices, and how much of it they \
         did at once",
        "Each launch and copy gets two events around it, of up to 16,384; what comes after them is counted alone. `causeway \
         run --stats --device-times` sets it.";
    TRACE: "CAUSEWAY_TRACE", [Client], Values::Path, Fallback::Text("none is written"),
        "a file that gets the calls, waits and device times of the program with their times, as trace events, when \
         the program ends",
        "`%p` in the file's name becomes the number of the process. `causeway trace` sets it and puts the traces of \
         several processes into one file, which Perfetto, Chrome and speedscope read.";
    LOG: "CAUSEWAY_LOG", [Client],
        Values::Word(&["off", "error", "info", "debug", "trace"]), Fallback::Text("`error`"),
        "what the client library says on standard error", "";
    CACHE_DIR: "CAUSEWAY_CACHE_DIR", [Client, Rank], Values::Path, Fallback::Text(
    "`causeway` in `$XDG_CACHE_HOME` or `~/.cache`"),
        "the folder where hashes of images in libraries are kept, so that a library is read once to be \
         named, what NVRTC has compiled, and what channels between the ranks of MPI programs cost",
        "Up to 1 GiB, the oldest goes first; what NVRTC has compiled not with `CUDA_CACHE_DISABLE=1`. \
         Nothing is kept if it is empty.";
    LIB_DIR: "CAUSEWAY_LIB_DIR", [Run], Values::Path,
        Fallback::Text("the folder of the program `causeway`, or `../lib/causeway` seen from there"),
        "the folder with `libcuda.so.1`, `libnvidia-ml.so.1` and the stubs of other libraries of the \
         driver", "";
    DRIVER: "CAUSEWAY_DRIVER", [Server], Values::Path, Fallback::Text("the usual search"),
        "the path of NVIDIA's `libcuda.so.1`", "";
    NVML: "CAUSEWAY_NVML", [Server], Values::Path, Fallback::Text("the usual search"),
        "the path of NVIDIA's `libnvidia-ml.so.1`", "";
    SOFTWARE_GPU_DEVICES: "CAUSEWAY_SOFTWARE_GPU_DEVICES", [Server],
        Values::Number(1, MAX_SOFTWARE_GPU_DEVICES), Fallback::Number(1),
        "how many devices the software GPU has", "They share processor and memory.";
    SOFTWARE_GPU_MEMORY: "CAUSEWAY_SOFTWARE_GPU_MEMORY", [Server], Values::Size(1 << 20, 8 << 40),
        Fallback::Text("half of the machine's, 8 GiB at most"),
        "bytes of memory of the software GPU", "";
    SOFTWARE_GPU_PINNED: "CAUSEWAY_SOFTWARE_GPU_PINNED", [Server],
        Values::Size(0, u64::MAX), Fallback::Text("all"),
        "bytes of host memory that the software GPU lets be registered at a time",
        "To see what happens where a system lets no more be locked.";
    SOFTWARE_GPU_CUDA: "CAUSEWAY_SOFTWARE_GPU_CUDA", [Server], Values::Text("a version of CUDA such as 12.4"),
        Fallback::Text("13.0, and all PTX up to version 9.5, that of CUDA 13.5"),
        "the CUDA version of the software GPU's driver, whose PTX it takes then", "";
    SOFTWARE_GPU_CAPABILITY: "CAUSEWAY_SOFTWARE_GPU_CAPABILITY", [Server],
        Values::Word(&["5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0",
        "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]),
        Fallback::Text("12.0, for libraries that are built for many GPUs have PTX for the newest alone"),
        "the compute capability of the software GPU",
        "Of the PTX in an image the newest is taken that is for such a device. It says which PTX is \
         taken and which code a program chooses; memory, registers and threads of a multiprocessor are \
         the same for all. A lower one, such as 7.5, has programs that can do so go without instructions \
         that the software GPU does not have.";

    VERBS_DEVICE: "CAUSEWAY_VERBS_DEVICE", [Client, Server, Rank, Team], ANY,
        Fallback::Text("the one that has the address of the TCP connection, otherwise the fastest whose \
         port is active"),
        "the RDMA device, as `ibv_devices` lists it",
        "rdma_cm uses the one with the address and no other, and is refused where another is named.";
    VERBS_GID: "CAUSEWAY_VERBS_GID", [Client, Server, Rank, Team], Values::Number(0, 1023),
        Fallback::Text("on Ethernet one of RoCE v2, of an IPv4 address where there is one"),
        "the index of the GID in the port's table", "";
    VERBS_CONNECT: "CAUSEWAY_VERBS_CONNECT", [Client, Server], Values::Word(&["auto", "rdma_cm", "numbers"]),
        Fallback::Text("`auto`: by numbers, but iWARP devices by rdma_cm"),
        "what joins queue pairs",
        "`numbers`: the queue pairs' numbers are exchanged over TCP; `rdma_cm`: librdmacm joins them.";
    VERBS_QUEUE_PAIRS: "CAUSEWAY_VERBS_QUEUE_PAIRS", [Client, Server, Rank],
        Values::Number(1, MAX_VERBS_QUEUE_PAIRS),
        Fallback::Number(VERBS_QUEUE_PAIRS_DEFAULT), "queue pairs of a session, and of two ranks", "";
    VERBS_QUEUE_DEPTH: "CAUSEWAY_VERBS_QUEUE_DEPTH", [Client, Server, Rank], Values::Number(1, MAX_VERBS_QUEUE_DEPTH),
        Fallback::Number(VERBS_QUEUE_DEPTH_DEFAULT),
        "messages of each kind that may be under way on a queue pair, of those with commands a quarter \
         as many; of ranks: reads", "";
    VERBS_MTU: "CAUSEWAY_VERBS_MTU", [Client, Server], Values::NumberOf(&[256, 512, 1024, 2048, 4096]),
        Fallback::Text("the port's own, and the path's where rdma_cm joins"),
        "bytes of a packet's payload", "";
    VERBS_INLINE: "CAUSEWAY_VERBS_INLINE", [Client, Server],
        Values::Number(0, 1024), Fallback::Number(VERBS_INLINE_DEFAULT),
        "bytes that go into the card's queue with their request, instead of being fetched from memory", "";
    VERBS_SIGNAL_INTERVAL: "CAUSEWAY_VERBS_SIGNAL_INTERVAL", [Client, Server], Values::Number(1, 1024),
        Fallback::Number(VERBS_SIGNAL_INTERVAL_DEFAULT), "one request in so many has a completion", "";
    VERBS_POLL_US: "CAUSEWAY_VERBS_POLL_US", [Client, Server], Values::Number(0, 1_000_000),
        Fallback::Text("20, or 0 where there are fewer than four cores"),
        "microseconds for which a thread looks for completions before it sleeps", "";
    VERBS_TO_DEVICE: "CAUSEWAY_VERBS_TO_DEVICE", [Client, Server], Values::Word(&["auto", "read", "write"]),
        Fallback::Text("`auto`: copies of 1 MiB and more are read"),
        "how pinned memory gets to a server whose card does not reach its GPU's memory",
        "`write`: the client's card writes it; `read`: the server's card reads it. The client's setting \
         counts.";
    VERBS_STAGING: "CAUSEWAY_VERBS_STAGING", [Client, Server], Values::Size(1 << 20, 4 << 30),
        Fallback::Size(VERBS_STAGING_DEFAULT),
        "bytes of registered staging memory for each direction at either end",
        "Less where the limit of locked memory (`ulimit -l`) leaves less.";

    COMM_JOB: "CAUSEWAY_COMM_JOB", [Rank], Values::Text("32 hexadecimal digits"),
        Fallback::Text("messages of GPUs go with the MPI"),
        "the secret of an MPI job, by which its ranks know each other",
        "`causeway mpirun` makes one for each job.";
    COMM_CHANNELS: "CAUSEWAY_COMM_CHANNELS", [Rank, Team],
        Values::Text("`ipc`, `vmm`, `staged`, `bar`, `rdma`, `loopback` and `tcp`, with commas between them"),
        Fallback::Text("all; each message takes the best"), "which channels messages may take",
        "Without `rdma`, teams of kernels on several hosts use TCP.";
    COMM_THRESHOLD: "CAUSEWAY_COMM_THRESHOLD", [Rank], Values::Size(79, u64::MAX),
        Fallback::Size(COMM_THRESHOLD_DEFAULT),
        "from how many bytes on the receiver fetches a message from the sender's GPU",
        "Shorter ones travel with the MPI; where this is not set, only those from memory that the receiver \
         does not have open.";
    COMM_COLLECTIVE_THRESHOLD: "CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", [Rank], Values::Size(1, u64::MAX),
        Fallback::Size(COMM_COLLECTIVE_THRESHOLD_DEFAULT),
        "from how many bytes on a collective call goes from GPU to GPU, where all ranks have their memory there",
        "Shorter ones are staged in the host's memory; reductions only below a sixteenth of it, where the ranks \
         of a host can open each other's memory. It must be the same at all ranks.";
    COMM_GRAPH_TIMEOUT: "CAUSEWAY_COMM_GRAPH_TIMEOUT", [Rank], Values::Seconds(1, 86_400),
        Fallback::Number(COMM_GRAPH_TIMEOUT_DEFAULT),
        "how many seconds a collective call in a graph waits for the other ranks to launch theirs",
        "Then it ends, and so do the group's later ones: their graphs do nothing any more. A rank that ends \
         is noticed at once.";
    COMM_TRACE: "CAUSEWAY_COMM_TRACE", [Rank], Values::Number(1, u32::MAX as u64),
        Fallback::Number(COMM_TRACE_DEFAULT),
        "after how many blocking or non-blocking operations with a peer it is decided whether their \
         traffic is bound by latency or by bandwidth", "";
    COMM_TABLE: "CAUSEWAY_COMM_TABLE", [Rank],
        Values::Text("`published`, or rules such as `..4K: staged; bandwidth 4K..512K: loopback, vmm`"),
        Fallback::Text("none; the cheapest channel is found out"),
        "which channel messages take, by their size and what they are",
        "See [below](#which-channel-a-message-takes).";
    COMM_CHECK: "CAUSEWAY_COMM_CHECK", [Rank], Values::Switch, Fallback::Text("off"),
        "before each collective call of MPI the ranks tell each other which it is",
        "Different calls, roots or lengths, and ranks that do not come within 8 s, are errors that say so. It \
         must be the same at all ranks.";
    COMM_EXPLAIN: "CAUSEWAY_COMM_EXPLAIN", [Rank, Team], Values::Switch, Fallback::Text("off"),
        "every rank says at the end which messages went which way, and why", "";
    COMM_NUMA: "CAUSEWAY_COMM_NUMA", [Rank, Team], Values::Word(&["auto", "off"]), Fallback::Text("`auto`"),
        "whether the library's threads and staging memory are on the NUMA node of the GPU or RDMA device that they serve",
        "`auto` where the machine has several nodes. The program's own threads stay where they are.";
    DEVICE_INITIATOR: "CAUSEWAY_DEVICE_INITIATOR", [Team], Values::Word(&["auto", "direct", "proxy", "verbs"]),
        Fallback::Text("`auto`"),
        "who moves what kernels put and get: the kernel's threads (`direct`), a thread of the host \
         (`proxy`), the network card that kernels ask themselves (`verbs`), or for each message whichever is cheaper",
        "`verbs` is for ranks that a card reaches; for others the cheaper one is taken. `proxy` maps no peer's memory, so that atomic operations need windows in the host's memory, unless the \
         team's ranks are on several hosts.";
    DEVICE_EXPLAIN: "CAUSEWAY_DEVICE_EXPLAIN", [Team], Values::Switch, Fallback::Text("off"),
        "every rank says at the end of a team who moved messages of which sizes, and why", "";
    DEVICE_NONCE: "CAUSEWAY_DEVICE_NONCE", [Team],
        Values::Text("32 hexadecimal digits, new ones for each job"),
        Fallback::Text("none; PEs that MPI or a unique id joins need none"),
        "by what the PEs of `nvshmem_init`, as a launcher of processes has started them, prove to be of one job",
        "It is read by `nvshmem.h`, from the environment alone.";
    COMM_HOSTS: "CAUSEWAY_COMM_HOSTS", [Rank, Team],
        Values::Text("names or addresses, with commas between them"),
        Fallback::Text("none; messages to other hosts go with the MPI"),
        "the job's hosts, whose ranks fetch messages of each other's GPUs by RDMA devices or over TCP, and \
         whose kernels communicate over TCP",
        "Each rank then listens at a port. They prove that they belong to the job; the bytes are not \
         encrypted.";
    COMM_CONTAINER: "CAUSEWAY_COMM_CONTAINER", [Rank],
        Values::Text("`[container, cores, sockets]`, such as `[1, 0-3, 0]`, or the path of a file with that"),
        Fallback::Text("what the kernel says"), "what a launcher says of the rank's container",
        "`causeway mpirun` sets it for the ranks of its own container, and devices of `causeway cdi` for theirs: then `@` and \
         16 digits follow, and it counts in that container alone.";
    MPI_LIBRARY: "CAUSEWAY_MPI_LIBRARY", [Mpirun], Values::Path,
        Fallback::Text("`mpi/openmpi` or `mpi/mpich` beside the program `causeway`, or in `../lib/causeway`"),
        "the interposer, as `--library` names it", "";
    NCCL_GPU: "CAUSEWAY_NCCL_GPU", [Nccl], Values::Word(&["auto", "on", "off"]), Fallback::Text("`auto`: of GPUs of this machine"),
        "whether NCCL may send memory of GPUs without a copy of its own in the host",
        "`on` also of GPUs that Causeway forwards. NCCL does so where `NCCL_NET_GDR_LEVEL` lets it.";
    NCCL_LANES: "CAUSEWAY_NCCL_LANES", [Nccl], Values::Number(1, MAX_NCCL_LANES),
        Fallback::Number(NCCL_LANES_DEFAULT), "sockets of a connection, over which a long message is striped", "";
    NCCL_PATH: "CAUSEWAY_NCCL_PATH", [Nccl], Values::Word(&["auto", "unix", "tcp"]),
        Fallback::Text("`auto`: a Unix socket where the peer has one in reach, else TCP"),
        "how peers are reached", "";
    NCCL_SPEED: "CAUSEWAY_NCCL_SPEED", [Nccl], Values::Number(1, 10_000_000),
        Fallback::Text("that of the fastest network interface"),
        "the speed of the network that NCCL counts on, in Mbit/s",
        "NCCL chooses its channels by it.";

    CUDA_CACHE_PATH: "CUDA_CACHE_PATH", [Server], Values::Path, Fallback::Text("`~/.nv/ComputeCache`"),
        "where NVIDIA's driver keeps what it compiles",
        "A server that is root gives each user of workers a folder in `/var/cache/causeway/cuda` instead.";
    CUDA_MPS_PIPE_DIRECTORY: "CUDA_MPS_PIPE_DIRECTORY", [Server],
        Values::Path, Fallback::Text("`/tmp/nvidia-mps`"),
        "where NVIDIA's MPS is reached",
        "A folder of root or of the server's user counts; where it is, workers have one user, unless \
         `--worker-users` is given.";
    NCCL_SOCKET_IFNAME: "NCCL_SOCKET_IFNAME", [Nccl], ANY, Fallback::Text("all"),
        "the network interfaces at whose addresses peers look for this process, as for NCCL's own sockets", "";
    LD_LIBRARY_PATH: "LD_LIBRARY_PATH", [Server], ANY, NOTHING,
        "where libraries lie besides the system's folders",
        "Workers may read there, as in the folders of `CAUSEWAY_DRIVER` and `CAUSEWAY_NVML`.";
    CUDA_VISIBLE_DEVICES: "CUDA_VISIBLE_DEVICES", [Client, Server], ANY, Fallback::Text("all"),
        "numbers or UUIDs of the server's devices that the program sees",
        "The list ends at the first that does not exist, and must name none twice. Where it is set for \
         `causeway serve`, only those devices are offered, and a program's list chooses among them.";
    CUDA_DEVICE_ORDER: "CUDA_DEVICE_ORDER", [Client], ANY, Fallback::Text("`FASTEST_FIRST`"),
        "`FASTEST_FIRST` (the server's order) or `PCI_BUS_ID`", "";
    CUDA_LAUNCH_BLOCKING: "CUDA_LAUNCH_BLOCKING", [Client], ANY, NOTHING,
        "`1`: each launch waits until its kernel is done", "";
    ADDRESSES_TAKEN: "CAUSEWAY_ADDRESSES_TAKEN", [Worker],
        Values::Text("ranges of hexadecimal addresses, such as `100000000000-108000000000`, with commas between them"),
        Fallback::Text("what the client library finds in the program"),
        "addresses of the program at which a server places no windows of addresses",
        "The client library says it by itself.";
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
        "`1`: compiled PTX is not kept", "";
    CUDA_CACHE_MAXSIZE: "CUDA_CACHE_MAXSIZE", [Worker], ANY, NOTHING,
        "bytes of compiled PTX that are kept", "";
    CUDA_AUTO_BOOST: "CUDA_AUTO_BOOST", [Worker], ANY, NOTHING, "as NVIDIA documents it", "";
    CUDA_BINARY_LOADER_THREAD_COUNT: "CUDA_BINARY_LOADER_THREAD_COUNT", [Worker], ANY, NOTHING,
        "as NVIDIA documents it", "";
    CUDA_GRAPHS_USE_NODE_PRIORITY: "CUDA_GRAPHS_USE_NODE_PRIORITY", [Worker],
        ANY, NOTHING, "as NVIDIA documents it", "";
    CUDA_L2_PERSISTING: "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT", [Worker], ANY, NOTHING,
        "as NVIDIA documents it", "";

    TEST_DELAYS: "CAUSEWAY_TEST_DELAYS", [Test],
        Values::Text("PER_MILLE:MICROSECONDS, such as 50:2000"), Fallback::Text("none"),
        "so many hand-overs between threads in a thousand wait, each up to so long; in builds with debug \
         assertions alone", "";
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
