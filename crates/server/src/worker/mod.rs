//! The worker: one process for each client process, which executes that client's commands. A GPU fault, a
//! crash or a leak ends with its owner.
//!
//! | Module           | Question it answers                                                                |
//! |------------------|------------------------------------------------------------------------------------|
//! | `serve`          | How is one client served?                                                          |
//! | `engine`         | Who may issue a client's commands, and what becomes of those that must wait?       |
//! | `checkpoint`     | How does the session's state get to another worker?                                |
//! | `journal`        | What made the session's objects?                                                   |
//! | `idle_release`   | When does device memory go to the host, and on whose word?                         |
//! | `uploads`        | How do the client's bytes get into device memory?                                  |
//! | `downloads`      | How do bytes of device memory get to the client?                                   |
//! | `rdma`           | Which copies do network cards make by themselves?                                  |
//! | `peers`          | How do bytes get from and to the devices of other servers?                         |
//! | `memory`         | Which memory of the client's program do kernels reach?                             |
//! | `waits`          | How is a command answered that waits for the GPU?                                  |
//! | `host_functions` | How does a stream stop at a function of the program?                               |
//! | `exports`        | What do sessions of one server share?                                              |
//! | `order`          | What may be issued before what?                                                    |
//! | `credit`         | How much of copies to the client is under way, and may one more start?              |
//! | `incoming`       | Where are bulk data until their command comes?                                     |
//! | `uploads_in_flight` | When does memory of copies to the device come back?                                |
//! | `receive_buffer`        | Where does the GPU put what is read?                                               |
//! | `arena`          | What is memory shared with a client of the same host to the GPU?                   |
//! | `stream_task`    | How does work of others, a card's or the client's, get its turn in a stream?       |
//! | `session`        | What do all of them work with, and how do they answer?                             |
//! | `device_memory`  | How much memory of the devices may the session have?                              |
//! | `suspension`     | How does device memory go to the host, and come back?                              |
//! | `release_check`  | May device memory go to the host now, and why not?                                 |
//! | `residency`      | Who may use the device now, and is its memory there?                               |
//! | `pool`           | Which threads carry out what is slow?                                              |

mod arena;
mod checkpoint;
mod credit;
mod device_memory;
mod downloads;
mod engine;
mod exports;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod host_functions;
mod idle_release;
mod incoming;
mod journal;
mod memory;
mod order;
mod peers;
mod pool;
mod rdma;
mod receive_buffer;
mod release_check;
mod residency;
mod serve;
mod session;
mod stream_task;
mod suspension;
mod uploads;
mod uploads_in_flight;
mod waits;

pub use serve::{prepare, run};
