//! Invited client: one that is to enrol a key of its own.

use jiff::Timestamp;

use super::limits::ClientLimits;
use crate::target::{ClientName, Key};

/// A client that is to enrol a key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvitedClient {
    /// The secret of the invitation, in the client's name.
    pub secret: Key,
    /// Until when it counts.
    pub until: Timestamp,
    /// From when on the client will be shut out.
    pub expires: Option<Timestamp>,
    /// What the client will have.
    pub limits: ClientLimits,
}

impl InvitedClient {
    /// A client with a new invitation, without limits.
    pub fn new(name: ClientName, until: Timestamp) -> Self {
        Self { secret: Key::generate_for(name), until, expires: None, limits: ClientLimits::default() }
    }
}
