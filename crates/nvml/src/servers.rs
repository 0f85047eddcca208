//! Routing of NVML calls to several servers, and device numbering across them.
//!
//! Devices are counted through, in the order of `CAUSEWAY_ON`, as CUDA counts them. A call that names a
//! device is its server's, one that looks for a device goes from server to server, and what is asked of the
//! system as a whole is the first server's.

use causeway_api::nvml::request::{ArgumentValue, Call, Outcome, Written};
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::{DeviceNumber, Function, Mode, NO_DEVICE};

/// Numbers that a server has for its devices, MIG devices among them, which get theirs when they are first
/// told of.
pub const NUMBERS_OF_A_SERVER: DeviceNumber = 1 << 12;

/// Those who can be asked.
pub trait Servers {
    /// How many devices each has.
    fn counts(&self) -> Vec<u32>;
    /// Lets one of them carry out a call.
    fn forward(&self, server: usize, call: &Call) -> Result<Outcome, Status>;
}

/// Lets the server that a call is for carry it out.
pub fn carry_out(servers: &impl Servers, function: &Function, call: &Call) -> Result<Outcome, Status> {
    let counts = servers.counts();
    if counts.len() < 2 {
        return servers.forward(0, call);
    }
    match function.name {
        "nvmlDeviceGetCount" | "nvmlDeviceGetCount_v2" => count_all(&counts, call),
        "nvmlDeviceGetHandleByIndex" | "nvmlDeviceGetHandleByIndex_v2" => {
            let (server, index) = locate(&counts, call)?;
            let mut call = call.clone();
            call.arguments[0] = ArgumentValue::Number(index);
            forward(servers, server, function, &call)
        }
        "nvmlDeviceGetIndex" => {
            let (server, call) = localised(function, call)?;
            let outcome = forward(servers, server, function, &call)?;
            let before: u32 = counts[..server].iter().sum();
            Ok(with_numbers(outcome, |index| before + index))
        }
        name if name.starts_with("nvmlDeviceGetHandleBy") => {
            // A lost server does not hide the devices of the others.
            let mut results = (0..counts.len()).map(|server| forward(servers, server, function, call));
            let first = results.next().unwrap_or(Err(status::UNKNOWN));
            let is_found = |result: &Result<Outcome, Status>| {
                result.as_ref().is_ok_and(|it| it.status == status::SUCCESS)
            };
            if is_found(&first) { first } else { results.find(is_found).unwrap_or(first) }
        }
        _ => match localised(function, call) {
            Ok((server, call)) => forward(servers, server, function, &call),
            Err(status::NOT_SUPPORTED) => between(function, call),
            Err(status) => Err(status),
        },
    }
}

/// What NVML says of devices that have nothing in common but the system: NCCL asks it of each pair.
fn between(function: &Function, call: &Call) -> Result<Outcome, Status> {
    /// `NVML_TOPOLOGY_SYSTEM` and `NVML_P2P_STATUS_NOT_SUPPORTED`.
    const SYSTEM: u32 = 50;
    const NO_PEERS: u32 = 5;
    let value = match function.name {
        "nvmlDeviceGetTopologyCommonAncestor" => SYSTEM,
        "nvmlDeviceGetP2PStatus" => NO_PEERS,
        "nvmlDeviceOnSameBoard" => 0,
        _ => return Err(status::NOT_SUPPORTED),
    };
    let is_place = |value: &ArgumentValue| matches!(value, ArgumentValue::Buffer(_));
    let argument = call.arguments.iter().position(is_place).ok_or(status::INVALID_ARGUMENT)? as u32;
    let written = vec![Written { argument, bytes: value.to_le_bytes().to_vec() }];
    Ok(Outcome { status: status::SUCCESS, written })
}

fn count_all(counts: &[u32], call: &Call) -> Result<Outcome, Status> {
    match call.arguments.first() {
        Some(ArgumentValue::Buffer(_)) => {
            let bytes = counts.iter().sum::<u32>().to_le_bytes().to_vec();
            Ok(Outcome { status: status::SUCCESS, written: vec![Written { argument: 0, bytes }] })
        }
        _ => Err(status::INVALID_ARGUMENT),
    }
}

/// The server of the device that a call names by its place among all, and its place there.
fn locate(counts: &[u32], call: &Call) -> Result<(usize, u64), Status> {
    let Some(ArgumentValue::Number(mut index)) = call.arguments.first().cloned() else {
        return Err(status::INVALID_ARGUMENT);
    };
    for (server, count) in counts.iter().map(|count| u64::from(*count)).enumerate() {
        if index < count {
            return Ok((server, index));
        }
        index -= count;
    }
    Err(status::INVALID_ARGUMENT)
}

/// The server whose devices a call names, and the call as it is put there. Without a device it is the first
/// one's; one that names devices of two servers is refused.
fn localised(function: &Function, call: &Call) -> Result<(usize, Call), Status> {
    let mut call = call.clone();
    let mut owner = None;
    for (value, argument) in call.arguments.iter_mut().zip(function.arguments) {
        let (Mode::Device, ArgumentValue::Number(number)) = (argument.mode, value) else { continue };
        if *number == NO_DEVICE {
            continue;
        }
        let server = (*number / NUMBERS_OF_A_SERVER) as usize;
        if owner.is_some_and(|owner| owner != server) {
            return Err(status::NOT_SUPPORTED);
        }
        owner = Some(server);
        *number %= NUMBERS_OF_A_SERVER;
    }
    Ok((owner.unwrap_or(0), call))
}

/// Asks one server; the devices in its answer get the numbers that they have among all.
fn forward(
    servers: &impl Servers,
    server: usize,
    function: &Function,
    call: &Call,
) -> Result<Outcome, Status> {
    let mut outcome = servers.forward(server, call)?;
    for Written { argument, bytes } in &mut outcome.written {
        let mode = function.arguments.get(*argument as usize).map(|argument| argument.mode);
        if !matches!(mode, Some(Mode::OutDevice | Mode::Devices(_))) {
            continue;
        }
        let (numbers, _) = bytes.as_chunks_mut::<8>();
        for number in numbers {
            let here = u64::from_le_bytes(*number);
            if here >= NUMBERS_OF_A_SERVER {
                return Err(status::UNKNOWN);
            }
            *number = (server as DeviceNumber * NUMBERS_OF_A_SERVER + here).to_le_bytes();
        }
    }
    Ok(outcome)
}

/// An answer that is a number, changed.
fn with_numbers(mut outcome: Outcome, change: impl Fn(u32) -> u32) -> Outcome {
    for Written { bytes, .. } in &mut outcome.written {
        if let Ok(number) = <[u8; 4]>::try_from(bytes.as_slice()) {
            *bytes = change(u32::from_le_bytes(number)).to_le_bytes().to_vec();
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::nvml::find;

    /// Servers with so many devices each. A device's UUID is its server and its number there.
    struct Fake(&'static [u32]);

    fn written(argument: u32, bytes: Vec<u8>) -> Result<Outcome, Status> {
        Ok(Outcome { status: status::SUCCESS, written: vec![Written { argument, bytes }] })
    }

    impl Servers for Fake {
        fn counts(&self) -> Vec<u32> {
            self.0.to_vec()
        }

        fn forward(&self, server: usize, call: &Call) -> Result<Outcome, Status> {
            match (call.function.as_str(), call.arguments.as_slice()) {
                ("nvmlDeviceGetHandleByIndex_v2", [ArgumentValue::Number(index), _]) => {
                    assert!(*index < u64::from(self.0[server]));
                    written(1, index.to_le_bytes().to_vec())
                }
                ("nvmlDeviceGetHandleByUUID", [ArgumentValue::Bytes(uuid), _]) => {
                    let [own, number, 0] = uuid[..] else { panic!("{uuid:?}") };
                    if usize::from(own) != server {
                        return Ok(Outcome::failed(status::NOT_FOUND));
                    }
                    written(1, u64::from(number).to_le_bytes().to_vec())
                }
                ("nvmlDeviceGetIndex", [ArgumentValue::Number(number), _]) => {
                    written(1, (*number as u32).to_le_bytes().to_vec())
                }
                ("nvmlDeviceGetUUID", [ArgumentValue::Number(number), ..]) => {
                    written(1, vec![server as u8, *number as u8])
                }
                ("nvmlDeviceOnSameBoard", _) => written(2, vec![1, 0, 0, 0]),
                ("nvmlSystemGetDriverVersion", _) => written(0, vec![server as u8]),
                other => panic!("{other:?}"),
            }
        }
    }

    const TWO_AND_THREE: Fake = Fake(&[2, 3]);

    fn call(name: &str, arguments: Vec<ArgumentValue>) -> Result<Vec<u8>, Status> {
        let call = Call { function: name.to_owned(), arguments };
        let outcome = carry_out(&TWO_AND_THREE, find(name).unwrap(), &call)?;
        match outcome.status {
            status::SUCCESS => Ok(outcome.written.into_iter().next().unwrap().bytes),
            failure => Err(failure),
        }
    }

    fn device(index: u64) -> Result<u64, Status> {
        let bytes = call(
            "nvmlDeviceGetHandleByIndex_v2",
            vec![ArgumentValue::Number(index), ArgumentValue::Buffer(8)],
        )?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap()))
    }

    #[test]
    fn devices_are_counted_through() {
        assert_eq!(call("nvmlDeviceGetCount_v2", vec![ArgumentValue::Buffer(4)]), Ok(vec![5, 0, 0, 0]));
        assert_eq!(call("nvmlDeviceGetCount_v2", vec![ArgumentValue::Null]), Err(status::INVALID_ARGUMENT));
        for index in 0..5 {
            let number = ArgumentValue::Number(device(index).unwrap());
            assert_eq!(
                call("nvmlDeviceGetIndex", vec![number, ArgumentValue::Buffer(4)]),
                Ok(vec![index as u8, 0, 0, 0])
            );
        }
        assert_eq!(device(5), Err(status::INVALID_ARGUMENT));
    }

    #[test]
    fn calls_go_to_the_server_of_their_device() {
        let uuid = |index| {
            call(
                "nvmlDeviceGetUUID",
                vec![
                    ArgumentValue::Number(device(index).unwrap()),
                    ArgumentValue::Buffer(9),
                    ArgumentValue::Number(9),
                ],
            )
        };
        assert_eq!((uuid(1), uuid(4)), (Ok(vec![0, 1]), Ok(vec![1, 2])));
        assert_eq!(
            call("nvmlSystemGetDriverVersion", vec![ArgumentValue::Buffer(1), ArgumentValue::Number(1)]),
            Ok(vec![0])
        );
        let pair = |one, other| {
            let devices = [one, other].map(|index| ArgumentValue::Number(device(index).unwrap()));
            call("nvmlDeviceOnSameBoard", devices.into_iter().chain([ArgumentValue::Buffer(4)]).collect())
        };
        assert_eq!((pair(2, 3), pair(1, 2)), (Ok(vec![1, 0, 0, 0]), Ok(vec![0; 4])));
        let devices = || [1, 2].map(|index| ArgumentValue::Number(device(index).unwrap()));
        let place = ArgumentValue::Buffer(4);
        let read = devices().into_iter().chain([ArgumentValue::Number(0), place.clone()]).collect();
        assert_eq!(call("nvmlDeviceGetP2PStatus", read), Ok(vec![5, 0, 0, 0]));
        let path = devices().into_iter().chain([place]).collect();
        assert_eq!(call("nvmlDeviceGetTopologyCommonAncestor", path), Ok(vec![50, 0, 0, 0]));
    }

    #[test]
    fn a_device_is_looked_for_at_every_server() {
        let found = |uuid: [u8; 3]| {
            call(
                "nvmlDeviceGetHandleByUUID",
                vec![ArgumentValue::Bytes(uuid.to_vec()), ArgumentValue::Buffer(8)],
            )
        };
        assert_eq!(found([1, 2, 0]), Ok(device(4).unwrap().to_le_bytes().to_vec()));
        assert_eq!(found([0, 1, 0]), Ok(device(1).unwrap().to_le_bytes().to_vec()));
        assert_eq!(found([7, 0, 0]), Err(status::NOT_FOUND));
    }
}
