//! Ranks that run as others of their owner's processes see them.

use std::time::Duration;

use causeway_comm::live::{self, LiveRank};
use causeway_comm::{Channel, Job};

use crate::job::{Rank, run_job};
use crate::rank::CALLS;

#[test]
fn a_channel_that_is_switched_off_carries_nothing_from_the_next_message_on() {
    const MESSAGES: u64 = 800;
    let nonce = Job::random_nonce().unwrap();
    let tag = Job::new(nonce, 2).unwrap().tag();
    // All are sent by rank 0; to measure both channels alone takes more than ten messages by each.
    let variables = [(CALLS, "Send Recv"), ("FAKE_GPU_GDRDRV", "1"), ("FAKE_GPU_COPY_US", "1000")];
    let variables = variables.map(|(name, value)| (name, value.to_owned())).to_vec();
    let rank = Rank { host: None, variables };
    let job =
        std::thread::spawn(move || run_job(nonce, &[rank.clone(), rank], "staged,bar", MESSAGES, false));
    let by = |rank: &LiveRank, channel| rank.count(Some(channel)).messages;
    let receiver = || live::ranks().unwrap().into_iter().find(|rank| (rank.job(), rank.rank()) == (tag, 1));
    let seen = loop {
        assert!(!job.is_finished(), "the job has ended before it was seen");
        match receiver() {
            Some(rank) if by(&rank, Channel::Bar) >= 10 => break rank,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert_eq!(seen.channels(), [Channel::Staged, Channel::Bar]);
    seen.allow(&[Channel::Staged, Channel::Vmm]);
    assert_eq!(seen.channels(), [Channel::Staged]);
    let before = by(&seen, Channel::Bar);
    let ended = job.join().unwrap();
    assert!(ended.iter().all(|one| one.is_ok), "{}{}", ended[0].trouble, ended[1].trouble);
    let [bar, staged] = ["bar", "staged"].map(|channel| ended[1].messages(channel));
    // One may have been under way.
    assert!(bar <= before + 1, "{bar} by bar, {before} when it was switched off");
    assert_eq!(bar + staged, MESSAGES);
    // The page is there as long as it is mapped, and says what the report does.
    assert_eq!([by(&seen, Channel::Bar), by(&seen, Channel::Staged)], [bar, staged]);
}
