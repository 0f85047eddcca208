//! ResourceSlice of a server: its GPUs, as the scheduler sees them. Pure.
//!
//! A GPU that is reached over the network is no node's: the slice is for all nodes, or for those with a label, so that the
//! scheduler counts each GPU once in the whole cluster. A server is a pool of one slice.

use serde_json::{Map, Value, json};

/// The version of the API.
pub const API_VERSION: &str = "resource.k8s.io/v1";
/// The most devices of a slice.
pub const MAX_DEVICES: usize = 128;
/// The most bytes of a device's name.
const MAX_DEVICE_NAME: usize = 63;
/// The most bytes of a text attribute.
const MAX_ATTRIBUTE: usize = 64;
/// What was published, by which is seen whether it is still that: the API server writes quantities in its own way.
const PUBLISHED: &str = "causeway.dev/published";

/// A GPU that a claim can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedGpu {
    /// Its UUID, as the server says.
    pub uuid: String,
    /// The name of its model.
    pub model: String,
    /// Bytes of its memory.
    pub memory: u64,
}

/// How the GPUs of all servers are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The name of the driver.
    pub driver: String,
    /// The label that nodes have which can use the GPUs, and its value; none for all nodes.
    pub node_label: Option<(String, String)>,
    /// Whether several claims may have a GPU, each a part of its memory.
    pub is_shared: bool,
}

/// The name of a GPU as a device; none for a UUID of which none can be made.
pub fn device_name(uuid: &str) -> Option<String> {
    let name = uuid.to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let has_ends = !name.is_empty() && !name.starts_with('-') && !name.ends_with('-');
    (has_ends && name.len() <= MAX_DEVICE_NAME && name.bytes().all(is_plain)).then_some(name)
}

/// The name of a server as a pool: that of its address.
pub fn pool_name(address: &str) -> String {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }
    };
    let name: String = address.chars().map(plain).take(200).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "server".to_owned() } else { name.to_owned() }
}

impl Publication {
    /// The name of a pool's slice.
    pub fn slice_name(&self, pool: &str) -> String {
        format!("{}-{pool}", self.driver)
    }

    /// The slice of a pool with these GPUs that takes the place of `found`; none where that is the same.
    pub fn update(&self, pool: &str, gpus: &[PublishedGpu], found: Option<&Value>) -> Option<Value> {
        let devices: Vec<Value> = gpus.iter().filter_map(|gpu| self.device(gpu)).take(MAX_DEVICES).collect();
        let mut spec = Map::new();
        spec.insert("driver".into(), json!(self.driver));
        spec.insert("devices".into(), json!(devices));
        match &self.node_label {
            None => spec.insert("allNodes".into(), json!(true)),
            Some((label, value)) => {
                let expression = json!({ "key": label, "operator": "In", "values": [value] });
                let selector = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
                spec.insert("nodeSelector".into(), selector)
            }
        };
        let published = Value::Object(spec.clone()).to_string();
        let text = |pointer| found.and_then(|found| found.pointer(pointer)).and_then(Value::as_str);
        if text("/metadata/annotations/causeway.dev~1published") == Some(&published) {
            return None;
        }
        let generation =
            found.and_then(|found| found.pointer("/spec/pool/generation")).and_then(Value::as_u64);
        let generation = generation.unwrap_or(0) + 1;
        spec.insert(
            "pool".into(),
            json!({ "name": pool, "generation": generation, "resourceSliceCount": 1 }),
        );
        let mut metadata = json!({
            "name": self.slice_name(pool),
            "labels": { "app.kubernetes.io/managed-by": "causeway" },
            "annotations": { PUBLISHED: published },
        });
        // The API server refuses the update if another one came between.
        if let Some(version) = text("/metadata/resourceVersion") {
            metadata["resourceVersion"] = json!(version);
        }
        Some(
            json!({ "apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec }),
        )
    }

    fn device(&self, gpu: &PublishedGpu) -> Option<Value> {
        let text = |text: &str| {
            let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
            let mut end = text.len().min(MAX_ATTRIBUTE);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            json!({ "string": text[..end] })
        };
        let mut device = json!({
            "name": device_name(&gpu.uuid)?,
            "attributes": { "uuid": text(&gpu.uuid), "productName": text(&gpu.model) },
            "capacity": { "memory": { "value": gpu.memory.to_string() } },
        });
        if self.is_shared {
            device["allowMultipleAllocations"] = json!(true);
        }
        Some(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication() -> Publication {
        Publication { driver: "gpu.causeway.dev".into(), node_label: None, is_shared: false }
    }

    fn gpu(uuid: &str) -> PublishedGpu {
        PublishedGpu { uuid: uuid.into(), model: "NVIDIA H200".into(), memory: 150_754_820_096 }
    }

    #[test]
    fn a_slice_has_the_gpus_for_all_nodes() {
        let slice = publication().update("box-7690", &[gpu("GPU-0A"), gpu("a b")], None).unwrap();
        assert_eq!(slice["apiVersion"], "resource.k8s.io/v1");
        assert_eq!(slice["metadata"]["name"], "gpu.causeway.dev-box-7690");
        let spec = &slice["spec"];
        assert_eq!(spec["pool"], json!({ "name": "box-7690", "generation": 1, "resourceSliceCount": 1 }));
        assert_eq!(
            (&spec["allNodes"], spec.get("nodeName"), spec.get("nodeSelector")),
            (&json!(true), None, None)
        );
        let devices = spec["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 1, "a UUID that is none is left out");
        assert_eq!(devices[0]["name"], "gpu-0a");
        assert_eq!(devices[0]["attributes"]["uuid"]["string"], "GPU-0A");
        assert_eq!(devices[0]["capacity"]["memory"]["value"], "150754820096");
        assert!(devices[0].get("allowMultipleAllocations").is_none());
    }

    #[test]
    fn shared_gpus_and_chosen_nodes_are_said() {
        let node_label = Some(("causeway.dev/client".to_owned(), "yes".to_owned()));
        let publication = Publication { node_label, is_shared: true, ..publication() };
        let slice = publication.update("p", &[gpu("GPU-1")], None).unwrap();
        assert_eq!(slice["spec"]["devices"][0]["allowMultipleAllocations"], true);
        assert!(slice["spec"].get("allNodes").is_none());
        let terms = &slice["spec"]["nodeSelector"]["nodeSelectorTerms"];
        assert_eq!(terms.as_array().unwrap().len(), 1);
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["yes"]));
    }

    #[test]
    fn only_what_has_changed_is_published_with_the_next_generation() {
        let mut first = publication().update("p", &[gpu("GPU-1")], None).unwrap();
        // The API server adds a version, and writes numbers as it likes.
        first["metadata"]["resourceVersion"] = json!("17");
        first["spec"]["devices"][0]["capacity"]["memory"]["value"] = json!("143768Mi");
        assert_eq!(publication().update("p", &[gpu("GPU-1")], Some(&first)), None);
        let second = publication().update("p", &[], Some(&first)).unwrap();
        assert_eq!(second["metadata"]["resourceVersion"], "17");
        assert_eq!(
            (&second["spec"]["pool"]["generation"], &second["spec"]["devices"]),
            (&json!(2), &json!([]))
        );
    }

    #[test]
    fn names_are_those_of_the_api() {
        assert_eq!(pool_name("[fd00::1]:7690"), "fd00--1--7690");
        assert_eq!(pool_name("GPU-Box:7690"), "gpu-box-7690");
        assert_eq!(pool_name("unix:/"), "unix");
        assert_eq!(pool_name("::"), "server");
        assert_eq!(device_name("GPU-01234567-0123-0123-0123-0123456789AB").unwrap().len(), 40);
        assert!(["", "-a", "a-", "a_b"].iter().all(|uuid| device_name(uuid).is_none()));
        let odd = PublishedGpu { model: "é".repeat(40), ..gpu("GPU-1") };
        let slice = publication().update("p", &[odd], None).unwrap();
        let name = slice["spec"]["devices"][0]["attributes"]["productName"]["string"].as_str().unwrap().len();
        assert!(name <= MAX_ATTRIBUTE);
    }
}
