//! What of that which waits for room is posted now?

use std::sync::atomic::Ordering;

use causeway_ibverbs::Buffer;
use parking_lot::Mutex;

use super::part::Said;
use super::posting::Path;
use crate::credit::Class;
use crate::failure::Failure;
use crate::message::{CONTROL, GivenBack, HEADER, Kind, take_returns};

impl Path {
    /// Posts what waits, as far as there are credits and room, with one doorbell: credits that are due, what
    /// is given back (which is taken out of `returns`), parts. Short ones may wait for each other if somebody
    /// `attends`, who will see that they can go.
    pub fn pump(
        &self,
        buffer: &Buffer,
        returns: Option<&Mutex<Vec<GivenBack>>>,
        attends: bool,
    ) -> Result<(), Failure> {
        let mut book = self.book.lock();
        if let Some(returns) = returns {
            let mut returns = returns.lock();
            while !returns.is_empty() && book.queue.room() > 0 {
                let Some(number) = book.credits.spend(Class::Control) else { break };
                let mut content = [0; CONTROL - HEADER];
                let length = take_returns(&mut returns, &mut content);
                let place = self.place(Class::Control, number);
                self.push_message(&mut book, buffer, place, Kind::Returns, &content[..length]);
            }
        }
        self.is_holding.store(false, Ordering::Relaxed);
        while let Some(part) = book.waiting.front()
            && book.queue.room() >= 2 + self.kept_for_frames()
        {
            if self.carries(part) {
                if self.push_carried(&mut book, buffer, attends) {
                    continue;
                }
                break;
            }
            let place = match part.said {
                None => None,
                Some(_) => match book.credits.spend(Class::Control) {
                    Some(number) => Some(self.place(Class::Control, number)),
                    None => break,
                },
            };
            let Some(part) = book.waiting.pop_front() else { break };
            self.push_work(&mut book, &part, None);
            match part.said.zip(place) {
                None => {}
                Some((Said::Announcement(announcement), place)) => {
                    let content = announcement.to_bytes();
                    self.push_message(&mut book, buffer, place, Kind::Announcement, &content);
                }
                Some((Said::Placed(announcement), place)) => {
                    self.push_message(&mut book, buffer, place, Kind::Placed, &announcement.to_bytes());
                }
                Some((Said::Offer(offer), place)) => {
                    self.push_message(&mut book, buffer, place, Kind::Offer, &offer.to_bytes());
                }
            }
        }
        if book.credits.is_extra_due() && book.queue.room() > 0 {
            book.credits.send_extra();
            let place = self.extra_place(book.extras);
            book.extras += 1;
            self.push_message(&mut book, buffer, place, Kind::Credits, &[]);
        }
        self.ring(&mut book)
    }

    /// Entries that transfers leave to frames, so that a command does not wait for a long copy.
    fn kept_for_frames(&self) -> u32 {
        if self.carries_frames { self.pair.capacity().sends / 4 } else { 0 }
    }
}
