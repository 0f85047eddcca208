//! Device status: memory, utilisation and sensors, polled from the monitor.
//!
//! The broker loads no management library: it asks its monitor's process, as a client would, and keeps the
//! answers for a moment, so that many who ask cost no more than one.

use std::io;
use std::time::{Duration, Instant};

use causeway_api::nvml::request::{ArgumentValue, Call, Outcome};
use causeway_api::nvml::status;
use causeway_connection::exchange::Exchange;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::status::DeviceStatus;
use causeway_wire::text::Printable;

use super::monitor::Monitor;
use crate::locks::{Mutex, rank};

/// For how long an answer counts.
const FRESH: Duration = Duration::from_millis(900);

/// How long the monitor may take to answer one question; the first one starts NVIDIA's library.
const DEVICE_QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nobody asks again after the monitor did not answer.
const QUERY_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The most devices that are asked about.
const MAX_DEVICES: u32 = 64;

/// Room for the texts of the management library.
const TEXT: u32 = 96;

/// Sensors of a device; none where it has no such sensor, as a software GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sensors {
    /// Temperature of the GPU in degrees Celsius.
    pub temperature: Option<u32>,
    /// Power that the device draws, in milliwatts.
    pub power: Option<u32>,
    /// Energy that it has used since its driver was loaded, in millijoules.
    pub energy: Option<u64>,
}

/// What is known of a device.
#[derive(Debug, Clone)]
pub struct MeasuredDevice {
    /// What clients may see.
    pub status: DeviceStatus,
    /// What its sensors measure.
    pub sensors: Sensors,
}

impl MeasuredDevice {
    /// Fraction of the time in which kernels ran.
    pub fn utilization_ratio(&self) -> Option<f64> {
        self.status.utilisation.map(|percent| f64::from(percent) / 100.0)
    }

    /// Power that it draws, in watts.
    pub fn watts(&self) -> Option<f64> {
        self.sensors.power.map(|milliwatts| f64::from(milliwatts) / 1e3)
    }

    /// Energy that it has used, in joules.
    pub fn joules(&self) -> Option<f64> {
        self.sensors.energy.map(|millijoules| millijoules as f64 / 1e3)
    }
}

/// What is known of the devices.
#[derive(Default)]
pub struct Gpus {
    state: Mutex<rank::DeviceStatus, State>,
}

#[derive(Default)]
struct State {
    exchange: Option<Exchange>,
    devices: Vec<MeasuredDevice>,
    /// When the monitor is asked again.
    until: Option<Instant>,
}

impl Gpus {
    /// How the devices are, without their sensors: see [`measured`](Self::measured).
    pub fn now(&self, monitor: &Monitor) -> Vec<DeviceStatus> {
        self.measured(monitor).into_iter().map(|device| device.status).collect()
    }

    /// How the devices are, as the monitor reports or has reported just now; none where it does not.
    pub fn measured(&self, monitor: &Monitor) -> Vec<MeasuredDevice> {
        let mut state = self.state.lock();
        if state.until.is_some_and(|until| Instant::now() < until) {
            return state.devices.clone();
        }
        let asked = state.exchange.take().map_or_else(|| monitor.connect(), Ok).and_then(|mut exchange| {
            let devices =
                query_all(&mut |function, arguments| query_monitor(&mut exchange, function, arguments))?;
            Ok((exchange, devices))
        });
        let pause = match asked {
            Ok((exchange, devices)) => {
                state.exchange = Some(exchange);
                state.devices = devices;
                FRESH
            }
            Err(error) => {
                tracing::debug!("the monitor does not report the state of the devices: {error}");
                state.devices.clear();
                QUERY_RETRY_DELAY
            }
        };
        state.until = Some(Instant::now() + pause);
        state.devices.clone()
    }
}

/// Queries the management library; nothing where it has no answer.
type Query<'a> = dyn FnMut(&str, Vec<ArgumentValue>) -> io::Result<Option<Outcome>> + 'a;

fn query_all(query: &mut Query<'_>) -> io::Result<Vec<MeasuredDevice>> {
    let count = query("nvmlDeviceGetCount_v2", vec![ArgumentValue::Buffer(4)])?;
    let count = count.as_ref().and_then(|outcome| number(outcome, 0, 0)).unwrap_or(0);
    let mut devices = Vec::new();
    for index in 0..count.min(MAX_DEVICES) {
        let arguments = vec![ArgumentValue::Number(index.into()), ArgumentValue::Buffer(8)];
        let handle = query("nvmlDeviceGetHandleByIndex_v2", arguments)?;
        if let Some(handle) = handle.and_then(|outcome| wide(&outcome, 1, 0)) {
            let device = ArgumentValue::Number(handle);
            devices.push(MeasuredDevice {
                status: query_status(query, index, &device)?,
                sensors: query_sensors(query, &device)?,
            });
        }
    }
    Ok(devices)
}

fn query_status(query: &mut Query<'_>, index: u32, device: &ArgumentValue) -> io::Result<DeviceStatus> {
    let mut text = |function: &str| -> io::Result<Printable> {
        let arguments = vec![device.clone(), ArgumentValue::Buffer(TEXT), ArgumentValue::Number(TEXT.into())];
        let outcome = query(function, arguments)?;
        let bytes = outcome.as_ref().and_then(|outcome| written(outcome, 1)).unwrap_or_default();
        Ok(Printable::from_bytes(bytes.split(|byte| *byte == 0).next().unwrap_or_default()))
    };
    let (name, uuid) = (text("nvmlDeviceGetName")?, text("nvmlDeviceGetUUID")?);
    // Total, free and used bytes.
    let memory = query("nvmlDeviceGetMemoryInfo", vec![device.clone(), ArgumentValue::Buffer(24)])?;
    let bytes = |index: usize| memory.as_ref().and_then(|outcome| wide(outcome, 1, index)).unwrap_or(0);
    // Percent of the time in which kernels ran, and in which memory was used.
    let rates = query("nvmlDeviceGetUtilizationRates", vec![device.clone(), ArgumentValue::Buffer(8)])?;
    let utilisation = rates.and_then(|outcome| number(&outcome, 1, 0));
    Ok(DeviceStatus {
        index,
        name,
        uuid,
        memory_total: bytes(0),
        memory_used: bytes(2),
        utilisation: utilisation.filter(|percent| *percent <= 100),
    })
}

fn query_sensors(query: &mut Query<'_>, device: &ArgumentValue) -> io::Result<Sensors> {
    /// `NVML_TEMPERATURE_GPU`.
    const OF_GPU: u64 = 0;
    let arguments = vec![device.clone(), ArgumentValue::Number(OF_GPU), ArgumentValue::Buffer(4)];
    let temperature = query("nvmlDeviceGetTemperature", arguments)?;
    let power = query("nvmlDeviceGetPowerUsage", vec![device.clone(), ArgumentValue::Buffer(4)])?;
    let energy =
        query("nvmlDeviceGetTotalEnergyConsumption", vec![device.clone(), ArgumentValue::Buffer(8)])?;
    Ok(Sensors {
        temperature: temperature.and_then(|outcome| number(&outcome, 2, 0)),
        power: power.and_then(|outcome| number(&outcome, 1, 0)),
        energy: energy.and_then(|outcome| wide(&outcome, 1, 0)),
    })
}

/// Asks one question; nothing where the library does not answer it.
fn query_monitor(
    exchange: &mut Exchange,
    function: &str,
    arguments: Vec<ArgumentValue>,
) -> io::Result<Option<Outcome>> {
    let call = Call { function: function.to_owned(), arguments };
    let response =
        exchange.request(DEVICE_QUERY_TIMEOUT, |out| call.encode(out)).map_err(io::Error::other)?;
    let response = response.ok_or_else(|| io::Error::other("it has ended"))?;
    let outcome: Outcome = Decoder::new(&response).value().map_err(io::Error::other)?;
    Ok((outcome.status == status::SUCCESS).then_some(outcome))
}

fn written(outcome: &Outcome, argument: u32) -> Option<&[u8]> {
    outcome.written.iter().find(|written| written.argument == argument).map(|written| &*written.bytes)
}

/// The 32-bit number at `index` of what was written.
fn number(outcome: &Outcome, argument: u32, index: usize) -> Option<u32> {
    let bytes = written(outcome, argument)?.get(index * 4..index * 4 + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The 64-bit number at `index` of what was written.
fn wide(outcome: &Outcome, argument: u32, index: usize) -> Option<u64> {
    let bytes = written(outcome, argument)?.get(index * 8..index * 8 + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use causeway_api::nvml::request::Written;

    use super::*;

    /// A library with two devices, of which the second one has no sensors.
    fn answer(function: &str, arguments: &[ArgumentValue]) -> Option<Outcome> {
        let wrote = |argument: u32, bytes: &[u8]| {
            let written = vec![Written { argument, bytes: bytes.to_vec() }];
            Some(Outcome { status: status::SUCCESS, written })
        };
        let numbers = |argument: u32, numbers: &[u64]| {
            wrote(argument, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
        };
        let ArgumentValue::Number(first) = arguments[0] else {
            assert_eq!(function, "nvmlDeviceGetCount_v2");
            return wrote(0, &2_u32.to_le_bytes());
        };
        match (function, first) {
            ("nvmlDeviceGetHandleByIndex_v2", index) => numbers(1, &[index + 100]),
            ("nvmlDeviceGetName", _) => wrote(1, b"A GPU\0and more"),
            ("nvmlDeviceGetUUID", _) => wrote(1, format!("GPU-{first}").as_bytes()),
            ("nvmlDeviceGetMemoryInfo", _) => numbers(1, &[80, 50, 30]),
            ("nvmlDeviceGetUtilizationRates", 100) => wrote(1, &[101, 0, 0, 0, 1, 0, 0, 0]),
            ("nvmlDeviceGetUtilizationRates", _) => wrote(1, &[7, 0, 0, 0, 1, 0, 0, 0]),
            ("nvmlDeviceGetTemperature", 100) => {
                assert!(matches!(arguments[1], ArgumentValue::Number(0)), "the sensor of the GPU");
                wrote(2, &41_u32.to_le_bytes())
            }
            ("nvmlDeviceGetPowerUsage", 100) => wrote(1, &123_456_u32.to_le_bytes()),
            ("nvmlDeviceGetTotalEnergyConsumption", 100) => numbers(1, &[1 << 40]),
            _ => None,
        }
    }

    #[test]
    fn devices_are_described_as_far_as_the_library_answers() {
        let devices = query_all(&mut |function, arguments| Ok(answer(function, &arguments))).unwrap();
        let [first, second] = <[MeasuredDevice; 2]>::try_from(devices).unwrap();
        assert_eq!((&*first.status.name, &*first.status.uuid), ("A GPU", "GPU-100"));
        assert_eq!((first.status.memory_total, first.status.memory_used), (80, 30));
        assert_eq!((first.status.utilisation, second.status.utilisation), (None, Some(7)));
        let sensors = Sensors { temperature: Some(41), power: Some(123_456), energy: Some(1 << 40) };
        assert_eq!((first.sensors, second.sensors), (sensors, Sensors::default()));
        assert_eq!((first.status.index, second.status.index), (0, 1));
    }

    #[test]
    fn a_monitor_that_has_gone_is_an_error() {
        let gone = query_all(&mut |function, arguments| match answer(function, &arguments) {
            Some(_) if function == "nvmlDeviceGetPowerUsage" => Err(io::Error::other("it has ended")),
            answered => Ok(answered),
        });
        assert!(gone.is_err());
    }
}
