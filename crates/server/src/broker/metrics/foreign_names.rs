//! Devices under the names of OpenTelemetry and of NVIDIA's DCGM exporter, for dashboards that are made for these.
//!
//! On paths of their own, so that `/metrics` has one name for each thing. OpenTelemetry's names are
//! those of its conventions for hardware, as its exporter for Prometheus writes them: `hw.gpu.memory.limit` in bytes is
//! `hw_gpu_memory_limit_bytes`. What a device has no sensor for has no sample.

use causeway_wire::status::DeviceStatus;

use super::text::Page;
use crate::broker::gpus::MeasuredDevice;

/// Where the names of OpenTelemetry are.
pub const OTEL: &str = "/metrics/otel";
/// Where the names of DCGM are.
pub const DCGM: &str = "/metrics/dcgm";

/// Name and text of a family, and its value of a device; none where it is not known. One whose name ends in `_total`, or
/// in `_CONSUMPTION` as DCGM has it, only grows.
type Family = (&'static str, &'static str, fn(&MeasuredDevice) -> Option<f64>);

fn used(device: &MeasuredDevice) -> f64 {
    device.status.memory_used as f64
}

fn total(device: &MeasuredDevice) -> f64 {
    device.status.memory_total as f64
}

/// Memory in the unit of DCGM, which has no fractions.
fn mebibytes(bytes: u64) -> Option<f64> {
    Some((bytes >> 20) as f64)
}

const OF_OTEL: [Family; 7] = [
    ("hw_gpu_memory_limit_bytes", "Size of the GPU memory.", |device| Some(total(device))),
    ("hw_gpu_memory_usage_bytes", "GPU memory used.", |device| Some(used(device))),
    ("hw_gpu_memory_utilization_ratio", "Fraction of GPU memory used.", |device| {
        (device.status.memory_total > 0).then(|| used(device) / total(device))
    }),
    ("hw_gpu_utilization_ratio", "Fraction of time in which kernels ran.", MeasuredDevice::utilization_ratio),
    ("hw_temperature_celsius", "Temperature of the GPU.", |device| device.sensors.temperature.map(f64::from)),
    ("hw_power_watts", "Power that the GPU draws.", MeasuredDevice::watts),
    ("hw_energy_joules_total", "Energy that the GPU has used.", MeasuredDevice::joules),
];

const OF_DCGM: [Family; 7] = [
    ("DCGM_FI_DEV_FB_TOTAL", "Memory of the GPU (in MiB).", |device| mebibytes(device.status.memory_total)),
    ("DCGM_FI_DEV_FB_USED", "Memory of the GPU that is used (in MiB).", |device| {
        mebibytes(device.status.memory_used)
    }),
    ("DCGM_FI_DEV_FB_FREE", "Memory of the GPU that is free (in MiB).", |device| {
        mebibytes(device.status.memory_total.saturating_sub(device.status.memory_used))
    }),
    ("DCGM_FI_DEV_GPU_UTIL", "Time in which kernels ran (in %).", |device| {
        device.status.utilisation.map(f64::from)
    }),
    ("DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU (in C).", |device| {
        device.sensors.temperature.map(f64::from)
    }),
    ("DCGM_FI_DEV_POWER_USAGE", "Power that the GPU draws (in W).", MeasuredDevice::watts),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy that the GPU has used (in mJ).", |device| {
        device.sensors.energy.map(|millijoules| millijoules as f64)
    }),
];

/// The devices by the names of OpenTelemetry.
pub fn otel(devices: &[MeasuredDevice]) -> Page {
    page(&OF_OTEL, devices, |device, uuid, index, sample| {
        sample(&[("hw_type", "gpu"), ("hw_id", uuid), ("hw_name", index), ("hw_model", &device.name)]);
    })
}

/// The devices by the names of DCGM, with the labels of its exporter.
pub fn dcgm(devices: &[MeasuredDevice], host: &str) -> Page {
    page(&OF_DCGM, devices, |device, uuid, index, sample| {
        sample(&[("gpu", index), ("UUID", uuid), ("modelName", &device.name), ("Hostname", host)]);
    })
}

/// A page of these families; `label` hands over the labels of a device, whose UUID and index it gets as texts.
fn page(
    families: &[Family],
    devices: &[MeasuredDevice],
    label: impl Fn(&DeviceStatus, &str, &str, &mut dyn FnMut(&[(&str, &str)])),
) -> Page {
    let mut page = Page::default();
    for (name, text, value) in families {
        let is_counter = name.ends_with("_total") || name.ends_with("_CONSUMPTION");
        let mut family = if is_counter { page.counter(name, text) } else { page.gauge(name, text) };
        for device in devices {
            let status = &device.status;
            let (uuid, index) = (status.uuid.to_string(), status.index.to_string());
            if let Some(value) = value(device) {
                label(status, &uuid, &index, &mut |labels| {
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
    use crate::broker::gpus::Sensors;

    fn device(utilisation: Option<u32>, sensors: Sensors) -> MeasuredDevice {
        let status = DeviceStatus {
            index: 3,
            name: "A \"GPU\"".into(),
            uuid: "GPU-1".into(),
            memory_total: 10 << 20,
            memory_used: (4 << 20) - 1,
            utilisation,
        };
        MeasuredDevice { status, sensors }
    }

    const SENSORS: Sensors = Sensors { temperature: Some(41), power: Some(123_456), energy: Some(7_890_123) };

    fn samples(page: Page) -> Vec<String> {
        page.finish().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn values_have_the_units_of_the_names() {
        let labels = r#"{hw_type="gpu",hw_id="GPU-1",hw_name="3",hw_model="A \"GPU\""}"#;
        assert_eq!(
            samples(otel(&[device(Some(25), SENSORS)])),
            [
                format!("hw_gpu_memory_limit_bytes{labels} 10485760"),
                format!("hw_gpu_memory_usage_bytes{labels} 4194303"),
                format!("hw_gpu_memory_utilization_ratio{labels} 0.39999990463256835"),
                format!("hw_gpu_utilization_ratio{labels} 0.25"),
                format!("hw_temperature_celsius{labels} 41"),
                format!("hw_power_watts{labels} 123.456"),
                format!("hw_energy_joules_total{labels} 7890.123"),
            ]
        );
        let labels = r#"{gpu="3",UUID="GPU-1",modelName="A \"GPU\"",Hostname="box"}"#;
        assert_eq!(
            samples(dcgm(&[device(Some(25), SENSORS)], "box")),
            [
                format!("DCGM_FI_DEV_FB_TOTAL{labels} 10"),
                format!("DCGM_FI_DEV_FB_USED{labels} 3"),
                format!("DCGM_FI_DEV_FB_FREE{labels} 6"),
                format!("DCGM_FI_DEV_GPU_UTIL{labels} 25"),
                format!("DCGM_FI_DEV_GPU_TEMP{labels} 41"),
                format!("DCGM_FI_DEV_POWER_USAGE{labels} 123.456"),
                format!("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} 7890123"),
            ]
        );
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let mut unknown = device(None, Sensors::default());
        (unknown.status.memory_total, unknown.status.memory_used) = (0, 0);
        let unknown = [unknown];
        let is_of = |line: &String, parts: &[&str]| parts.iter().any(|part| line.contains(part));
        let of_sensors = ["utilization", "temperature", "power", "energy"];
        assert!(!samples(otel(&unknown)).iter().any(|line| is_of(line, &of_sensors)));
        assert!(
            !samples(dcgm(&unknown, "box"))
                .iter()
                .any(|line| is_of(line, &["UTIL", "TEMP", "POWER", "ENERGY"]))
        );
        let page = otel(&unknown).finish();
        assert!(
            page.contains("# TYPE hw_energy_joules_total counter")
                && page.contains("# TYPE hw_power_watts gauge")
        );
    }
}
