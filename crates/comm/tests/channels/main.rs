//! Messages by each channel alone, compared byte by byte.
//!
//! Two ranks, each a process of this program, send each other random messages of random sizes from a GPU that
//! is none (`fake_gpu.c`): its memory is memory of the host, which RDMA devices and the "BAR" reach. Where
//! there are RDMA devices (the guest of `tests/verbs`), `rdma` and `loopback` are tried over them.

mod card;
mod host;
mod job;
mod rank;
mod running;
#[path = "../common/split_mix.rs"]
mod split_mix;

/// One rank of a job that another test has started; without one there is nothing to do.
#[test]
fn rank() {
    if let Some(task) = rank::Task::from_environment() {
        task.carry_out();
    }
}
