//! Send pump: posts queued work as far as credits and queue space allow.

use std::sync::atomic::Ordering;

use causeway_ibverbs::Buffer;
use parking_lot::Mutex;

use super::posting::Path;
use super::stripe::Notice;
use crate::credit::Class;
use crate::failure::Failure;
use crate::message::{CONTROL, HEADER, Kind, Released, take_returns};

impl Path {
    /// Posts what waits, as far as there are credits and room, with one doorbell: credits that are due, what
    /// is given back (which is taken out of `returns`), stripes. Short ones may wait for each other if
    /// somebody `attends`, who will see that they can go.
    pub fn pump(
        &self,
        buffer: &Buffer,
        returns: Option<&Mutex<Vec<Released>>>,
        attends: bool,
    ) -> Result<(), Failure> {
        let mut sending = self.sending.lock();
        if let Some(returns) = returns {
            let mut returns = returns.lock();
            while !returns.is_empty() && sending.queue.free_slots() > 0 {
                let Some(number) = sending.credits.spend(Class::Control) else { break };
                let mut content = [0; CONTROL - HEADER];
                let length = take_returns(&mut returns, &mut content);
                let slot = self.slot(Class::Control, number);
                self.push_message(&mut sending, buffer, slot, Kind::Returns, &content[..length]);
            }
        }
        self.is_holding.store(false, Ordering::Relaxed);
        while let Some(stripe) = sending.waiting.front()
            && sending.queue.free_slots() >= 2 + self.reserved_for_frames()
        {
            if self.carries(stripe) {
                if self.push_eager(&mut sending, buffer, attends) {
                    continue;
                }
                break;
            }
            let slot = match stripe.notice {
                None => None,
                Some(_) => match sending.credits.spend(Class::Control) {
                    Some(number) => Some(self.slot(Class::Control, number)),
                    None => break,
                },
            };
            let Some(stripe) = sending.waiting.pop_front() else { break };
            self.push_work(&mut sending, &stripe, None);
            match stripe.notice.zip(slot) {
                None => {}
                Some((Notice::Announcement(announcement), slot)) => {
                    let content = announcement.to_bytes();
                    self.push_message(&mut sending, buffer, slot, Kind::Announcement, &content);
                }
                Some((Notice::Placed(announcement), slot)) => {
                    self.push_message(&mut sending, buffer, slot, Kind::Placed, &announcement.to_bytes());
                }
                Some((Notice::Offer(offer), slot)) => {
                    self.push_message(&mut sending, buffer, slot, Kind::Offer, &offer.to_bytes());
                }
            }
        }
        if sending.credits.is_credit_update_due() && sending.queue.free_slots() > 0 {
            sending.credits.send_credit_update();
            let slot = self.credit_update_slot(sending.credit_updates);
            sending.credit_updates += 1;
            self.push_message(&mut sending, buffer, slot, Kind::Credits, &[]);
        }
        self.ring(&mut sending)
    }

    /// Entries that transfers leave to frames, so that a command does not wait for a long copy.
    fn reserved_for_frames(&self) -> u32 {
        if self.carries_frames { self.pair.capacity().sends / 4 } else { 0 }
    }
}
