//! Report: facts as JSON for other programs, with a name for each value.
//!
//! Facts travel between releases in a form of their own ([`Facts::to_json`]), where a pair is a list and a
//! variant the name of a type here. What people's programs read has neither: each thing is an object with
//! named fields.

use serde_json::{Value, json};

use crate::checks::path::ServerPath;
use crate::distance::Distance;
use crate::facts::{CudaDevice, DriverProbe, Facts, Feature, PciDevice};

/// The facts about a machine.
pub fn facts(facts: &Facts) -> Value {
    let mut all = json!(facts);
    let machine = &facts.machine;
    all["machine"]["kernel_options"] =
        machine.kernel_options.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let pci = facts.rdma.devices.iter().map(|device| device.pci.as_ref());
    for (index, device) in pci.enumerate() {
        all["rdma"]["devices"][index]["pci"] = device.map(pci_device).into();
    }
    all["rdma"]["idle_rdma_devices"] = facts.rdma.idle_rdma_devices.iter().map(pci_device).collect();
    all["gpus"]["devices"] = facts.gpus.devices.iter().map(pci_device).collect();
    let live = &facts.live;
    let library = live.client_library.as_ref();
    all["live"]["client_library"] = library
        .map(|found| json!({ "folder": found.as_ref().ok(), "error": found.as_ref().err() }))
        .unwrap_or_default();
    let libraries = live.libraries.iter();
    all["live"]["libraries"] =
        libraries.map(|(name, error)| json!({ "name": name, "error": error })).collect();
    let devices = live.verbs.devices.iter();
    all["live"]["verbs"]["devices"] = devices
        .map(|(name, ports)| {
            json!({ "name": name, "ports": ports.as_ref().ok(), "error": ports.as_ref().err() })
        })
        .collect();
    all["live"]["driver"] = driver(&live.driver);
    all["live"]["features"] =
        live.features.iter().map(|(feature, is_there)| (name_of(*feature), json!(is_there))).collect();
    all
}

/// The facts about the way to a server.
pub fn path(path: &ServerPath) -> Value {
    let mut all = json!(path);
    let round_trip = path.round_trip;
    all["round_trip"] = round_trip
        .map(|(min, median)| json!({ "min_seconds": min / 1e6, "median_seconds": median / 1e6 }))
        .unwrap_or_default();
    let not_used = path.not_used.iter();
    all["not_used"] =
        not_used.map(|(transport, reason)| json!({ "transport": transport, "reason": reason })).collect();
    all
}

/// The distances of network cards from GPUs.
pub fn distances(distances: &[(&str, &str, Distance)]) -> Value {
    let mut all = Vec::new();
    for (rdma_device, gpu, distance) in distances {
        all.push(json!({ "rdma_device": rdma_device, "gpu": gpu, "distance": distance }));
    }
    all.into()
}

fn pci_device(device: &PciDevice) -> Value {
    let mut all = json!(device);
    let redirecting = device.redirecting.iter();
    all["redirecting"] = redirecting
        .map(|(bridge, is_redirecting)| json!({ "bridge": bridge, "is_redirecting": is_redirecting }))
        .collect();
    all
}

fn driver(driver: &DriverProbe) -> Value {
    match driver {
        DriverProbe::NotProbed => json!({ "state": "not_probed" }),
        DriverProbe::NotBuiltIn => json!({ "state": "not_built_in" }),
        DriverProbe::None { is_installed, why } => {
            json!({ "state": "unusable", "is_installed": is_installed, "reason": why })
        }
        DriverProbe::Started { name, devices } => {
            let devices: Vec<_> = devices.iter().map(cuda_device).collect();
            json!({ "state": "started", "name": name, "devices": devices })
        }
    }
}

fn cuda_device(device: &CudaDevice) -> Value {
    let mut all = json!(device);
    let closed = device.closed.iter();
    all["closed"] = closed.map(|(path, reason)| json!({ "path": path, "reason": reason })).collect();
    all
}

/// The variant's name as JSON has names: `SealedMemory` is `sealed_memory`.
fn name_of(feature: Feature) -> String {
    let mut name = String::new();
    for letter in format!("{feature:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{PathMtu, RdmaDevice};

    /// What of a value is no plain JSON: lists in lists, lists of different things, and names of types.
    fn not_plain(at: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Array(items) => {
                let is_same = items
                    .windows(2)
                    .all(|two| core::mem::discriminant(&two[0]) == core::mem::discriminant(&two[1]));
                if !is_same || items.iter().any(Value::is_array) {
                    found.push(at.to_owned());
                }
                items.iter().for_each(|item| not_plain(at, item, found));
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let at = format!("{at}.{name}");
                    if name.starts_with(char::is_uppercase) {
                        found.push(at.clone());
                    }
                    not_plain(&at, value, found);
                }
            }
            _ => {}
        }
    }

    fn of(value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        not_plain("", value, &mut found);
        found
    }

    #[test]
    fn each_value_of_a_report_has_a_name() {
        let pci = PciDevice { redirecting: vec![("0000:00:01.0".into(), true)], ..PciDevice::default() };
        let device = RdmaDevice { pci: Some(pci.clone()), ..RdmaDevice::default() };
        let mut all = Facts::default();
        all.machine.kernel_options = vec![("CONFIG_A".to_lowercase(), "y".into())];
        all.rdma.devices = vec![RdmaDevice::default(), device];
        all.rdma.idle_rdma_devices = vec![pci.clone()];
        all.gpus.devices = vec![pci];
        all.live.client_library = Some(Ok("/lib".into()));
        all.live.libraries = vec![("libibverbs.so.1".into(), None)];
        let ports = vec![PathMtu::default()];
        all.live.verbs.devices = vec![("mlx5_0".into(), Ok(ports)), ("mlx5_1".into(), Err("gone".into()))];
        all.live.features = vec![(Feature::SealedMemory, true), (Feature::WrittenPages, false)];
        let gpu = CudaDevice { closed: vec![("dma-buf".into(), "no".into())], ..CudaDevice::default() };
        all.live.driver = DriverProbe::Started { name: "CUDA".into(), devices: vec![gpu] };
        assert!(of(&json!(all)).len() > 5, "the form between releases is another one");
        let report = facts(&all);
        assert_eq!(of(&report), [""; 0], "{report:#}");
        assert_eq!(report["live"]["driver"]["devices"][0]["closed"][0]["path"], "dma-buf");
        assert_eq!(report["live"]["features"]["written_pages"], false);
        assert_eq!(report["live"]["features"]["sealed_memory"], true);
        assert_eq!(report["live"]["verbs"]["devices"][1]["error"], "gone");
        assert_eq!(report["rdma"]["devices"][1]["pci"]["redirecting"][0]["is_redirecting"], true);
        all.live.driver = DriverProbe::None { is_installed: true, why: "old".into() };
        assert_eq!(facts(&all)["live"]["driver"]["state"], "unusable");
        let way = ServerPath {
            round_trip: Some((20.0, 40.0)),
            not_used: vec![("verbs".into(), "no card".into())],
            ..ServerPath::default()
        };
        assert_eq!(of(&path(&way)), [""; 0]);
        assert_eq!(path(&way)["round_trip"]["median_seconds"], 40.0 / 1e6);
        let far = distances(&[("mlx5_0", "0000:01:00.0", Distance::System)]);
        assert_eq!(far[0]["distance"], "SYS");
    }
}
