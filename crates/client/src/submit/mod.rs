//! Command submission: CUDA operations as commands to the server. A captured stream's commands become nodes; before
//! all others goes what the program has written to memory that the server mirrors.
//!
//! | module | contents |
//! | --- | --- |
//! | `send` | Command submission: capture, order, and the session |
//! | `session_callbacks` | Callbacks of the sessions: see `SessionCallbacks` |
//! | `capture` | Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client |
//! | `copy` | Copies between the program's memory and a device, and within devices |
//! | `content_upload` | Upload once (`CAUSEWAY_DEDUP=on`): what the server has from an earlier copy, of this session or another one of the same identity, does not cross the wire again |
//! | `launch` | Launches: what a kernel gets, and what can be refused before the server sees it |
//! | `occupancy` | Occupancy: how many blocks of a function a multiprocessor holds, as the server says; replies are cached |
//! | `callbacks` | Stream callbacks in the client: host functions of the program, and accesses to its memory for copies that must not be made earlier |
//! | `task` | Host functions in a stream, or in a graph that the stream is captured for |
//! | `context` | Contexts: creation, destruction and synchronisation |
//! | `streams` | Streams: creation, destruction, default streams, and waiting |
//! | `event` | Events as the client knows them: what lay before their last record |
//! | `graph` | Graphs on the server: instantiation and launch |
//! | `allocation` | Allocation of device memory (`cuMemAlloc`, `cuMemFree`) |
//! | `device_memory` | Device memory: the blocks that the server makes for a heap, and checks of addresses that the program passes |
//! | `array_parts` | Arrays that are parts of others: mipmap levels and planes |
//! | `pinned` | Pinned host memory (`cuMemHostAlloc`, `cuMemHostRegister`) |
//! | `pool` | Memory pools for stream-ordered allocation (`cuMemPoolCreate`, `cuMemAllocAsync`) |
//! | `managed` | Managed memory: one address for host and device |
//! | `virtual_memory` | Memory that the program gives addresses to itself: what it reserved, made and mapped |
//! | `ipc` | Memory that processes of the same server share as with `cuIpc*` and pools: pieces of blocks |
//! | `ipc_imports` | Memory of one server's devices that devices of another server copy from by themselves |
//! | `module` | Modules, libraries and what is in them: functions, kernels, variables |
//! | `linker` | Linkers that the program has made, with their results, and the options of compiler and linker: what travels, and where the answers go |
//! | `waits` | Waits for work of a server, which also say whether the program's memory has to be looked after |
//! | `device_times` | Device timestamps, for a trace and for the device times of the report |

pub mod allocation;
pub mod array_parts;
pub mod callbacks;
pub mod capture;
pub mod content_upload;
pub mod context;
pub mod copy;
pub mod device_memory;
pub mod device_times;
pub mod event;
pub mod graph;
pub mod ipc;
pub mod ipc_imports;
pub mod launch;
pub mod linker;
pub mod managed;
pub mod module;
pub mod occupancy;
pub mod pinned;
pub mod pool;
pub mod send;
pub mod session_callbacks;
pub mod streams;
pub mod task;
pub mod virtual_memory;
pub mod waits;
