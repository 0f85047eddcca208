//! Visible devices of a monitoring session, where the server exposes only some of its machine's.
//!
//! Those that CUDA shows, in the same order and with the same indices: programs count devices here and then
//! open them there. NVIDIA's library itself knows nothing of `CUDA_VISIBLE_DEVICES`.

use std::sync::Arc;

use causeway_api::nvml::request::ArgumentValue;
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::{self, DeviceNumber, Function, Mode};
use causeway_api::visible::{DuplicateDevice, choose};

use super::{Monitor, OwnProcess};
use crate::monitor::Frame;

/// Room for a UUID and its NUL.
const UUID_BYTES: u32 = 96;

/// A monitor of which some devices are shown. The number of a device is its place among those; an instance of
/// MIG keeps the number that the monitor has given it, which is none of a whole device's.
pub struct VisibleDevices {
    monitor: Arc<dyn Monitor>,
    /// The numbers that the devices have at the monitor.
    devices: Vec<DeviceNumber>,
    /// How many whole devices the monitor has.
    all: DeviceNumber,
}

impl VisibleDevices {
    /// Shows the devices that a list in the form of `CUDA_VISIBLE_DEVICES` means.
    ///
    /// # Errors
    /// A device is named twice.
    pub fn new(monitor: Arc<dyn Monitor>, list: &str) -> Result<Self, DuplicateDevice> {
        let all = count(&*monitor);
        let uuids: Vec<String> = (0..all).map(|number| uuid(&*monitor, number)).collect();
        let devices =
            choose(list, &uuids)?.into_iter().map(|argument_index| argument_index as DeviceNumber).collect();
        Ok(Self { monitor, devices, all })
    }

    /// The monitor's number of what a client means.
    fn inside(&self, number: DeviceNumber) -> Option<DeviceNumber> {
        if number < self.all {
            return self.devices.get(usize::try_from(number).ok()?).copied();
        }
        self.is_visible_instance(number).then_some(number)
    }

    /// What is sent to a client about the monitor's number.
    fn outside(&self, number: DeviceNumber) -> Option<DeviceNumber> {
        if number < self.all {
            let argument_index = self.devices.iter().position(|shown| *shown == number)?;
            return Some(argument_index as DeviceNumber);
        }
        self.is_visible_instance(number).then_some(number)
    }

    /// Whether it is an instance of a device that is shown.
    fn is_visible_instance(&self, number: DeviceNumber) -> bool {
        let arguments = [ArgumentValue::Number(number), ArgumentValue::Buffer(8)];
        let parent = ask(&*self.monitor, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &arguments, 1)
            .and_then(|bytes| Some(DeviceNumber::from_le_bytes(*bytes.first_chunk()?)));
        parent.is_some_and(|parent| self.devices.contains(&parent))
    }

    /// Leaves those of a list that are shown.
    fn filter(&self, frame: &mut Frame, argument_index: usize) -> Status {
        let filled = frame.filled(argument_index);
        let Some(list) = frame.memory(argument_index).and_then(|memory| memory.get(..filled)) else {
            return status::SUCCESS;
        };
        let (numbers, _) = list.as_chunks::<8>();
        let shown: Vec<DeviceNumber> =
            numbers.iter().filter_map(|number| self.outside(DeviceNumber::from_le_bytes(*number))).collect();
        let bytes: Vec<u8> = shown.iter().flat_map(|number| number.to_le_bytes()).collect();
        frame.put_list(argument_index, &bytes)
    }
}

impl Monitor for VisibleDevices {
    fn carry_out(&self, function: &'static Function, frame: &mut Frame, own: &[OwnProcess]) -> Status {
        match function.name {
            "nvmlDeviceGetCount" | "nvmlDeviceGetCount_v2" => {
                return frame.put("device_count", &(self.devices.len() as u32).to_le_bytes());
            }
            "nvmlDeviceGetHandleByIndex" | "nvmlDeviceGetHandleByIndex_v2" => {
                let number = frame.number(0);
                let is_visible = number < self.devices.len() as u64;
                return match is_visible {
                    true => frame.put("device", &number.to_le_bytes()),
                    false => status::INVALID_ARGUMENT,
                };
            }
            _ => {}
        }
        let mut meant = None;
        for (argument_index, argument) in function.arguments.iter().enumerate() {
            if argument.mode != Mode::Device {
                continue;
            }
            let number = frame.number(argument_index);
            meant.get_or_insert(number);
            match self.inside(number) {
                Some(inside) => frame.set_number(argument_index, inside),
                None => return status::INVALID_ARGUMENT,
            }
        }
        let status = self.monitor.carry_out(function, frame, own);
        if status != status::SUCCESS {
            return status;
        }
        if let ("nvmlDeviceGetIndex", Some(number)) = (function.name, meant)
            && number < self.all
        {
            return frame.put("index", &(number as u32).to_le_bytes());
        }
        for (argument_index, argument) in function.arguments.iter().enumerate() {
            match argument.mode {
                Mode::OutDevice => {
                    let Some(number) = frame.memory(argument_index).and_then(|memory| memory.first_chunk())
                    else {
                        continue;
                    };
                    let Some(outside) = self.outside(DeviceNumber::from_le_bytes(*number)) else {
                        return status::NOT_FOUND;
                    };
                    frame.put(argument.name, &outside.to_le_bytes());
                }
                Mode::Devices(_) => match self.filter(frame, argument_index) {
                    status::SUCCESS => {}
                    error => return error,
                },
                _ => {}
            }
        }
        status::SUCCESS
    }
}

/// How many whole devices there are.
fn count(monitor: &dyn Monitor) -> DeviceNumber {
    let count = ask(monitor, "nvmlDeviceGetCount_v2", &[ArgumentValue::Buffer(4)], 0);
    count.and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?))).unwrap_or(0).into()
}

/// The UUID of a device; empty where it does not tell.
fn uuid(monitor: &dyn Monitor, number: DeviceNumber) -> String {
    let arguments = [
        ArgumentValue::Number(number),
        ArgumentValue::Buffer(UUID_BYTES),
        ArgumentValue::Number(UUID_BYTES.into()),
    ];
    let bytes = ask(monitor, "nvmlDeviceGetUUID", &arguments, 1).unwrap_or_default();
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// What a call writes to an argument; nothing where it fails.
fn ask(monitor: &dyn Monitor, name: &str, arguments: &[ArgumentValue], written: usize) -> Option<Vec<u8>> {
    let function = nvml::find(name)?;
    let mut frame = Frame::new(function, arguments);
    let status = monitor.carry_out(function, &mut frame, &[]);
    if status != status::SUCCESS {
        return None;
    }
    frame.memory(written).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::answer;
    use causeway_api::nvml::request::Call;

    /// Four devices, and an instance of the second and of the fourth, 4 and 5.
    struct Machine;

    const UUIDS: [&str; 4] = ["GPU-00", "GPU-11", "GPU-22", "GPU-33"];

    impl Monitor for Machine {
        fn carry_out(&self, function: &'static Function, frame: &mut Frame, _: &[OwnProcess]) -> Status {
            let number = frame.number(0);
            match function.name {
                "nvmlDeviceGetCount_v2" => frame.put("device_count", &4_u32.to_le_bytes()),
                "nvmlDeviceGetUUID" => match UUIDS.get(number as usize) {
                    Some(uuid) => frame.put_text("uuid", uuid),
                    None => status::INVALID_ARGUMENT,
                },
                "nvmlDeviceGetIndex" => frame.put("index", &(number as u32).to_le_bytes()),
                "nvmlDeviceGetHandleByUUID" => {
                    let wanted = frame.memory(0).unwrap_or_default().split_last().unwrap().1.to_vec();
                    let found = UUIDS.iter().position(|uuid| uuid.as_bytes() == wanted);
                    let found =
                        found.or((wanted == b"MIG-4").then_some(4)).or((wanted == b"MIG-5").then_some(5));
                    match found {
                        Some(number) => frame.put("device", &(number as u64).to_le_bytes()),
                        None => status::NOT_FOUND,
                    }
                }
                "nvmlDeviceGetDeviceHandleFromMigDeviceHandle" => match number {
                    4 => frame.put("device", &1_u64.to_le_bytes()),
                    5 => frame.put("device", &3_u64.to_le_bytes()),
                    _ => status::INVALID_ARGUMENT,
                },
                "nvmlSystemGetTopologyGpuSet" => {
                    let all: Vec<u8> = (0..4_u64).flat_map(u64::to_le_bytes).collect();
                    frame.put_list(function.position("device_array"), &all)
                }
                _ => status::NOT_SUPPORTED,
            }
        }
    }

    fn ask_shown(list: &str, name: &str, arguments: Vec<ArgumentValue>) -> (Status, Vec<Vec<u8>>) {
        let shown = VisibleDevices::new(Arc::new(Machine), list).unwrap();
        let outcome = answer(&shown, &Call { function: name.into(), arguments }, &[]);
        (outcome.status, outcome.written.into_iter().map(|written| written.bytes).collect())
    }

    fn text(text: &str) -> ArgumentValue {
        ArgumentValue::Bytes([text.as_bytes(), &[0]].concat())
    }

    #[test]
    fn devices_have_the_order_and_the_indices_of_the_list() {
        let count =
            |list| ask_shown(list, "nvmlDeviceGetCount_v2", vec![ArgumentValue::Buffer(4)]).1[0].clone();
        for (list, devices) in [("2,0", 2_u32), ("GPU-33", 1), ("", 0), ("0,1,2,3", 4)] {
            assert_eq!(count(list), devices.to_le_bytes(), "{list}");
        }
        let by_index = |index| {
            ask_shown(
                "2,0",
                "nvmlDeviceGetHandleByIndex_v2",
                vec![ArgumentValue::Number(index), ArgumentValue::Buffer(8)],
            )
        };
        assert_eq!(by_index(1), (status::SUCCESS, vec![1_u64.to_le_bytes().to_vec()]));
        assert_eq!(by_index(2).0, status::INVALID_ARGUMENT);
        let uuid = |number| {
            let arguments =
                vec![ArgumentValue::Number(number), ArgumentValue::Buffer(96), ArgumentValue::Number(96)];
            let (status, written) = ask_shown("2,0", "nvmlDeviceGetUUID", arguments);
            (status == status::SUCCESS).then(|| String::from_utf8_lossy(&written[0][..6]).into_owned())
        };
        assert_eq!([uuid(0), uuid(1), uuid(2)], [Some(UUIDS[2].into()), Some(UUIDS[0].into()), None]);
        let index =
            ask_shown("2,0", "nvmlDeviceGetIndex", vec![ArgumentValue::Number(1), ArgumentValue::Buffer(4)]);
        assert_eq!(index.1, [1_u32.to_le_bytes()]);
    }

    #[test]
    fn what_is_not_shown_is_not_found_either() {
        let by_uuid = |uuid: &str| {
            ask_shown("2,1", "nvmlDeviceGetHandleByUUID", vec![text(uuid), ArgumentValue::Buffer(8)])
        };
        let found = |number: u64| (status::SUCCESS, vec![number.to_le_bytes().to_vec()]);
        assert_eq!((by_uuid("GPU-11"), by_uuid("GPU-22")), (found(1), found(0)));
        assert_eq!(by_uuid("GPU-00").0, status::NOT_FOUND);
        // Instances go with their devices.
        assert_eq!((by_uuid("MIG-4"), by_uuid("MIG-5").0), (found(4), status::NOT_FOUND));
        let parent = |number| {
            let arguments = vec![ArgumentValue::Number(number), ArgumentValue::Buffer(8)];
            ask_shown("2,1", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", arguments)
        };
        assert_eq!((parent(4), parent(5).0), (found(1), status::INVALID_ARGUMENT));
        let four = ArgumentValue::Bytes(4_u32.to_le_bytes().to_vec());
        let arguments = vec![ArgumentValue::Number(0), four, ArgumentValue::Buffer(32)];
        let (status, written) = ask_shown("2,1", "nvmlSystemGetTopologyGpuSet", arguments);
        let numbers: Vec<u8> = [1_u64, 0].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(
            (status, &written[0][..], &written[1]),
            (status::SUCCESS, &2_u32.to_le_bytes()[..], &numbers)
        );
    }
}
