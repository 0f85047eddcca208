//! Channels through memory of the host, which need no device.

use crate::job::{Rank, all_come};

#[test]
fn random_messages_come_by_staged() {
    all_come(&[Rank::default(), Rank::default()], "staged", 60);
}

#[test]
fn random_messages_come_by_tcp() {
    let variables = vec![("CAUSEWAY_COMM_HOSTS", "127.0.0.1".to_owned())];
    let rank = Rank { host: None, variables };
    all_come(&[rank.clone(), rank], "tcp", 60);
}
