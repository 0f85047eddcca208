//! What copies, launches and waits cost on several GPUs, here and elsewhere, measured in turns: the working
//! part of `causeway bench`.
//!
//! Each target, a server or the machine's own driver, is measured by a process of its own, since a process
//! has one `libcuda.so.1`. That process takes requests from its standard input and answers on its standard
//! output; the parent asks one target after the other, so that what disturbs the machine disturbs all of them
//! alike.
//!
//! | Module         | Question it answers                                                         |
//! |----------------|-----------------------------------------------------------------------------|
//! | [`sizes`]      | Which sizes of copies are meant, and how is a size written?                  |
//! | [`case`]       | What can be measured?                                                        |
//! | [`schedule`]       | How often, and in which order?                                               |
//! | [`prng`]     | Which numbers follow no pattern, and are the same in each run?               |
//! | [`protocol`]   | What do parent and measuring process say to each other?                      |
//! | [`child`]      | How is a case measured and its content checked?                              |
//! | [`worker_process`]     | How is a measuring process started, asked and ended?                         |
//! | [`run`]        | How do all cases get measured on all targets?                                |
//! | [`statistics`] | What do many samples say?                                                    |
//! | [`pipeline`]   | Does a choice by size do as well as the best fixed choice?                   |
//! | [`mod@reference`] | What do rates of copies have to be compared with?                            |
//! | [`results`]    | What was measured, where and by which command?                               |
//! | [`report`]     | How do people and programs read it?                                          |
//! | [`plots`]      | Which pictures are drawn of it?                                              |
//! | [`table`]      | How does a person read figures in a terminal?                                |
//! | [`files`]      | How are results written as CSV, JSON and pictures?                           |
//! | [`plot`]       | How is it drawn?                                                             |
//! | [`job`]        | How is a program run that measures by itself?                                |
//! | [`jobs`]       | What have such programs found, on every target in turn?                      |
//! | [`mpi`]        | How long do messages between the GPUs of an MPI program's ranks take?        |
//! | [`device`]     | What do kernels cost that communicate by themselves?                         |
//! | [`machine`]    | Which machine is this, and what time is it?                                  |

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
