//! Calls of NVIDIA's management library against one that is made for this (`nvml_fake.c`): arguments, handles
//! and processes.

use causeway_api::nvml::NO_DEVICE;
use causeway_api::nvml::request::{ArgumentValue, Call};
use causeway_api::nvml::status::{self, Status};
use causeway_gpu::monitor::{OwnProcess, answer};
use causeway_gpu_driver::monitor::{Library, LoadError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const OWN: [OwnProcess; 2] = [OwnProcess { worker: 12, client: 77 }, OwnProcess { worker: 99, client: 78 }];

fn build(name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-o"])
        .arg(&out)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source))
        .args(arguments)
        .status();
    assert!(status.expect("gcc is installed").success(), "{source} does not compile");
    out
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::load_from(&build("libnvml_fake.so", "nvml_fake.c", &[])).unwrap())
}

fn ask(name: &str, arguments: Vec<ArgumentValue>) -> (Status, Vec<Vec<u8>>) {
    let outcome = answer(library(), &Call { function: name.into(), arguments }, &OWN);
    (outcome.status, outcome.written.into_iter().map(|written| written.bytes).collect())
}

/// What clients call the device with this index.
fn device(index: u64) -> ArgumentValue {
    let (status, written) =
        ask("nvmlDeviceGetHandleByIndex_v2", vec![ArgumentValue::Number(index), ArgumentValue::Buffer(8)]);
    assert_eq!(status, status::SUCCESS);
    ArgumentValue::Number(u64::from_le_bytes(written[0].as_slice().try_into().unwrap()))
}

fn counter(value: u32) -> ArgumentValue {
    ArgumentValue::Bytes(value.to_le_bytes().to_vec())
}

#[test]
fn handles_never_leave_and_numbers_that_are_none_never_reach_the_library() {
    assert_eq!(device(1), device(1));
    assert_ne!(device(0), device(1));
    // Numbers are those of the library's order, whatever was asked for first.
    assert_eq!(device(1), ArgumentValue::Number(1));
    assert_eq!(ask("nvmlDeviceGetIndex", vec![device(1), ArgumentValue::Buffer(4)]).1, [[1, 0, 0, 0]]);
    for none in [2, 1000, NO_DEVICE] {
        let (status, written) =
            ask("nvmlDeviceGetIndex", vec![ArgumentValue::Number(none), ArgumentValue::Buffer(4)]);
        assert_eq!((status, written.len()), (status::INVALID_ARGUMENT, 0));
    }
    let near = vec![device(0), ArgumentValue::Number(20), counter(4), ArgumentValue::Buffer(32)];
    let expected = vec![vec![1, 0, 0, 0], 1_u64.to_le_bytes().to_vec()];
    assert_eq!(ask("nvmlDeviceGetTopologyNearestGpus", near), (status::SUCCESS, expected));
}

#[test]
fn arguments_arrive_in_order_and_failures_leave_memory_alone() {
    let places = [1, 2, 3].map(ArgumentValue::Number);
    let arguments = [vec![device(1)], places.to_vec(), vec![ArgumentValue::Buffer(8)]].concat();
    let (status, written) = ask("nvmlDeviceGetMemoryErrorCounter", arguments);
    assert_eq!((status, &written[0]), (status::SUCCESS, &1123_u64.to_le_bytes().to_vec()));
    let name = |room: u32| {
        ask(
            "nvmlDeviceGetName",
            vec![device(1), ArgumentValue::Buffer(room), ArgumentValue::Number(room.into())],
        )
    };
    assert_eq!(name(8), (status::INSUFFICIENT_SIZE, vec![]));
    assert_eq!(name(9), (status::SUCCESS, vec![b"Fake GPU\0".to_vec()]));
    let mut memory = vec![0; 40];
    memory[..4].copy_from_slice(&(2_u32 << 24 | 40).to_le_bytes());
    let (status, written) = ask("nvmlDeviceGetMemoryInfo_v2", vec![device(0), ArgumentValue::Bytes(memory)]);
    assert_eq!((status, &written[0][8..16]), (status::SUCCESS, (1_u64 << 40).to_le_bytes().as_slice()));
    assert_eq!(
        ask("nvmlDeviceGetFanSpeed", vec![device(0), ArgumentValue::Buffer(4)]).0,
        status::FUNCTION_NOT_FOUND
    );
}

#[test]
fn a_client_sees_its_own_processes_by_its_own_numbers() {
    let name = "nvmlDeviceGetComputeRunningProcesses_v3";
    let (status, written) = ask(name, vec![device(1), counter(5), ArgumentValue::Buffer(120)]);
    assert_eq!((status, &written[0]), (status::SUCCESS, &vec![1, 0, 0, 0]));
    assert_eq!((written[1].len(), &written[1][..4]), (24, 77_u32.to_le_bytes().as_slice()));
    assert_eq!(written[1][8..16], 200_u64.to_le_bytes());
    let counted = ask(name, vec![device(1), counter(0), ArgumentValue::Null]);
    assert_eq!(counted, (status::INSUFFICIENT_SIZE, vec![vec![1, 0, 0, 0]]));
    assert_eq!(
        ask(name, vec![device(0), counter(0), ArgumentValue::Null]),
        (status::SUCCESS, vec![vec![0; 4]])
    );
    assert_eq!(
        ask(name, vec![device(1), ArgumentValue::Null, ArgumentValue::Null]).0,
        status::INVALID_ARGUMENT
    );
}

#[test]
fn a_library_that_is_not_there_or_our_own_is_refused_with_advice() {
    let missing = Library::load_from(Path::new("/nonexistent/libnvidia-ml.so.1")).err().unwrap();
    assert!(missing.to_string().contains("CAUSEWAY_NVML"), "{missing}");
    let own = build("libnvml_own.so", "nvml_fake.c", &["-Dprocesses=causeway_nvml_marker", "-Dstatic="]);
    assert!(matches!(Library::load_from(&own), Err(LoadError::OwnClient { .. })));
}
