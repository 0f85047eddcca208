//! Handshake of a lane: both ends prove that they know the secret of the handle.
//!
//! The listener sends 24 bytes: `CWncclL1` and 16 that it has drawn for this socket (*challenge*). The connector sends
//! 96, little-endian: `CWncclC1`, the listener's number, 16 bytes that name the connection, the lane's number and how
//! many lanes there are (2 bytes each), 12 zeros, 16 bytes that it has drawn, and 32 of proof over all that and the
//! challenge. The listener sends 32 bytes of proof over the same, as the other role. Nobody can say again what another
//! has said.

use crate::handle::Secret;

/// Bytes of what the listener sends first.
pub(super) const GREETING_BYTES: usize = 24;
/// Bytes of what the connector sends.
pub(super) const HELLO_BYTES: usize = 96;
/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;

const GREETING_MAGIC: [u8; 8] = *b"CWncclL1";
const HELLO_MAGIC: [u8; 8] = *b"CWncclC1";

/// Bytes in front of the connector's proof.
const STATEMENT_BYTES: usize = HELLO_BYTES - PROOF_BYTES;

/// What a listener draws.
pub(super) type Challenge = [u8; 16];

/// Who proves: so that an answer cannot be the question sent back.
#[derive(Debug, Clone, Copy)]
enum Role {
    Connector = 1,
    Listener = 2,
}

/// What a connector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) listener: u64,
    pub(super) connection: [u8; 16],
    pub(super) lane: u16,
    pub(super) lanes: u16,
    pub(super) fresh: [u8; 16],
}

/// What the listener sends first.
pub(super) fn greeting(challenge: &Challenge) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&GREETING_MAGIC);
    bytes[8..].copy_from_slice(challenge);
    bytes
}

/// The challenge in it, if it is one.
pub(super) fn challenge_of(greeting: &[u8; GREETING_BYTES]) -> Option<Challenge> {
    (greeting[..8] == GREETING_MAGIC).then(|| core::array::from_fn(|at| greeting[8 + at]))
}

impl Hello {
    pub(super) fn encode(&self, secret: &Secret, challenge: &Challenge) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..16].copy_from_slice(&self.listener.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.connection);
        bytes[32..34].copy_from_slice(&self.lane.to_le_bytes());
        bytes[34..36].copy_from_slice(&self.lanes.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.fresh);
        let proof = proof(secret, challenge, &bytes[..STATEMENT_BYTES], Role::Connector);
        bytes[STATEMENT_BYTES..].copy_from_slice(proof.as_bytes());
        bytes
    }

    /// The number of the listener that is meant, before anything is proved.
    pub(super) fn listener_of(bytes: &[u8; HELLO_BYTES]) -> Option<u64> {
        let number = u64::from_le_bytes(core::array::from_fn(|at| bytes[8 + at]));
        (bytes[..8] == HELLO_MAGIC).then_some(number)
    }

    /// None where nothing is proved.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES], secret: &Secret, challenge: &Challenge) -> Option<Self> {
        let listener = Self::listener_of(bytes)?;
        let expected = proof(secret, challenge, &bytes[..STATEMENT_BYTES], Role::Connector);
        let claimed: [u8; PROOF_BYTES] = core::array::from_fn(|at| bytes[STATEMENT_BYTES + at]);
        // In a time that does not depend on the bytes.
        if expected != blake3::Hash::from_bytes(claimed) {
            return None;
        }
        Some(Self {
            listener,
            connection: core::array::from_fn(|at| bytes[16 + at]),
            lane: u16::from_le_bytes([bytes[32], bytes[33]]),
            lanes: u16::from_le_bytes([bytes[34], bytes[35]]),
            fresh: core::array::from_fn(|at| bytes[48 + at]),
        })
    }
}

/// The listener's proof, over what the connector has said.
pub(super) fn listener_proof(
    hello: &[u8; HELLO_BYTES],
    secret: &Secret,
    challenge: &Challenge,
) -> [u8; PROOF_BYTES] {
    *proof(secret, challenge, &hello[..STATEMENT_BYTES], Role::Listener).as_bytes()
}

/// Whether a listener has proved that it knows the secret.
pub(super) fn is_listener_proof(
    response: &[u8; PROOF_BYTES],
    hello: &[u8; HELLO_BYTES],
    secret: &Secret,
    challenge: &Challenge,
) -> bool {
    proof(secret, challenge, &hello[..STATEMENT_BYTES], Role::Listener) == blake3::Hash::from_bytes(*response)
}

fn proof(secret: &Secret, challenge: &Challenge, statement: &[u8], role: Role) -> blake3::Hash {
    let key = blake3::derive_key("causeway 2026 nccl-net lane", secret);
    blake3::Hasher::new_keyed(&key).update(&[role as u8]).update(challenge).update(statement).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_hold_for_one_socket_one_secret_and_one_role() {
        let hello = Hello { listener: 7, connection: [1; 16], lane: 2, lanes: 4, fresh: [3; 16] };
        let (secret, challenge) = ([5; 16], [6; 16]);
        let bytes = hello.encode(&secret, &challenge);
        assert_eq!(Hello::decode(&bytes, &secret, &challenge), Some(hello));
        assert_eq!(Hello::decode(&bytes, &[0; 16], &challenge), None);
        assert_eq!(Hello::decode(&bytes, &secret, &[0; 16]), None);
        for at in 0..HELLO_BYTES {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Hello::decode(&bytes, &secret, &challenge), None, "byte {at}");
        }
        let response = listener_proof(&bytes, &secret, &challenge);
        assert!(is_listener_proof(&response, &bytes, &secret, &challenge));
        assert!(!is_listener_proof(&response, &bytes, &[0; 16], &challenge));
        let reflected = core::array::from_fn(|at| bytes[STATEMENT_BYTES + at]);
        assert!(!is_listener_proof(&reflected, &bytes, &secret, &challenge));
    }

    #[test]
    fn greetings_are_read_as_written() {
        let bytes = greeting(&[9; 16]);
        assert_eq!(challenge_of(&bytes), Some([9; 16]));
        assert_eq!(challenge_of(&[0; GREETING_BYTES]), None);
    }
}
