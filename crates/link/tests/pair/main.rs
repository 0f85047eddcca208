//! Both ends of a link, over loopback sockets and over shared memory: messages, transfers, and how a link
//! ends.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod ends;
mod messages;
mod transfers;

use common::{Joint, has_rdma_device};
use ends::{a_blocked_sender_is_freed, closing_sends_the_last_words};
use messages::{messages_keep_their_order, messages_of_all_lengths_keep_their_order_and_their_bytes};
use transfers::{a_cancelled_transfer_is_dropped, a_transfer_of_another_size_fails, transfers_arrive};

/// One test, so that it can be run by itself with many settings where there is a device.
#[test]
fn verbs_keep_what_links_promise() {
    if has_rdma_device() {
        for promise in [
            messages_keep_their_order,
            messages_of_all_lengths_keep_their_order_and_their_bytes,
            transfers_arrive,
            a_transfer_of_another_size_fails,
            a_cancelled_transfer_is_dropped,
            closing_sends_the_last_words,
            a_blocked_sender_is_freed,
        ] {
            promise(Joint::Verbs);
        }
    }
}
