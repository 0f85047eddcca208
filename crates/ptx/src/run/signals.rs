//! Signals that compiled code raises when it touches memory without access.
//!
//! One handler for the whole process, in front of those that were there before: a signal that does not come
//! from compiled code on this thread is theirs. Compiled code is left by making its coroutine return.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Once;

use corosensei::trap::{CoroutineTrapHandler, TrapHandlerRegs};

use super::context::Raised;

/// How a coroutine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Finished,
    /// A signal ended it; [`TrapState::take`] says which.
    Faulted,
}

/// What the handler needs to know about the code running on a thread.
#[derive(Default)]
pub(crate) struct TrapState {
    coroutine: Cell<Option<CoroutineTrapHandler<Outcome>>>,
    raised: Cell<Option<Raised>>,
}

thread_local! {
    static CURRENT: Cell<*const TrapState> = const { Cell::new(std::ptr::null()) };
    static ALTERNATE_STACK: AlternateStack = AlternateStack::install();
}

/// The signals that compiled code can raise.
const SIGNALS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
static mut PREVIOUS: [MaybeUninit<libc::sigaction>; 4] = [MaybeUninit::uninit(); 4];
static INSTALL: Once = Once::new();

impl TrapState {
    /// Names the coroutine that is about to run on this thread.
    pub(crate) fn enter(&self, coroutine: CoroutineTrapHandler<Outcome>) {
        self.coroutine.set(Some(coroutine));
    }

    /// Says that no compiled code runs.
    pub(crate) fn leave(&self) {
        self.coroutine.set(None);
    }

    /// What the signal meant that ended the last coroutine.
    pub(crate) fn take(&self) -> Raised {
        self.raised.take().unwrap_or(Raised::Trap)
    }

    /// Runs `work` with this state known to the handler.
    pub(crate) fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Reset(*const TrapState);
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        install();
        let _reset = Reset(CURRENT.replace(self));
        work()
    }
}

/// Makes the process ready for faults on this thread.
fn install() {
    ALTERNATE_STACK.with(|_| ());
    INSTALL.call_once(|| {
        for (index, signal) in SIGNALS.into_iter().enumerate() {
            // SAFETY: `handle` is a valid handler for SA_SIGINFO; PREVIOUS is written here only, once, and an
            // entry is read only after its signal's handler is in place.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&mut action.sa_mask);
                let previous = (&raw mut PREVIOUS).cast::<libc::sigaction>().add(index);
                libc::sigaction(signal, std::ptr::null(), previous);
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    });
}

/// A stack for the handler, since a thread's own may be a coroutine's.
struct AlternateStack {
    memory: *mut libc::c_void,
}

impl AlternateStack {
    const SIZE: usize = 64 << 10;

    /// Installs one, unless the thread has one that is large enough.
    fn install() -> Self {
        // SAFETY: plain queries and an anonymous mapping that `Drop` takes back after uninstalling it.
        unsafe {
            let mut current: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut current);
            if current.ss_flags & libc::SS_DISABLE == 0 && current.ss_size >= Self::SIZE {
                return Self { memory: std::ptr::null_mut() };
            }
            let memory = libc::mmap(
                std::ptr::null_mut(),
                Self::SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Self { memory: std::ptr::null_mut() };
            }
            let stack = libc::stack_t { ss_sp: memory, ss_flags: 0, ss_size: Self::SIZE };
            libc::sigaltstack(&stack, std::ptr::null_mut());
            Self { memory }
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        if self.memory.is_null() {
            return;
        }
        // SAFETY: the stack is disabled before its memory goes, unless someone else replaced it meanwhile.
        unsafe {
            let mut current: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut current);
            if current.ss_sp == self.memory {
                let none =
                    libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                libc::sigaltstack(&none, std::ptr::null_mut());
            }
            libc::munmap(self.memory, Self::SIZE);
        }
    }
}

unsafe extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers. The state is that of the block this thread runs, alive while
    // it runs.
    unsafe {
        let machine = &mut *context.cast::<libc::ucontext_t>();
        if let Some(state) = CURRENT.get().as_ref()
            && let Some(coroutine) = state.coroutine.get()
            && coroutine.stack_ptr_in_bounds(stack_pointer(machine))
        {
            let raised = match signal {
                // Compiled code executes an illegal instruction on purpose where its stack does not suffice.
                libc::SIGILL => Raised::StackOverflow,
                libc::SIGFPE => Raised::IllegalInstruction("an arithmetic exception"),
                _ => Raised::IllegalAddress((*info).si_addr() as u64),
            };
            state.raised.set(Some(raised));
            set_registers(machine, coroutine.setup_trap_handler(|| Outcome::Faulted));
            return;
        }
        forward(signal, info, context);
    }
}

/// Hands a signal that is not ours to the handler that was there before.
unsafe fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let index = SIGNALS.iter().position(|&known| known == signal).unwrap_or(0);
    // SAFETY: `install` filled the entry before this handler could run for its signal.
    unsafe {
        let previous = *(&raw const PREVIOUS).cast::<libc::sigaction>().add(index);
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // Returning executes the instruction again, now with the default action, which ends the
                // process.
                libc::sigaction(signal, &previous, std::ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: unsafe extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(machine: &libc::ucontext_t) -> usize {
    machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
}

#[cfg(target_arch = "x86_64")]
fn set_registers(machine: &mut libc::ucontext_t, registers: TrapHandlerRegs) {
    let general = &mut machine.uc_mcontext.gregs;
    let TrapHandlerRegs { rip, rsp, rbp, rdi, rsi } = registers;
    general[libc::REG_RIP as usize] = rip as i64;
    general[libc::REG_RSP as usize] = rsp as i64;
    general[libc::REG_RBP as usize] = rbp as i64;
    general[libc::REG_RDI as usize] = rdi as i64;
    general[libc::REG_RSI as usize] = rsi as i64;
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(machine: &libc::ucontext_t) -> usize {
    machine.uc_mcontext.sp as usize
}

#[cfg(target_arch = "aarch64")]
fn set_registers(machine: &mut libc::ucontext_t, registers: TrapHandlerRegs) {
    let TrapHandlerRegs { pc, sp, x0, x1, x29, lr } = registers;
    machine.uc_mcontext.pc = pc;
    machine.uc_mcontext.sp = sp;
    machine.uc_mcontext.regs[0] = x0;
    machine.uc_mcontext.regs[1] = x1;
    machine.uc_mcontext.regs[29] = x29;
    machine.uc_mcontext.regs[30] = lr;
}
