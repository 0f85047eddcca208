//! What the software GPU knows of itself: it has memory, processes and a compute capability, and no sensors.

use crate::{Options, SoftwareGpu};
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::{DeviceNumber, Function, Mode};
use causeway_api::snapshot::Device;
use causeway_api::sys::CUdevice_attribute as Attribute;
use causeway_config::ValueError;
use causeway_gpu::monitor::{Frame, Monitor, OwnProcess};

/// The newest API of `nvml.h` of which it knows the calls.
const API_VERSION: &str = "13.0";
/// `NVML_DEVICE_ARCH_UNKNOWN`.
const UNKNOWN_ARCHITECTURE: u32 = u32::MAX;
/// `NVML_BRAND_UNKNOWN`.
const UNKNOWN_BRAND: u32 = 0;
/// What stands in for the numbers of MIG instances where there are none.
const NO_INSTANCE: u32 = u32::MAX;
/// `NVML_TOPOLOGY_INTERNAL`: two devices are on one board, here because they are the same.
const SAME_BOARD: u32 = 0;
/// Where `nvmlFieldValue_t` has the outcome of its one field, and how large it is.
const FIELD_STATUS: usize = 28;
const FIELD_SIZE: usize = 40;

/// The software GPU as monitoring programs see it: all of its devices, whichever a program can use.
pub struct Software {
    devices: Vec<Device>,
    driver_version: i32,
}

impl Software {
    /// As workers of this environment make it.
    ///
    /// # Errors
    /// When the environment makes no sense.
    pub fn new() -> Result<Self, ValueError> {
        let snapshot = SoftwareGpu::describe(&Options::from_environment()?);
        Ok(Self { devices: snapshot.devices, driver_version: snapshot.driver_version })
    }

    /// Bytes of memory in use. The device's memory is that of the workers, who get theirs from the system as
    /// it is first written, so this is what they hold; the client sees that of its own.
    fn used(own: &[OwnProcess], max: u64) -> u64 {
        own.iter().map(|process| resident(process.worker)).sum::<u64>().min(max)
    }

    fn handle(&self, frame: &mut Frame, is_meant: impl Fn(&Device) -> bool) -> Status {
        match self.devices.iter().position(is_meant) {
            Some(number) => frame.put("device", &(number as DeviceNumber).to_le_bytes()),
            None => status::NOT_FOUND,
        }
    }

    fn pci_info(device: &Device, frame: &mut Frame) -> Status {
        let (domain, bus, device, function) = parse_pci(&device.pci_bus_id).unwrap_or_default();
        let text = format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}");
        let mut info = [0; 68];
        info[..12].copy_from_slice(&text.as_bytes()[4..]);
        for (word, value) in info[16..28].chunks_exact_mut(4).zip([domain, bus, device]) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        info[36..36 + text.len()].copy_from_slice(text.as_bytes());
        frame.put("pci", &info)
    }

    fn memory(device: &Device, frame: &mut Frame, offsets: [usize; 3], own: &[OwnProcess]) -> Status {
        let total = device.total_memory;
        let used = Self::used(own, total);
        for (offset, value) in offsets.into_iter().zip([total, total - used, used]) {
            match frame.put_at("memory", offset, &value.to_le_bytes()) {
                status::SUCCESS => {}
                error => return error,
            }
        }
        status::SUCCESS
    }

    fn processes(&self, function: &Function, frame: &mut Frame, own: &[OwnProcess]) -> Status {
        let list = function.position("infos");
        let Mode::Processes(entry, _) = function.arguments[list].mode else {
            return status::NOT_SUPPORTED;
        };
        let mut entries = Vec::new();
        for process in own {
            let start = entries.len();
            entries.extend(process.client.to_le_bytes());
            entries.extend([0; 4]);
            entries.extend(resident(process.worker).to_le_bytes());
            entries.extend(NO_INSTANCE.to_le_bytes());
            entries.extend(NO_INSTANCE.to_le_bytes());
            entries.resize(start + entry.size, 0);
        }
        frame.put_list(list, &entries)
    }

    /// Says of every field that it is not supported, which is not a failure of the call.
    fn field_values(&self, function: &Function, frame: &mut Frame) -> Status {
        let Some(values) = frame.memory_mut(function.position("values")) else {
            return status::INVALID_ARGUMENT;
        };
        for value in values.chunks_exact_mut(FIELD_SIZE) {
            value[FIELD_STATUS..][..4].copy_from_slice(&status::NOT_SUPPORTED.to_le_bytes());
        }
        status::SUCCESS
    }
}

impl Monitor for Software {
    fn carry_out(&self, function: &'static Function, frame: &mut Frame, own: &[OwnProcess]) -> Status {
        // The first device that the call names, or else the first there is.
        let mut number_of_device = None;
        for (index, argument) in function.arguments.iter().enumerate() {
            match argument.mode {
                Mode::Device if frame.number(index) >= self.devices.len() as u64 => {
                    return status::INVALID_ARGUMENT;
                }
                Mode::Device => {
                    number_of_device.get_or_insert(frame.number(index) as u32);
                }
                Mode::Versioned(newest)
                    if frame.memory(index).is_some_and(|memory| memory.len() != newest.size) =>
                {
                    return status::ARGUMENT_VERSION_MISMATCH;
                }
                _ => {}
            }
        }
        let text = |frame: &Frame, name| {
            let bytes = frame.memory(function.position(name)).unwrap_or_default();
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let number = |frame: &mut Frame, name, value: u32| frame.put(name, &value.to_le_bytes());
        let number_of_device = number_of_device.unwrap_or(0);
        let none = Device::default();
        let device = self.devices.get(number_of_device as usize).unwrap_or(&none);
        let attribute = |attribute: Attribute| device.attribute(attribute.0 as i32).unwrap_or_default();
        match function.name {
            "nvmlSystemGetDriverVersion" => frame.put_text("version", env!("CARGO_PKG_VERSION")),
            "nvmlSystemGetNVMLVersion" => frame.put_text("version", API_VERSION),
            "nvmlSystemGetCudaDriverVersion" | "nvmlSystemGetCudaDriverVersion_v2" => {
                frame.put("cuda_driver_version", &self.driver_version.to_le_bytes())
            }
            "nvmlDeviceGetCount" | "nvmlDeviceGetCount_v2" => {
                number(frame, "device_count", self.devices.len() as u32)
            }
            "nvmlUnitGetCount" => number(frame, "unit_count", 0),
            "nvmlGetExcludedDeviceCount" => number(frame, "device_count", 0),
            "nvmlDeviceGetHandleByIndex" | "nvmlDeviceGetHandleByIndex_v2" => match frame.number(0) {
                index if index < self.devices.len() as u64 => frame.put("device", &index.to_le_bytes()),
                _ => status::INVALID_ARGUMENT,
            },
            "nvmlDeviceGetHandleByUUID" => {
                let wanted = text(frame, "uuid");
                self.handle(frame, |device| device.uuid_text() == wanted)
            }
            "nvmlDeviceGetHandleByPciBusId" | "nvmlDeviceGetHandleByPciBusId_v2" => {
                let wanted = parse_pci(&text(frame, "pci_bus_id"));
                self.handle(frame, |device| wanted.is_some() && wanted == parse_pci(&device.pci_bus_id))
            }
            "nvmlDeviceGetHandleBySerial" => status::NOT_FOUND,
            "nvmlDeviceGetName" => frame.put_text("name", &device.name),
            "nvmlDeviceGetUUID" => frame.put_text("uuid", &device.uuid_text()),
            "nvmlDeviceGetIndex" => number(frame, "index", number_of_device),
            "nvmlDeviceGetMinorNumber" => number(frame, "minor_number", number_of_device),
            "nvmlDeviceGetBrand" => number(frame, "kind", UNKNOWN_BRAND),
            "nvmlDeviceGetArchitecture" => number(frame, "arch", UNKNOWN_ARCHITECTURE),
            "nvmlDeviceGetPciInfo_v3" => Self::pci_info(device, frame),
            "nvmlDeviceGetCudaComputeCapability" => {
                let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
                let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
                match frame.put("major", &major.to_le_bytes()) {
                    status::SUCCESS => frame.put("minor", &minor.to_le_bytes()),
                    error => error,
                }
            }
            "nvmlDeviceGetComputeMode" => {
                let mode = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
                frame.put("mode", &mode.to_le_bytes())
            }
            "nvmlDeviceGetMemoryInfo" => Self::memory(device, frame, [0, 8, 16], own),
            "nvmlDeviceGetMemoryInfo_v2" => Self::memory(device, frame, [8, 24, 32], own),
            "nvmlDeviceGetComputeRunningProcesses"
            | "nvmlDeviceGetComputeRunningProcesses_v2"
            | "nvmlDeviceGetComputeRunningProcesses_v3" => self.processes(function, frame, own),
            name if name.contains("RunningProcesses") => self.processes(function, frame, &[]),
            "nvmlDeviceGetFieldValues" => self.field_values(function, frame),
            "nvmlDeviceIsMigDeviceHandle" => number(frame, "is_mig_device", 0),
            "nvmlDeviceGetTopologyCommonAncestor" => number(frame, "path_info", SAME_BOARD),
            "nvmlDeviceGetTopologyNearestGpus" => frame.put_list(function.position("device_array"), &[]),
            "nvmlDeviceOnSameBoard" => number(frame, "on_same_board", 1),
            _ => status::NOT_SUPPORTED,
        }
    }
}

/// Bytes of memory that a process of this machine holds; 0 when it has ended.
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    // SAFETY: the call takes a number and answers one.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).unwrap_or(0)
}

/// Domain, bus, device and function of a PCI address, whose domain may be left out.
fn parse_pci(text: &str) -> Option<(u32, u32, u32, u32)> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<_> =
        address.split(':').map(|part| u32::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    let function = u32::from_str_radix(function, 16).ok()?;
    match parts.as_slice() {
        [domain, bus, device] => Some((*domain, *bus, *device, function)),
        [bus, device] => Some((0, *bus, *device, function)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::nvml::request::{ArgumentValue, Call};
    use causeway_gpu::monitor::answer;

    fn ask(name: &str, arguments: Vec<ArgumentValue>) -> (Status, Vec<Vec<u8>>) {
        let process = OwnProcess { worker: std::process::id(), client: 77 };
        let call = Call { function: name.into(), arguments };
        let outcome = answer(&Software::new().unwrap(), &call, &[process]);
        (outcome.status, outcome.written.into_iter().map(|written| written.bytes).collect())
    }

    #[test]
    fn text_needs_room_for_its_end() {
        let name = |room: u32| {
            ask(
                "nvmlDeviceGetName",
                vec![
                    ArgumentValue::Number(0),
                    ArgumentValue::Buffer(room),
                    ArgumentValue::Number(room.into()),
                ],
            )
        };
        assert_eq!(name(21), (status::INSUFFICIENT_SIZE, vec![]));
        assert_eq!(name(22), (status::SUCCESS, vec![b"Causeway software GPU\0".to_vec()]));
    }

    #[test]
    fn processes_are_counted_where_there_is_no_room_and_have_the_clients_numbers() {
        let processes = |count: u32, list: ArgumentValue| {
            let count = ArgumentValue::Bytes(count.to_le_bytes().to_vec());
            ask("nvmlDeviceGetComputeRunningProcesses_v3", vec![ArgumentValue::Number(0), count, list])
        };
        let one = 1_u32.to_le_bytes().to_vec();
        assert_eq!(processes(0, ArgumentValue::Null), (status::INSUFFICIENT_SIZE, vec![one.clone()]));
        let (status, written) = processes(4, ArgumentValue::Buffer(96));
        assert_eq!((status, &written[0], written[1].len()), (status::SUCCESS, &one, 24));
        assert_eq!(written[1][..4], 77_u32.to_le_bytes());
        assert!(u64::from_le_bytes(written[1][8..16].try_into().unwrap()) > 0);
    }

    #[test]
    fn a_device_that_is_not_there_and_a_function_that_is_not_there_are_errors() {
        let index = |index| {
            ask("nvmlDeviceGetHandleByIndex_v2", vec![ArgumentValue::Number(index), ArgumentValue::Buffer(8)])
        };
        assert_eq!(index(0), (status::SUCCESS, vec![vec![0; 8]]));
        assert_eq!(index(1).0, status::INVALID_ARGUMENT);
        assert_eq!(
            ask("nvmlDeviceGetIndex", vec![ArgumentValue::Number(1), ArgumentValue::Buffer(4)]).0,
            status::INVALID_ARGUMENT
        );
        assert_eq!(ask("nvmlDeviceGetWings", vec![]).0, status::FUNCTION_NOT_FOUND);
        let fan = vec![ArgumentValue::Number(0), ArgumentValue::Buffer(4)];
        assert_eq!(ask("nvmlDeviceGetFanSpeed", fan).0, status::NOT_SUPPORTED);
    }

    #[test]
    fn pci_addresses_are_known_in_every_form() {
        let by_address = |text: &str| {
            let text = ArgumentValue::Bytes([text.as_bytes(), &[0]].concat());
            ask("nvmlDeviceGetHandleByPciBusId_v2", vec![text, ArgumentValue::Buffer(8)]).0
        };
        for text in ["0000:00:00.0", "00000000:00:00.0", "00:00.0", "0:0:0"] {
            assert_eq!(by_address(text), status::SUCCESS, "{text}");
        }
        assert_eq!(by_address("0000:01:00.0"), status::NOT_FOUND);
        assert_eq!(by_address("here"), status::NOT_FOUND);
        let info =
            ask("nvmlDeviceGetPciInfo_v3", vec![ArgumentValue::Number(0), ArgumentValue::Buffer(68)]).1;
        assert!(info[0].starts_with(b"0000:00:00.0\0") && info[0][36..].starts_with(b"00000000:00:00.0\0"));
    }
}
