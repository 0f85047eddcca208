//! What may become of an offer, in every order?

use super::*;

fn offer() -> Offer {
    Offer { peer: 3, address: 64, bytes: 8, buffer: 7, is_short: false, copy: None }
}

#[test]
fn offers_are_for_one_peer_and_end_once() {
    let offers = Offers::default();
    let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
    assert_eq!(offers.begin(first, 3), Some(offer()));
    assert_eq!((offers.begin(first, 2), offers.begin(9, 3)), (None, None));
    offers.end(first, 2, OfferState::Done);
    assert_eq!(offers.state(first), OfferState::UnderWay);
    offers.end(first, 3, OfferState::Done);
    assert_eq!(offers.begin(first, 3), None);
    offers.end_all(3);
    assert_eq!((offers.state(first), offers.state(second)), (OfferState::Done, OfferState::Failed));
    assert_eq!(offers.state(first), OfferState::Failed);
}

/// Offers with words, and the receiver's end of them.
fn with_words() -> (Offers, Words) {
    let (offers, words) = (Offers::default(), Words::new().unwrap());
    let peer = Words::of_peer(words.descriptor().try_clone_to_owned().unwrap()).unwrap();
    offers.open(3, Arc::new(words));
    (offers, peer)
}

#[test]
fn a_peer_that_takes_an_offer_by_its_word_ends_it() {
    let (offers, peer) = with_words();
    let (first, slot) = offers.add(offer());
    let slot = slot.unwrap();
    assert!(peer.take(slot, first));
    assert_eq!(offers.state(first), OfferState::UnderWay);
    assert!(!offers.detach(first, |_| Some(Vec::new())), "the peer reads the memory");
    peer.finish(slot, first);
    assert!(!offers.are_under_way() && offers.begin(first, 3).is_none());
    assert_eq!((offers.state(first), offers.state(first)), (OfferState::Done, OfferState::Failed));
    // The word is free for the next one, and what comes late for the first changes nothing.
    let (second, again) = offers.add(offer());
    assert_eq!(again, Some(slot));
    peer.finish(slot, first);
    assert_eq!(offers.state(second), OfferState::UnderWay);
}

#[test]
fn what_the_program_has_back_is_not_taken() {
    let (offers, peer) = with_words();
    let (first, slot) = offers.add(offer());
    assert!(!offers.detach(first, |_| None));
    assert!(offers.detach(first, |_| Some(vec![1; 8])) && !peer.take(slot.unwrap(), first));
    assert!(offers.begin(first, 3).unwrap().copy.is_some());
    // Where the copy failed it is offered still.
    let (second, slot) = offers.add(offer());
    assert!(!offers.detach(second, |_| None) && peer.take(slot.unwrap(), second));
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
    let number = offers.show(offer());
    assert_eq!(offers.begin(number, 3), Some(offer()));
    offers.hide(number);
    assert_eq!(offers.begin(number, 3), None);
    // What a peer says of it later changes nothing.
    offers.end(number, 3, OfferState::Done);
    assert!(!offers.are_under_way() && offers.add(offer()).1.is_some());
}

#[test]
fn more_offers_than_words_are_made_without() {
    let (offers, _peer) = with_words();
    let numbers: Vec<_> = (0..=WORDS).map(|_| offers.add(offer())).collect();
    let with = numbers.iter().filter(|(_, word)| word.is_some()).count();
    assert_eq!(with, usize::from(WORDS));
    let slots: std::collections::HashSet<_> = numbers.iter().filter_map(|(_, word)| *word).collect();
    assert_eq!(slots.len(), with);
}

#[test]
fn a_copy_gives_the_memory_back_before_the_peer_comes() {
    let offers = Offers::default();
    let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
    assert!(!offers.detach(first, |_| None) && offers.detach(first, |_| Some(vec![7; 8])));
    assert_eq!((offers.state(first), offers.state(first)), (OfferState::Done, OfferState::Done));
    assert_eq!(offers.begin(first, 3).unwrap().copy.as_deref(), Some(&vec![7; 8]));
    offers.begin(second, 3).unwrap();
    assert!(!offers.detach(second, |_| Some(Vec::new())) && offers.are_under_way());
    offers.end(first, 3, OfferState::Done);
    offers.end(second, 3, OfferState::Done);
    assert_eq!((offers.state(first), offers.are_under_way()), (OfferState::Failed, false));
}
