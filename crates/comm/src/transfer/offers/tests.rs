//! Tests of offers.

use super::*;

fn offer() -> Offer {
    Offer { peer: 3, address: 64, bytes: 8, buffer: 7, is_short: false, copy: None }
}

/// Whether a peer may begin to fetch an offer, and what the program's memory held, if it has that back.
fn begin(offers: &Offers, number: u64, peer: u32) -> Option<Option<Vec<u8>>> {
    offers.begin(number, peer).map(|offer| offer.copy.map(|copy| copy.to_vec()))
}

/// Takes an offer back with a copy of these bytes; without any the copy fails.
fn detach(offers: &Offers, number: u64, bytes: Option<&[u8]>) -> bool {
    offers
        .detach(number, Duration::ZERO, |_, share| bytes.map(|bytes| DetachedCopy::of(bytes, share)))
        .is_some()
}

#[test]
fn offers_are_for_one_peer_and_end_once() {
    let offers = Offers::default();
    let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
    assert_eq!(begin(&offers, first, 3), Some(None));
    assert_eq!((begin(&offers, first, 2), begin(&offers, 9, 3)), (None, None));
    offers.end(first, 2, OfferState::Done);
    assert_eq!(offers.state(first), OfferState::InFlight);
    offers.end(first, 3, OfferState::Done);
    assert_eq!(begin(&offers, first, 3), None);
    offers.end_all(3);
    assert_eq!((offers.state(first), offers.state(second)), (OfferState::Done, OfferState::Failed));
    assert_eq!(offers.state(first), OfferState::Failed);
}

/// Offers with words, and the receiver's end of them.
fn with_words() -> (Offers, StateWords) {
    let (offers, (state_words, memory)) = (Offers::default(), StateWords::new().unwrap());
    let peer = StateWords::of_peer(memory.descriptor().try_clone_to_owned().unwrap()).unwrap();
    offers.open(3, Arc::new(state_words));
    (offers, peer)
}

#[test]
fn a_peer_that_takes_an_offer_by_its_word_ends_it() {
    let (offers, peer) = with_words();
    let (first, slot) = offers.add(offer());
    let slot = slot.unwrap();
    assert!(peer.take(slot, first));
    assert_eq!(offers.state(first), OfferState::InFlight);
    assert!(!detach(&offers, first, Some(&[1])), "the peer reads the memory");
    peer.finish(slot, first);
    assert!(!offers.any_in_flight() && offers.begin(first, 3).is_none());
    assert_eq!((offers.state(first), offers.state(first)), (OfferState::Done, OfferState::Failed));
    // The word is free for the next one, and what comes late for the first changes nothing.
    let (second, again) = offers.add(offer());
    assert_eq!(again, Some(slot));
    peer.finish(slot, first);
    assert_eq!(offers.state(second), OfferState::InFlight);
}

#[test]
fn a_peer_that_waits_in_the_mpi_is_late_sooner() {
    let (offers, peer) = with_words();
    let (first, _) = offers.add(offer());
    let usual = offers.timeout(first);
    peer.set_waiting(true);
    assert!(offers.timeout(first) < usual / 10);
    peer.set_waiting(false);
    assert_eq!((offers.timeout(first), offers.peer(first)), (usual, Some(3)));
    assert_eq!((offers.timeout(first + 1), offers.peer(first + 1)), (Duration::ZERO, None));
}

#[test]
fn what_the_program_has_back_is_not_taken() {
    let (offers, peer) = with_words();
    let (first, slot) = offers.add(offer());
    assert!(!detach(&offers, first, None));
    assert!(detach(&offers, first, Some(&[1; 8])) && !peer.take(slot.unwrap(), first));
    assert_eq!(begin(&offers, first, 3), Some(Some(vec![1; 8])));
    // Where the copy failed it is offered still.
    let (second, slot) = offers.add(offer());
    assert!(!detach(&offers, second, None) && peer.take(slot.unwrap(), second));
    // A peer that could not copy asks, and is served.
    assert!(offers.begin(second, 3).is_some());
    offers.end(second, 3, OfferState::Done);
    assert_eq!(offers.state(second), OfferState::Done);
}

#[test]
fn a_peer_that_goes_leaves_what_it_has_and_no_words() {
    let (offers, peer) = with_words();
    let [first, second] = [offers.add(offer()), offers.add(offer())];
    assert!(peer.take(first.1.unwrap(), first.0) && peer.take(second.1.unwrap(), second.0));
    peer.finish(first.1.unwrap(), first.0);
    offers.end_all(3);
    assert_eq!((offers.state(first.0), offers.state(second.0)), (OfferState::Done, OfferState::Failed));
    assert_eq!(offers.add(offer()).1, None);
}

#[test]
fn what_is_shown_has_no_word_and_is_hidden_again() {
    let (offers, _peer) = with_words();
    let number = offers.export(offer());
    assert_eq!(begin(&offers, number, 3), Some(None));
    offers.revoke(number);
    assert_eq!(begin(&offers, number, 3), None);
    // What a peer says of it later changes nothing.
    offers.end(number, 3, OfferState::Done);
    assert!(!offers.any_in_flight() && offers.add(offer()).1.is_some());
}

#[test]
fn more_offers_than_words_are_made_without() {
    let (offers, _peer) = with_words();
    let numbers: Vec<_> = (0..=STATE_WORDS).map(|_| offers.add(offer())).collect();
    let with = numbers.iter().filter(|(_, word)| word.is_some()).count();
    assert_eq!(with, usize::from(STATE_WORDS));
    let slots: std::collections::HashSet<_> = numbers.iter().filter_map(|(_, word)| *word).collect();
    assert_eq!(slots.len(), with);
}

#[test]
fn a_copy_gives_the_memory_back_before_the_peer_comes() {
    let offers = Offers::default();
    let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
    assert!(!detach(&offers, first, None) && detach(&offers, first, Some(&[7; 8])));
    assert_eq!((offers.state(first), offers.state(first)), (OfferState::Done, OfferState::Done));
    assert_eq!(begin(&offers, first, 3), Some(Some(vec![7; 8])));
    offers.begin(second, 3).unwrap();
    assert!(!detach(&offers, second, Some(&[1])) && offers.any_in_flight());
    offers.end(first, 3, OfferState::Done);
    offers.end(second, 3, OfferState::Done);
    assert_eq!((offers.state(first), offers.any_in_flight()), (OfferState::Failed, false));
}

#[test]
fn a_peer_that_asks_for_what_is_being_taken_back_waits_and_nobody_else_does() {
    let (offers, peer) = with_words();
    let (first, slot) = offers.add(offer());
    let (other, _) = offers.add(offer());
    let asked = std::thread::scope(|scope| {
        let mut asking = None;
        let detached = offers.detach(first, Duration::ZERO, |_, share| {
            asking = Some(scope.spawn(|| begin(&offers, first, 3)));
            // The table is free meanwhile: other offers come to their end.
            assert!(!peer.take(slot.unwrap(), first) && begin(&offers, other, 3).is_some());
            offers.end(other, 3, OfferState::Done);
            assert_eq!(offers.state(first), OfferState::InFlight, "the program's memory is still read");
            Some(DetachedCopy::of(&[7; 8], share))
        });
        assert_eq!(detached, Some((3, 8)));
        asking.unwrap().join().unwrap()
    });
    assert_eq!(asked, Some(Some(vec![7; 8])));
    assert!(!detach(&offers, first, Some(&[1])), "it is taken back once");
}

#[test]
fn a_long_message_is_taken_back_when_its_receiver_is_late() {
    const NEVER: Duration = Duration::from_secs(1 << 30);
    let offers = Offers::default();
    let copy = |_: &Offer, share| Some(DetachedCopy::of(&[1], share));
    let long = offers.add(offer()).0;
    let short = offers.add(Offer { is_short: true, ..offer() }).0;
    assert_eq!([long, short].map(|number| offers.detach(number, NEVER, copy)), [None, Some((3, 8))]);
    assert_eq!(offers.detach(long, Duration::ZERO, copy), Some((3, 8)));
}

#[test]
fn what_is_taken_back_has_a_limit_until_a_send_has_waited_too_long() {
    let total = DetachedBytes::default();
    let take = |bytes, waited| total.take(bytes, waited);
    let first = take(MAX_DETACHED_BYTES - 5, DETACH_TIMEOUT).unwrap();
    assert!(take(6, DETACH_TIMEOUT).is_none());
    let rest = take(5, DETACH_TIMEOUT).unwrap();
    assert!(take(1, DETACH_TIMEOUT).is_none());
    // A deadlock would be worse.
    let long = take(MAX_DETACHED_BYTES, MAX_DETACH_WAIT + DETACH_TIMEOUT).unwrap();
    drop((first, long));
    assert!(
        take(MAX_DETACHED_BYTES - 4, DETACH_TIMEOUT).is_none()
            && take(MAX_DETACHED_BYTES - 5, DETACH_TIMEOUT).is_some()
    );
    drop(rest);
    // One that is longer than all of it goes alone.
    let longest = take(u64::MAX, DETACH_TIMEOUT).unwrap();
    assert!(take(1, DETACH_TIMEOUT).is_none() && take(1, MAX_DETACH_WAIT * 2).is_none());
    drop(longest);
    assert!(take(1, DETACH_TIMEOUT).is_some());
}

#[test]
fn a_receiver_is_late_after_some_copies_of_the_message() {
    let millis = |bytes| detach_timeout(bytes).as_millis();
    assert_eq!([0, 1 << 20, 10_000_000, 50_000_000].map(millis), [100, 100, 100, 500]);
    assert_eq!([100_000_000, u64::MAX].map(millis), [1000, 1000]);
}

#[test]
fn a_receiver_that_is_fetching_is_not_late() {
    let offers = Offers::default();
    let copy = |_: &Offer, share| Some(DetachedCopy::of(&[1], share));
    let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
    let one = Duration::from_nanos(1);
    assert!(offers.begin(first, 3).is_some());
    std::thread::sleep(one);
    let is_early = offers.detach(second, one, copy).is_none();
    // Unless this thread was asleep for long.
    assert!(is_early || offers.state(second) == OfferState::Done);
    offers.end(first, 3, OfferState::Failed);
    assert!(!is_early || offers.detach(second, one, copy).is_some());
}
