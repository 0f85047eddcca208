//! Module cache: an image crosses the wire once, for those who may have it, whatever happens to the disk.

use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::process::{Running, run};
use causeway_tests::server::{OPEN, Server};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn server(folder: &Path, more: &[&str]) -> Server {
    let cache = folder.join("cache");
    let cache = cache.to_str().expect("temporary folders have plain names");
    let address = if more.contains(&"--key-file") { &OPEN[..2] } else { &OPEN[..] };
    Server::start_with(&[address, &["--cache-dir", cache], more].concat())
}

/// Starts a program that counts what it does into a file.
fn start(server: &Server, program: &str, counts: &Path) -> Running {
    let mut command = by_itself(&server.connect_string(), &cuda_program(program));
    Running::start(command.env("CAUSEWAY_STATS", counts))
}

fn module_bytes(counts: &Path) -> u64 {
    let text = fs::read_to_string(counts).expect("the program has counted");
    let counts: serde_json::Value = serde_json::from_str(&text).expect("the counts are JSON");
    counts["module_bytes"].as_u64().expect("bytes of modules are counted")
}

/// Runs a program, which must succeed, and tells how many bytes of images it sent.
#[track_caller]
fn sent_by(server: &Server, program: &str, folder: &Path) -> u64 {
    let counts = folder.join("counts");
    let mut command = by_itself(&server.connect_string(), &cuda_program(program));
    let outcome = run(command.env("CAUSEWAY_STATS", &counts), LIMIT);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    // What is kept for later sessions is written when the program has gone.
    server.must_have_workers(0);
    module_bytes(&counts)
}

/// The images in a cache, of all identities.
fn images(folder: &Path) -> Vec<PathBuf> {
    let identities = fs::read_dir(folder.join("cache")).into_iter().flatten().flatten();
    let files = identities.flat_map(|identity| fs::read_dir(identity.path()).into_iter().flatten().flatten());
    files
        .map(|file| file.path())
        .filter(|path| path.file_name().is_some_and(|name| name.len() == 64))
        .collect()
}

#[test]
fn the_second_session_sends_no_image_and_gets_right_results() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    for program in ["vector_add", "rdc", "driver_api"] {
        assert!(sent_by(&server, program, folder.path()) > 0, "{program}");
        assert_eq!(sent_by(&server, program, folder.path()), 0, "{program}");
    }
    server.must_be_well();
}

#[test]
fn images_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let first = server(folder.path(), &[]);
    assert!(sent_by(&first, "vector_add", folder.path()) > 0);
    drop(first);
    assert_eq!(sent_by(&server(folder.path(), &[]), "vector_add", folder.path()), 0);
}

#[test]
fn another_identity_sends_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["mine", "theirs"] {
        let server = server(folder.path(), &["--key-file", &key(name)]);
        assert!(sent_by(&server, "vector_add", folder.path()) > 0, "{name}");
    }
    let again = server(folder.path(), &["--key-file", &key("mine")]);
    assert_eq!(sent_by(&again, "vector_add", folder.path()), 0);
    assert_eq!(images(folder.path()).len(), 2);
}

#[test]
fn a_damaged_image_is_noticed_and_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let bytes = sent_by(&server, "vector_add", folder.path());
    let images = images(folder.path());
    let mut image = fs::read(&images[0]).unwrap();
    let last = image.len() - 1;
    image[last] ^= 1;
    fs::write(&images[0], image).unwrap();
    assert_eq!(sent_by(&server, "vector_add", folder.path()), bytes);
    server.must_log("discarded: its content is not what it was");
    assert_eq!(sent_by(&server, "vector_add", folder.path()), 0);
}

#[test]
fn old_images_make_room_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &["--cache-size", "4100"]);
    let bytes = sent_by(&server, "vector_add", folder.path());
    assert!(bytes < 4100, "the size is right for one program");
    assert!(sent_by(&server, "matmul_tiled", folder.path()) > 0);
    let kept: u64 = images(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(kept <= 4100, "{kept} bytes");
}

#[test]
fn programs_that_start_together_share_what_they_send() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let counts: Vec<_> = (0..4).map(|number| folder.path().join(format!("counts{number}"))).collect();
    let running: Vec<_> = counts.iter().map(|counts| start(&server, "vector_add", counts)).collect();
    for mut program in running {
        let outcome = program.finish(LIMIT);
        assert_eq!(outcome.code(), Some(0), "{outcome}");
    }
    server.must_have_workers(0);
    assert_eq!(images(folder.path()).len(), 1);
    assert_eq!(sent_by(&server, "vector_add", folder.path()), 0);
    let left = |path: PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(".unfinished");
    let folders = fs::read_dir(folder.path().join("cache/without-key")).unwrap().flatten();
    assert!(!folders.map(|file| file.path()).any(left));
}

#[test]
fn a_server_without_a_usable_folder_serves_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cache")).unwrap();
    fs::set_permissions(folder.path().join("cache"), fs::Permissions::from_mode(0o777)).unwrap();
    let server = server(folder.path(), &[]);
    assert!(sent_by(&server, "vector_add", folder.path()) > 0);
    assert!(sent_by(&server, "vector_add", folder.path()) > 0);
    server.must_log("image cache disabled");
}

#[test]
fn what_nvrtc_compiles_is_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let kept = |variables: &[(&str, &str)]| {
        let mut command = by_itself(&server.connect_string(), &cuda_program("nvrtc"));
        command.env("CAUSEWAY_CACHE_DIR", folder.path()).envs(variables.iter().copied());
        let outcome = run(&mut command, LIMIT);
        assert_eq!(outcome.code(), Some(0), "{outcome}");
        let files = fs::read_dir(folder.path().join("compiled")).into_iter().flatten().flatten();
        let mut all: Vec<_> = files.map(|file| (file.path(), file.metadata().unwrap().ino())).collect();
        all.sort();
        all
    };
    assert_eq!(kept(&[("CUDA_CACHE_DISABLE", "1")]), []);
    // The program has one source that is the same each time and two that are not.
    let first = kept(&[]);
    assert_eq!(first.len(), 3);
    // Had the first been compiled again, its file would be another one.
    let second = kept(&[]);
    assert_eq!(second.len(), 5);
    assert!(first.iter().all(|file| second.contains(file)), "{first:?}, then {second:?}");
    // What is damaged is compiled again, if it is asked for.
    first.iter().for_each(|(path, _)| fs::write(path, "nonsense").unwrap());
    assert_eq!(kept(&[]).len(), 7);
    let is_whole = |path: &Path| fs::read(path).unwrap() != b"nonsense";
    assert_eq!(first.iter().filter(|(path, _)| is_whole(path)).count(), 1);
}
