//! Allocation of a ResourceClaim: the devices of one driver that the scheduler has given it. Pure.

use serde::Deserialize;
use thiserror::Error;

/// The most bytes of a UID, a name or a namespace of Kubernetes.
const MAX_NAME_BYTES: usize = 253;

/// A device that a claim has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AllocatedDevice {
    /// The request of the claim that it is for.
    pub request: String,
    /// The driver that has published it.
    driver: String,
    /// The pool that it is of.
    pub pool: String,
    /// Its name there.
    pub device: String,
}

/// As much of a ResourceClaim as a driver needs.
#[derive(Deserialize)]
struct ResourceClaim {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

#[derive(Default, Deserialize)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Deserialize)]
struct Allocation {
    #[serde(default)]
    devices: Devices,
}

#[derive(Default, Deserialize)]
struct Devices {
    #[serde(default)]
    results: Vec<AllocatedDevice>,
}

/// Why a claim has no devices.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// It is no ResourceClaim.
    #[error("the API server's reply is no ResourceClaim: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another claim has its name now.
    #[error(
        "the claim with UID {expected} no longer exists: one of the same name has UID {found}; the pod of \
         the first has ended"
    )]
    Replaced {
        /// Its UID.
        expected: String,
        /// That of the one that is there.
        found: String,
    },
    /// The scheduler has not given it devices.
    #[error(
        "the claim is not allocated: a kubelet prepares a claim only when the scheduler has chosen devices for it"
    )]
    NotAllocated,
    /// None of them is this driver's.
    #[error("the claim has no device of the driver {0}")]
    NotOurs(String),
}

/// The devices of `driver` that a ResourceClaim, as the API server has it, was given.
///
/// # Errors
/// When it is another claim, or has none.
pub fn allocated_devices(json: &[u8], uid: &str, driver: &str) -> Result<Vec<AllocatedDevice>, ClaimError> {
    let claim: ResourceClaim = serde_json::from_slice(json)?;
    if claim.metadata.uid != uid {
        return Err(ClaimError::Replaced { expected: uid.to_owned(), found: claim.metadata.uid });
    }
    let results = claim.status.allocation.ok_or(ClaimError::NotAllocated)?.devices.results;
    let ours: Vec<_> = results.into_iter().filter(|device| device.driver == driver).collect();
    if ours.is_empty() { Err(ClaimError::NotOurs(driver.to_owned())) } else { Ok(ours) }
}

/// Whether this can be a UID, a name or a namespace, which become parts of paths: letters, digits, `-`, and `.` but at the
/// start.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.starts_with('.') && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = r#"{"metadata": {"uid": "u", "name": "c"}, "status": {"allocation": {"devices": {"results": [
        {"request": "gpu", "driver": "gpu.causeway.dev", "pool": "a", "device": "gpu-1", "shareID": "x"},
        {"request": "nic", "driver": "other.example", "pool": "a", "device": "nic-1"}]}}}}"#;

    #[test]
    fn only_devices_of_the_driver_and_of_this_claim_count() {
        let devices = allocated_devices(CLAIM.as_bytes(), "u", "gpu.causeway.dev").unwrap();
        let names: Vec<_> = devices.iter().map(|device| (&*device.pool, &*device.device)).collect();
        assert_eq!(names, [("a", "gpu-1")]);
        let message = |json: &str, uid, driver| {
            allocated_devices(json.as_bytes(), uid, driver).unwrap_err().to_string()
        };
        assert!(message(CLAIM, "v", "gpu.causeway.dev").contains("has UID u"));
        assert!(message(CLAIM, "u", "none.example").contains("no device of the driver none.example"));
        assert!(message(r#"{"metadata": {"uid": "u"}}"#, "u", "x").contains("not allocated"));
        for malformed in ["", "[]", r#"{"metadata": {}}"#, r#"{"metadata": {"uid": 7}}"#] {
            assert!(message(malformed, "u", "x").contains("no ResourceClaim"), "{malformed}");
        }
    }

    #[test]
    fn names_cannot_lead_elsewhere() {
        assert!(is_plain_name("3f2a-0b") && is_plain_name("claim.example"));
        for bad in ["", "..", ".x", "a/b", "a\0", "a b", &"x".repeat(254)] {
            assert!(!is_plain_name(bad), "{bad}");
        }
    }
}
