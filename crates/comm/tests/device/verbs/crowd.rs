//! Many threads post to one queue pair: no request is lost, written over, or done twice.

use causeway_comm::device::verbs::{Doorbell, QueuePairOptions};

use super::pair::{ONE_AT_A_TIME, Pair, TRY};
use crate::machine::Params;

/// Posts by so many threads (or blocks, of which one thread posts), so many each.
fn run(options: QueuePairOptions, how: u32, posters: u32, each: u32) {
    let pair = Pair::new(options, Doorbell::Auto);
    let [one, other] = &pair.ends;
    let all = u64::from(posters) * u64::from(each);
    let bytes = (8 * all) as usize;
    let gpu = &pair.gpu.gpus(1)[0];
    let access = causeway_ibverbs::Access::REMOTE_WRITE;
    let memory = [gpu.host_memory(bytes as u64).unwrap(), gpu.host_memory(bytes as u64).unwrap()];
    // SAFETY: the memory stays until the regions are dropped, which is before it.
    let [source, remote] = unsafe {
        [
            one.nic.register(memory[0].address, bytes, access),
            other.nic.register(memory[1].address, bytes, access),
        ]
    };
    let (source, remote) = (source.unwrap(), remote.unwrap());
    let answer = pair.gpu.filled(&[0; 32]);
    // `Crowd` of `device_verbs.cuh`.
    let crowd = Params::default()
        .long(one.queue_pair.handle())
        .long(one.sends.handle())
        .long(memory[0].address)
        .long(memory[1].address)
        .word(source.lkey())
        .word(remote.rkey())
        .word(each)
        .word(how)
        .word(posters)
        .word(0)
        .long(answer.address);
    let grid = if how == ONE_AT_A_TIME { [posters, 32] } else { [posters.div_ceil(512), posters.min(512)] };
    let doorbells = pair.card.doorbells();
    pair.gpu.launch_grid("verbs_crowd", grid, crowd);
    let words: Vec<u64> = pair
        .gpu
        .bytes(answer.address, 24)
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(
        words,
        [all, all * (all + 1) / 2, 0],
        "completions, their numbers, errors: {}",
        pair.card.complaint()
    );
    let found = pair.gpu.bytes(memory[1].address, bytes as u64);
    for (index, word) in found.chunks(8).enumerate() {
        assert_eq!(u64::from_le_bytes(word.try_into().unwrap()), !(index as u64), "request {index}");
    }
    assert!(pair.card.doorbells() > doorbells);
}

#[test]
fn threads_post_as_many_as_there_are() {
    let ring = |sends| QueuePairOptions { sends, receives: 1, inline: 28 };
    for (sends, posters, each) in [(16, 1, 200), (16, 33, 20), (64, 256, 8), (1024, 1024, 4), (8192, 4096, 2)]
    {
        run(ring(sends), TRY, posters, each);
    }
}

#[test]
fn the_published_form_posts_by_a_thread_of_each_block() {
    run(QueuePairOptions { sends: 16, receives: 1, inline: 28 }, ONE_AT_A_TIME, 6, 40);
}

#[test]
fn counts_of_16_bits_begin_again() {
    run(QueuePairOptions { sends: 4096, receives: 1, inline: 28 }, TRY, 96, 720);
}
