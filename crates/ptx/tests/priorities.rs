//! Priorities of launches: whose blocks begin first where several wait for a thread.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};

use causeway_ptx::{Host, LaunchConfig, Pool};
use common::{Device, Params};

/// Each block adds one to `done`, and prints where it is the first of its grid or `all` say so.
const SOURCE: &str = ".version 8.0\n.target sm_75\n.address_size 64
    .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
    .visible .entry k(.param .u64 done, .param .u64 format, .param .u32 all) {
        .reg .b64 at, text; .reg .b32 block, every; .reg .pred speaks, silent;
        ld.param.u64 at, [done]; ld.param.u64 text, [format]; ld.param.u32 every, [all]; mov.u32 block, %ctaid.x;
        setp.ne.u32 speaks, every, 0; setp.eq.or.u32 speaks, block, 0, speaks;
        @!speaks bra COUNT;
        { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], text; st.param.b64 [b], text; call (r), vprintf, (a, b); }
        COUNT: red.global.add.u32 [at], 1;
        ret; }";

/// What has happened, in order.
#[derive(Default)]
struct Events {
    seen: Mutex<Vec<&'static str>>,
    changed: Condvar,
}

impl Events {
    fn add(&self, event: &'static str) {
        self.seen.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    fn wait_for(&self, event: &str) {
        let seen = self.seen.lock().unwrap();
        drop(self.changed.wait_while(seen, |seen| !seen.contains(&event)).unwrap());
    }
}

/// Where the blocks of a launch stop as they print.
struct Stop<'a, F: Fn() + Sync>(&'a F);

impl<F: Fn() + Sync> Host for Stop<'_, F> {
    fn print(&self, _: &[u8]) {
        (self.0)();
    }

    fn assertion(&self, _: &str) {}

    fn set_condition(&self, _: u64, _: u32) -> bool {
        true
    }
}

fn config(blocks: u32, priority: i32, params: &[u8]) -> LaunchConfig<'_> {
    let (grid, block) = ([blocks, 1, 1], [1; 3]);
    LaunchConfig { grid, block, cluster: None, dynamic_shared: 0, cooperative: false, priority, params }
}

/// The pool has no threads beside those that launch. The first block of the one launch that waits stops its thread
/// until all others are done, which only the thread of the other launch can do.
fn launch_two(first: i32, second: i32) -> Vec<&'static str> {
    let device = Device::new(&[SOURCE]);
    let pool = Pool::new(1);
    let text = device.upload(b"x\0\0\0\0\0\0\0");
    let (counts, events, is_over) =
        ([device.zeros::<u32>(1), device.zeros::<u32>(1)], Events::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let params = Params::default().with(counts[0]).with(text).with(1_u32).0;
            let print = || {
                // The tenth block of the others ends once the nine are done, perhaps before this is asked.
                let is_behind = device.download::<u32>(counts[1], 1)[0] >= 9;
                events.add(if is_behind { "block behind the others" } else { "block" });
                events.wait_for("others begin");
            };
            device.loaded.launch("k", config(4, first, &params), &pool, &Stop(&print)).unwrap();
            is_over.store(true, SeqCst);
        });
        events.wait_for("block");
        let params = Params::default().with(counts[1]).with(text).with(0_u32).0;
        let print = || {
            events.add("others begin");
            while device.download::<u32>(counts[1], 1) != [9] && !is_over.load(SeqCst) {
                std::thread::yield_now();
            }
        };
        device.loaded.launch("k", config(10, second, &params), &pool, &Stop(&print)).unwrap();
    });
    assert_eq!([device.download::<u32>(counts[0], 1), device.download::<u32>(counts[1], 1)], [[4], [10]]);
    events.seen.into_inner().unwrap()
}

#[test]
fn a_more_urgent_launch_gets_the_threads_of_others_at_the_next_block() {
    let seen = launch_two(0, -5);
    let behind = "block behind the others";
    assert_eq!(seen, ["block", "others begin", behind, behind, behind]);
}

#[test]
fn a_launch_of_the_same_priority_gets_no_thread_of_another() {
    assert_eq!(launch_two(-1, -1), ["block", "others begin", "block", "block", "block"]);
}
