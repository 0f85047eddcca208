//! What copies, launches and waits cost on several GPUs, here and elsewhere, measured in turns: the working
//! part of `causeway bench`.
//!
//! Each target, a server or the machine's own driver, is measured by a process of its own, since a process
//! has one `libcuda.so.1`. That process takes requests from its standard input and answers on its standard
//! output; the parent asks one target after the other, so that what disturbs the machine disturbs all of them
//! alike.
//!
//! | module | contents |
//! | --- | --- |
//! | `sizes` | Sizes of copies, and how a size is written |
//! | `case` | Cases: what can be measured |
//! | `schedule` | Schedule: repetitions, and the order of cases |
//! | `prng` | Numbers that follow no pattern and are the same in each run: xorshift by G |
//! | `protocol` | Protocol between the parent and the measuring process |
//! | `child` | Measuring process: runs one case and checks its content |
//! | `worker_process` | Target: a measuring process that is started, asked for samples and ended |
//! | `run` | Run: all cases on all targets |
//! | `statistics` | Statistics of samples: percentiles and confidence intervals |
//! | `pipeline` | Check of the copy plans: a choice by size against the best fixed choice |
//! | `results` | Results: what was measured, where, and by which command |
//! | `report` | Report of copies, waits or launches: tables, CSV and JSON |
//! | `plots` | Plots of copies, waits and launches |
//! | `table` | Tables for a terminal |
//! | `files` | Result files: CSV, JSON and plots |
//! | `plot` | Plots of one or more panels, as SVG |
//! | `job` | Job: a program that measures and prints a row for each result |
//! | `jobs` | Results of programs that measure by themselves, on every target in turn |
//! | `mpi` | Measurements of messages between the GPUs of two ranks, by channel and placement |
//! | `device` | Measurements of kernels that communicate by themselves |
//! | `machine` | Machine and time of a measurement |
//! | `reference` | Reference rates of copies |

pub mod case;
pub mod child;
pub mod device;
pub mod files;
pub mod job;
pub mod jobs;
pub mod machine;
pub mod mpi;
pub mod pipeline;
pub mod plot;
pub mod plots;
pub mod prng;
pub mod protocol;
pub mod reference;
pub mod report;
pub mod results;
pub mod run;
pub mod schedule;
pub mod sizes;
pub mod statistics;
pub mod table;
pub mod worker_process;
