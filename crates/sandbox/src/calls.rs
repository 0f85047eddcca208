//! System call filter (seccomp).
//!
//! Those that are listed here; any other fails with `EPERM`, which drivers and libraries take as a kernel
//! that does not have the call. The kernel remembers which calls are allowed whatever their arguments are, so
//! that these cost nothing (`seccomp_cache_check_allow`, Linux 5.11); only the few whose arguments matter are
//! looked at each time.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use thiserror::Error;

/// Memory, its placement and its protection. Translated kernels and drivers need memory that can be executed.
const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_set_mempolicy,
];

/// Files, as far as Landlock and permissions let them be reached.
const FILES: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rmdir,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_tee,
    libc::SYS_umask,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Waiting for descriptors, and descriptors to be woken by.
const WAITING: &[c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_select,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
];

/// Sockets that the process has been given. None of these makes a socket or gives one another peer.
const SOCKET_CALLS: &[c_long] = &[
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Threads, their signals and their time.
const THREADS: &[c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_time,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
];

/// What a process asks about itself and the machine.
const QUERIES: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgrp,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
];

/// What `prctl` may be asked for: names and properties of threads and of memory.
const PRCTL: &[i32] = &[
    libc::PR_GET_DUMPABLE,
    libc::PR_GET_NAME,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_NAME,
    libc::PR_SET_TIMERSLACK,
    libc::PR_SET_VMA,
];

/// Requests that put input into a terminal, such as the one that a worker may have as standard error: whoever
/// reads it there would take it for the server's owner's.
const TERMINAL_INPUT: &[u64] = &[libc::TIOCSTI, TIOCLINUX];

/// `TIOCLINUX` of `asm-generic/ioctls.h`, which pastes into a console.
const TIOCLINUX: u64 = 0x541c;

/// Why a process may make any system call.
#[derive(Debug, Error)]
pub enum CallsError {
    /// The list cannot be made into a program of the kernel.
    #[error("cannot build the system call filter: {0}")]
    Made(#[from] BackendError),
    /// The kernel refused.
    #[error("the kernel rejected the system call filter: {0}")]
    Refused(#[from] seccompiler::Error),
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Keeps this process, with all its threads, from every system call but those listed here. With `uses_rdma` it
/// may ask the kernel of RDMA devices, by a netlink socket of that kind.
pub fn restrict(uses_rdma: bool) -> Result<(), CallsError> {
    let programs = [without_clone3()?, allowed(std::process::id(), uses_rdma)?];
    for program in &programs {
        apply_filter_all_threads(program)?;
    }
    Ok(())
}

/// `clone3` has its flags in memory, where they cannot be looked at. The C library asks for `clone` when the
/// kernel seems not to have it.
fn without_clone3() -> Result<BpfProgram, CallsError> {
    let rules = Rules::from([(libc::SYS_clone3, Vec::new())]);
    program(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

/// What is allowed to the process of this number.
fn allowed(process: u32, uses_rdma: bool) -> Result<BpfProgram, CallsError> {
    let lists = [MEMORY, FILES, WAITING, SOCKET_CALLS, THREADS, QUERIES];
    let mut rules: Rules =
        lists.iter().flat_map(|list| list.iter().map(|call| (*call, Vec::new()))).collect();
    // Answered by the program before.
    rules.insert(libc::SYS_clone3, Vec::new());
    let new_thread = SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64);
    rules.insert(libc::SYS_clone, vec![arguments_match(&[(0, new_thread, libc::CLONE_THREAD as u64)])?]);
    let itself = || arguments_match(&[(0, SeccompCmpOp::Eq, u64::from(process))]);
    for signals in [libc::SYS_tgkill, libc::SYS_kill, libc::SYS_rt_tgsigqueueinfo] {
        rules.insert(signals, vec![itself()?]);
    }
    // Its own limits, by 0.
    rules.insert(libc::SYS_prlimit64, vec![arguments_match(&[(0, SeccompCmpOp::Eq, 0)])?]);
    let prctl: Result<_, _> =
        PRCTL.iter().map(|option| arguments_match(&[(0, SeccompCmpOp::Eq, *option as u64)])).collect();
    rules.insert(libc::SYS_prctl, prctl?);
    let no_input: Vec<_> = TERMINAL_INPUT.iter().map(|request| (1, SeccompCmpOp::Ne, *request)).collect();
    rules.insert(libc::SYS_ioctl, vec![arguments_match(&no_input)?]);
    if uses_rdma {
        // The libraries of RDMA devices ask the kernel which there are; rdma_cm does without nothing else.
        let of_rdma = [
            (0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64),
            (2, SeccompCmpOp::Eq, libc::NETLINK_RDMA as u64),
        ];
        rules.insert(libc::SYS_socket, vec![arguments_match(&of_rdma)?]);
        rules.insert(libc::SYS_bind, Vec::new());
    }
    program(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// A rule for calls whose arguments, by their places, compare so. They are compared as 32 bits, which all of
/// them are.
fn arguments_match(arguments: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let condition = |(argument, comparison, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, comparison.clone(), *value)
    };
    SeccompRule::new(arguments.iter().map(condition).collect::<Result<_, _>>()?)
}

fn program(rules: Rules, others: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, CallsError> {
    Ok(SeccompFilter::new(rules, others, listed, TargetArch::x86_64)?.try_into()?)
}
