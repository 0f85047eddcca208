//! Measurements of kernels that communicate by themselves.
//!
//! The measuring is done by a program of its own (`bench/device`), whose kernels call the headers of
//! `device/include`, and which prints a row for each figure. A *target* is a GPU and the way to it. Each run
//! starts the program once for every target, in turn; the program itself measures all ways of a case in turn.
//!
//! | module | contents |
//! | --- | --- |
//! | `case` | Cases of kernels that communicate by themselves |
//! | `results` | Results of communicating kernels on every target |
//! | `requirements` | Requirements on communicating kernels, and whether they are satisfied |
//! | `report` | Report of communicating kernels: a table for each kind of figure, with a column for each way on each target; what must hold, as a table; CSV and JSON |
//! | `plots` | Plots of communicating kernels: a plot for each question, with a line for each way on each target |

pub mod case;
pub mod plots;
pub mod report;
pub mod requirements;
pub mod results;
