//! Is it heard at once that a rank has gone, and by whom?

use std::ffi::OsString;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use causeway_comm::settings::Settings;
use causeway_comm::{Job, World};
use causeway_config::Environment;

/// The longest that a rank's end may take to be heard.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn those_that_listen_hear_of_each_rank_that_goes() {
    let nonce = Job::random_nonce().unwrap();
    let set = |asked: &str| (asked == "CAUSEWAY_CACHE_DIR").then(OsString::new);
    let settings = || Settings::read(Environment::of(&set)).unwrap();
    let mut worlds: Vec<_> = (0..4).map(|rank| World::join(nonce, rank, 4, settings()).unwrap()).collect();
    for (one, other) in worlds.iter().flat_map(|one| (0..4).map(move |other| (one, other))) {
        assert!(one.is_local(other), "rank {} reaches rank {other}", one.rank());
    }
    let (presence, (tells, heard), (tells_too, heard_too)) = (worlds[0].presence(), channel(), channel());
    let there = presence.clone();
    // It is told when nobody asks the one that has gone for anything any more.
    let _listener = worlds[0].listen(move |peer| tells.send((peer, there.has(peer))).unwrap());
    let other = worlds[0].listen(move |peer| tells_too.send(peer).unwrap());

    drop(worlds.remove(2));
    assert_eq!(heard.recv_timeout(LIMIT), Ok((2, false)));
    assert_eq!(heard_too.recv_timeout(LIMIT), Ok(2));
    assert!(presence.has(1) && presence.has(3));

    drop(other);
    drop(worlds.pop());
    assert_eq!(heard.recv_timeout(LIMIT), Ok((3, false)));
    // What it would have been told by has gone with it.
    assert_eq!(heard_too.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected));
    assert!(presence.has(1));
}
