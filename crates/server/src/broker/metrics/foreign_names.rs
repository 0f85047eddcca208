//! Devices under the names of OpenTelemetry and of NVIDIA's DCGM exporter, for dashboards that are made for these.
//!
//! On paths of their own, so that `/metrics` has one name for each thing. OpenTelemetry's names are
//! those of its conventions for hardware, as its exporter for Prometheus writes them: `hw.gpu.memory.limit` in bytes is
//! `hw_gpu_memory_limit_bytes`. What the monitor does not know, such as temperatures, is left out.

use causeway_wire::status::DeviceStatus;

use super::text::Page;

/// Where the names of OpenTelemetry are.
pub const OTEL: &str = "/metrics/otel";
/// Where the names of DCGM are.
pub const DCGM: &str = "/metrics/dcgm";

/// Name and text of a family, and its value of a device; none where it is not known.
type Family = (&'static str, &'static str, fn(&DeviceStatus) -> Option<f64>);

fn used(device: &DeviceStatus) -> f64 {
    device.memory_used as f64
}

fn total(device: &DeviceStatus) -> f64 {
    device.memory_total as f64
}

/// Memory in the unit of DCGM, which has no fractions.
fn mebibytes(bytes: u64) -> Option<f64> {
    Some((bytes >> 20) as f64)
}

const OF_OTEL: [Family; 4] = [
    ("hw_gpu_memory_limit_bytes", "Size of the GPU memory.", |device| Some(total(device))),
    ("hw_gpu_memory_usage_bytes", "GPU memory used.", |device| Some(used(device))),
    ("hw_gpu_memory_utilization_ratio", "Fraction of GPU memory used.", |device| {
        (device.memory_total > 0).then(|| used(device) / total(device))
    }),
    ("hw_gpu_utilization_ratio", "Fraction of time in which kernels ran.", |device| {
        device.utilisation.map(|percent| f64::from(percent) / 100.0)
    }),
];

const OF_DCGM: [Family; 4] = [
    ("DCGM_FI_DEV_FB_TOTAL", "Memory of the GPU (in MiB).", |device| mebibytes(device.memory_total)),
    ("DCGM_FI_DEV_FB_USED", "Memory of the GPU that is used (in MiB).", |device| {
        mebibytes(device.memory_used)
    }),
    ("DCGM_FI_DEV_FB_FREE", "Memory of the GPU that is free (in MiB).", |device| {
        mebibytes(device.memory_total.saturating_sub(device.memory_used))
    }),
    ("DCGM_FI_DEV_GPU_UTIL", "Time in which kernels ran (in %).", |device| device.utilisation.map(f64::from)),
];

/// The devices by the names of OpenTelemetry.
pub fn otel(devices: &[DeviceStatus]) -> Page {
    page(&OF_OTEL, devices, |device, uuid, index, sample| {
        sample(&[("hw_type", "gpu"), ("hw_id", uuid), ("hw_name", index), ("hw_model", &device.name)]);
    })
}

/// The devices by the names of DCGM, with the labels of its exporter.
pub fn dcgm(devices: &[DeviceStatus], host: &str) -> Page {
    page(&OF_DCGM, devices, |device, uuid, index, sample| {
        sample(&[("gpu", index), ("UUID", uuid), ("modelName", &device.name), ("Hostname", host)]);
    })
}

/// A page of these families; `label` hands over the labels of a device, whose UUID and index it gets as texts.
fn page(
    families: &[Family],
    devices: &[DeviceStatus],
    label: impl Fn(&DeviceStatus, &str, &str, &mut dyn FnMut(&[(&str, &str)])),
) -> Page {
    let mut page = Page::default();
    for (name, text, value) in families {
        let mut family = page.gauge(name, text);
        for device in devices {
            let (uuid, index) = (device.uuid.to_string(), device.index.to_string());
            if let Some(value) = value(device) {
                label(device, &uuid, &index, &mut |labels| {
                    family.sample(labels, value);
                });
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(utilisation: Option<u32>) -> DeviceStatus {
        DeviceStatus {
            index: 3,
            name: "A \"GPU\"".into(),
            uuid: "GPU-1".into(),
            memory_total: 10 << 20,
            memory_used: (4 << 20) - 1,
            utilisation,
        }
    }

    fn samples(page: Page) -> Vec<String> {
        page.finish().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn values_have_the_units_of_the_names() {
        let labels = r#"{hw_type="gpu",hw_id="GPU-1",hw_name="3",hw_model="A \"GPU\""}"#;
        assert_eq!(
            samples(otel(&[device(Some(25))])),
            [
                format!("hw_gpu_memory_limit_bytes{labels} 10485760"),
                format!("hw_gpu_memory_usage_bytes{labels} 4194303"),
                format!("hw_gpu_memory_utilization_ratio{labels} 0.39999990463256835"),
                format!("hw_gpu_utilization_ratio{labels} 0.25"),
            ]
        );
        let labels = r#"{gpu="3",UUID="GPU-1",modelName="A \"GPU\"",Hostname="box"}"#;
        assert_eq!(
            samples(dcgm(&[device(Some(25))], "box")),
            [
                format!("DCGM_FI_DEV_FB_TOTAL{labels} 10"),
                format!("DCGM_FI_DEV_FB_USED{labels} 3"),
                format!("DCGM_FI_DEV_FB_FREE{labels} 6"),
                format!("DCGM_FI_DEV_GPU_UTIL{labels} 25"),
            ]
        );
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let unknown = [DeviceStatus { memory_total: 0, memory_used: 0, ..device(None) }];
        assert!(!samples(otel(&unknown)).iter().any(|line| line.contains("utilization")));
        assert!(!samples(dcgm(&unknown, "box")).iter().any(|line| line.contains("UTIL")));
    }
}
