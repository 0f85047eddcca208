//! Channels through memory of the host: staged and TCP, and the GPUs' BARs, with a kernel module that is none
//! (`fake_gpu.c`).

use crate::job::{Ended, Rank, all_come, run};
use crate::rank::{CALLS, SHORT};

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

fn rank(variables: &[(&'static str, &str)]) -> Rank {
    let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Rank { host: None, variables }
}

#[test]
fn random_messages_come_through_what_gdrdrv_maps() {
    let with = rank(&[("FAKE_GPU_GDRDRV", "1")]);
    let told = all_come(&[with.clone(), with], "bar", 60);
    let pins = told.lines().filter_map(|line| line.strip_prefix("gdrdrv: ")).collect::<Vec<_>>();
    assert_eq!(pins.len(), 2, "both ranks have pinned memory: {told}");
    for line in pins {
        let most = line.rsplit_once(", ").and_then(|(_, most)| most.split(' ').next()?.parse::<u32>().ok());
        // As many as stay mapped in each direction.
        assert!(most.is_some_and(|most| most <= 2 * 16), "{line}");
    }
}

#[test]
fn random_messages_come_through_dma_bufs_that_can_be_mapped() {
    let with = rank(&[("FAKE_GPU_DMA_BUF", "1")]);
    let told = all_come(&[with.clone(), with], "bar", 60);
    assert!(!told.contains("gdrdrv: "), "{told}");
}

#[test]
fn one_way_at_one_end_and_the_other_at_the_other_will_do() {
    all_come(&[rank(&[("FAKE_GPU_GDRDRV", "1")]), rank(&[("FAKE_GPU_DMA_BUF", "1")])], "bar", 40);
}

#[test]
fn short_messages_make_no_copy_of_the_gpus_engines() {
    const MESSAGES: u64 = 2000;
    // A copy takes longer than the processor, as on a GPU, however busy the machine is.
    let with = rank(&[(SHORT, "1"), ("FAKE_GPU_GDRDRV", "1"), ("FAKE_GPU_COPY_US", "20000")]);
    let ended = run(&[with.clone(), with], "ipc,vmm,staged,bar", MESSAGES, false);
    let told = ended.iter().map(|one| one.trouble.as_str()).collect::<String>();
    assert!(ended.iter().all(|one| one.is_ok), "{:?}\n{told}", ended[0].said);
    let copies: u64 =
        told.lines().filter_map(|line| line.strip_prefix("copies: ")?.parse::<u64>().ok()).sum();
    let [sent, received] = [ended[0].messages("eager"), ended[1].messages("bar")];
    // The report is what happened: the engines have copied the others, at each end.
    let others = (MESSAGES - sent) + (MESSAGES - received);
    assert_eq!(copies, others, "{sent} were read and {received} written by the processor");
    assert!(copies * 100 <= MESSAGES, "{sent} were read and {received} written by the processor");
}

/// A slow BAR is left to the driver, at each end, after as many copies as show that it is slow.
#[test]
fn short_messages_leave_a_slow_bar_alone() {
    const MESSAGES: u64 = 600;
    let with = rank(&[
        (SHORT, "1"),
        ("FAKE_GPU_DMA_BUF", "1"),
        ("FAKE_GPU_BAR_US", "10000"),
        ("FAKE_GPU_COPY_US", "0"),
    ]);
    let ended = run(&[with.clone(), with], "staged,bar", MESSAGES, false);
    let told = ended.iter().map(|one| one.trouble.as_str()).collect::<String>();
    assert!(ended.iter().all(|one| one.is_ok), "{:?}\n{told}", ended[0].said);
    let [sent, received] = [ended[0].messages("eager"), ended[1].messages("bar")];
    // Those that were measured: of 3, 67, 198, 457 messages three each.
    for eager in [sent, received] {
        assert!(
            (3..=MESSAGES / 20).contains(&eager),
            "{sent} were read and {received} written by the processor"
        );
    }
}

/// By measured cost, the channel through the BAR or the one that the GPU's engine copies for, whichever is faster.
#[test]
fn the_faster_of_bar_and_staging_carries_messages() {
    const MESSAGES: u64 = 300;
    for (slow, channel) in [("FAKE_GPU_BAR_US", "staged"), ("FAKE_GPU_COPY_US", "bar")] {
        let with = rank(&[(CALLS, "Send Recv"), ("FAKE_GPU_DMA_BUF", "1"), (slow, "10000")]);
        let ended = run(&[with.clone(), with], "staged,bar", MESSAGES, false);
        let told = ended.iter().map(|one| one.trouble.as_str()).collect::<String>();
        assert!(ended.iter().all(|one| one.is_ok), "{:?}\n{told}", ended[0].said);
        let [fast, all] = [ended[1].messages(channel), MESSAGES];
        assert!(
            fast * 3 >= all * 2,
            "{fast} of {all} came by {channel} where {slow} is 10 ms: {:?}",
            ended[1].said
        );
    }
}

/// What is said where there is no way for a message; none where it came, since a receive into memory of the
/// host needs no BAR.
fn error_of(ranks: &[Rank; 2]) -> Option<String> {
    let ended: [Ended; 2] = run(ranks, "bar", 1, false);
    let said: Vec<_> =
        ended.iter().flat_map(|one| &one.said).filter(|line| line.starts_with("error")).collect();
    assert!(said.len() <= 1, "{said:?} {} {}", ended[0].trouble, ended[1].trouble);
    said.first().map(|said| (*said).clone())
}

#[test]
fn what_is_missing_is_said() {
    for [variable, value, why] in [
        ["FAKE_GPU_OTHER", "1", "there is no /dev/gdrdrv: the kernel module gdrdrv (GDRCOPY) is not loaded"],
        ["FAKE_GPU_GDRDRV", "old", "the kernel module gdrdrv has version 1.3, and 2.0"],
    ] {
        // Which rank sends is drawn.
        let [able, other] = [rank(&[("FAKE_GPU_DMA_BUF", "1")]), rank(&[(variable, value)])];
        let (mut errors, mut tries) = (Vec::new(), 0);
        while !errors.iter().any(|error: &String| error.contains(why)) {
            assert!(tries < 30, "{errors:?}");
            tries += 1;
            errors.extend(error_of(&[able.clone(), other.clone()]));
        }
        let is_told = |error: &String| error.contains(why) || error == "error nothing is offered";
        assert!(errors.iter().all(is_told), "{errors:?}");
    }
}
