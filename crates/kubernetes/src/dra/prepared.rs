//! Prepared claims on a node's disk: for each a description for container engines, and a record of its devices.
//!
//! A kubelet may ask for the same claim again, also after this process or the node has started anew, and has it unprepared
//! when the claim itself may be gone. So nothing that is needed for that is only in memory.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The vendor and class of the devices by which container engines get what a claim stands for.
const CDI_KIND: &str = "causeway.dev/claim";
/// The oldest version that has all that is written; engines since 2022 know it.
const CDI_VERSION: &str = "0.5.0";

/// A device of a prepared claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDevice {
    /// The request that it is for.
    pub request: String,
    /// The pool that it is of.
    pub pool: String,
    /// Its name there.
    pub device: String,
}

/// The claims that are prepared on this node.
#[derive(Debug, Clone)]
pub struct PreparedClaims {
    records: PathBuf,
    descriptions: PathBuf,
}

impl PreparedClaims {
    /// Those with records in one folder, and descriptions in the folder from which container engines read them.
    ///
    /// # Errors
    /// When a folder is not there and cannot be made.
    pub fn open(records: &Path, descriptions: &Path) -> io::Result<Self> {
        fs::create_dir_all(records)?;
        fs::create_dir_all(descriptions)?;
        Ok(Self { records: records.to_owned(), descriptions: descriptions.to_owned() })
    }

    /// The device of container engines that a claim is.
    pub fn cdi_device(uid: &str) -> String {
        format!("{CDI_KIND}={uid}")
    }

    /// The devices of a claim that is prepared. One whose record is damaged, or whose description has gone, as after a
    /// start of the node, is prepared anew.
    pub fn find(&self, uid: &str) -> Option<Vec<RecordedDevice>> {
        let record = fs::read(self.record(uid)).ok()?;
        self.description(uid).exists().then(|| serde_json::from_slice(&record).ok())?
    }

    /// Writes the description of a claim's container edits, and then its record.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, uid: &str, devices: &[RecordedDevice], edits: &Value) -> io::Result<()> {
        let description = json!({
            "cdiVersion": CDI_VERSION,
            "kind": CDI_KIND,
            "devices": [{ "name": uid, "containerEdits": edits }],
        });
        write(&self.description(uid), &description)?;
        write(&self.record(uid), &json!(devices))
    }

    /// Removes both. A claim that is not prepared is no error.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, uid: &str) -> io::Result<()> {
        for path in [self.description(uid), self.record(uid)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn record(&self, uid: &str) -> PathBuf {
        self.records.join(format!("{uid}.json"))
    }

    fn description(&self, uid: &str) -> PathBuf {
        self.descriptions.join(format!("causeway.dev-claim-{uid}.json"))
    }
}

/// Replaces a file as a whole, which has secrets.
fn write(path: &Path, content: &Value) -> io::Result<()> {
    let draft = path.with_extension("new");
    // A draft of another process may be readable by others, or a link.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_claim_is_prepared_as_long_as_record_and_description_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let (records, cdi) = (folder.path().join("plugins/claims"), folder.path().join("cdi"));
        let open = || PreparedClaims::open(&records, &cdi).unwrap();
        let device = |request: &str| RecordedDevice {
            request: request.into(),
            pool: "p".into(),
            device: "gpu-1".into(),
        };
        assert_eq!(open().find("u-1"), None);
        open().add("u-1", &[device("r")], &json!({ "env": ["A=1"] })).unwrap();
        // Another process finds it, too.
        assert_eq!(open().find("u-1"), Some(vec![device("r")]));
        let path = cdi.join("causeway.dev-claim-u-1.json");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(text["kind"], "causeway.dev/claim");
        assert_eq!(text["devices"][0], json!({ "name": "u-1", "containerEdits": { "env": ["A=1"] } }));
        assert_eq!(PreparedClaims::cdi_device("u-1"), "causeway.dev/claim=u-1");

        fs::write(records.join("u-1.json"), "[{").unwrap();
        assert_eq!(open().find("u-1"), None, "a damaged record");
        open().add("u-1", &[device("s")], &json!({})).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(open().find("u-1"), None, "the node has started anew");
        for _ in 0..2 {
            open().remove("u-1").unwrap();
        }
        assert!(
            fs::read_dir(&records).unwrap().next().is_none() && fs::read_dir(&cdi).unwrap().next().is_none()
        );
    }
}
