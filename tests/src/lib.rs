//! What the end-to-end tests and the benchmarks share: they start the real `causeway`, the real client
//! library and real CUDA programs, and look at them from outside.
//!
//! | module | contents |
//! | --- | --- |
//! | `built` | Where the built things are, and that they are built |
//! | `process` | Starting processes, watching what they print, and ending them when they take too long |
//! | `server` | Starting servers and looking at their workers |
//! | `kubelet` | A kubelet as device plugins see it: registration, the list of devices, allocation |
//! | `client` | Starting CUDA programs on a server |
//! | `mpi` | MPI jobs in tests: a program under an MPI, with the interposer, on a server |
//! | `programs` | The CUDA programs of `tests/cuda/programs.txt`, what each of them must do, and how all of them are run |
//! | `hostile` | Talking to a server as no client would |
//! | `raw_session` | A session in which a test sends commands as it likes, well formed or not |
//! | `network` | Two network namespaces of this machine, joined by a cable of which the length and the rate are known; or two hosts with RDMA devices, where the tests run in the guest of `tests/verbs` |
//! | `stall` | A relay between clients and a server that keeps its connections open and forwards nothing any more, or cuts them, once it is told to |
//! | `chaos` | Faults of a network at exact points of a session: a relay between a program and a server that knows where frames and chunks end, and cuts, closes, stalls or splits there |
//! | `tap` | A relay between clients and a server that keeps a record of what goes through it |
//! | `api_server` | An API server of Kubernetes as a DRA driver sees it: objects by their paths, over HTTP |

pub mod api_server;
pub mod built;
pub mod chaos;
pub mod client;
pub mod hostile;
pub mod kubelet;
pub mod mpi;
pub mod network;
pub mod process;
pub mod programs;
pub mod raw_session;
pub mod server;
pub mod stall;
pub mod tap;
