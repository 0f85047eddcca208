//! Device status: memory, utilisation and errors, polled from the monitor.
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

/// What is known of the devices.
#[derive(Default)]
pub struct Gpus {
    state: Mutex<rank::DeviceStatus, State>,
}

#[derive(Default)]
struct State {
    exchange: Option<Exchange>,
    devices: Vec<DeviceStatus>,
    /// When the monitor is asked again.
    until: Option<Instant>,
}

impl Gpus {
    /// How the devices are, as the monitor tells or has told just now; none where it does not.
    pub fn now(&self, monitor: &Monitor) -> Vec<DeviceStatus> {
        let mut state = self.state.lock();
        if state.until.is_some_and(|until| Instant::now() < until) {
            return state.devices.clone();
        }
        let asked = state.exchange.take().map_or_else(|| monitor.connect(), Ok).and_then(|mut exchange| {
            let devices = query_all(&mut exchange)?;
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

fn query_all(exchange: &mut Exchange) -> io::Result<Vec<DeviceStatus>> {
    let count = query(exchange, "nvmlDeviceGetCount_v2", vec![ArgumentValue::Buffer(4)])?;
    let count = count.as_ref().and_then(|outcome| number(outcome, 0, 0)).unwrap_or(0) as u32;
    let mut devices = Vec::new();
    for index in 0..count.min(MAX_DEVICES) {
        let handle = query(
            exchange,
            "nvmlDeviceGetHandleByIndex_v2",
            vec![ArgumentValue::Number(index.into()), ArgumentValue::Buffer(8)],
        )?;
        let Some(device) = handle
            .and_then(|outcome| Some(u64::from_le_bytes(written(&outcome, 1)?.get(..8)?.try_into().ok()?)))
        else {
            continue;
        };
        let device = ArgumentValue::Number(device);
        let mut text = |function: &str| -> io::Result<Printable> {
            let arguments =
                vec![device.clone(), ArgumentValue::Buffer(TEXT), ArgumentValue::Number(TEXT.into())];
            let outcome = query(exchange, function, arguments)?;
            let bytes = outcome.as_ref().and_then(|outcome| written(outcome, 1)).unwrap_or_default();
            Ok(Printable::from_bytes(bytes.split(|byte| *byte == 0).next().unwrap_or_default()))
        };
        let (name, uuid) = (text("nvmlDeviceGetName")?, text("nvmlDeviceGetUUID")?);
        // Total, free and used bytes.
        let memory =
            query(exchange, "nvmlDeviceGetMemoryInfo", vec![device.clone(), ArgumentValue::Buffer(24)])?;
        let bytes = |index: usize| memory.as_ref().and_then(|outcome| wide(outcome, 1, index)).unwrap_or(0);
        // Percent of the time in which kernels ran, and in which memory was used.
        let rates = query(exchange, "nvmlDeviceGetUtilizationRates", vec![device, ArgumentValue::Buffer(8)])?;
        let utilisation = rates.and_then(|outcome| number(&outcome, 1, 0)).map(|percent| percent as u32);
        devices.push(DeviceStatus {
            index,
            name,
            uuid,
            memory_total: bytes(0),
            memory_used: bytes(2),
            utilisation: utilisation.filter(|percent| *percent <= 100),
        });
    }
    Ok(devices)
}

/// Asks one question; nothing where the library does not answer it.
fn query(
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

/// The word at `place` of what was written.
fn number(outcome: &Outcome, argument: u32, index: usize) -> Option<u64> {
    let bytes = written(outcome, argument)?.get(index * 4..index * 4 + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?).into())
}

/// The double word at `place` of what was written.
fn wide(outcome: &Outcome, argument: u32, index: usize) -> Option<u64> {
    let bytes = written(outcome, argument)?.get(index * 8..index * 8 + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
