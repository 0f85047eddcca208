//! Key files: default paths, and the check that no other user can read them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_config::file::candidates;
use causeway_config::file::permissions::{Identity, Permissions};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::target::{Endpoint, Key, Target, random_bytes};

/// The most bytes of a key file that are read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How long is waited for others who change the same file, which takes them milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Why a key file is not used.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// There is no home directory to look in.
    #[error("HOME is not set, so there is no default key file: pass --key-file")]
    NoHomeVariable,
    /// The file cannot be read or made.
    #[error("the key file {path} cannot be {action}: {cause}{}", advice(.cause, is_in_pod()))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// Others can read the key.
    #[error(
        "the key file {path} can be read by others (mode {mode:03o}): {}; if others may have read it, {}",
        mode_advice(.path, is_in_pod()),
        renewal(.path)
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no file.
    #[error("the key file {path} is a {kind} and contains no key: name a file, usually with --key-file")]
    NotAFile {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file belongs to somebody else.
    #[error(
        "the key file {path} belongs to user {owner}, not to this user ({user}): pass another one with \
         --key-file, or change the owner of this one; a file of root is accepted, too, if only a group of \
         this user can read it (mode 440)"
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The owner's number.
        owner: u32,
        /// Our number.
        user: u32,
    },
    /// The file holds no key.
    #[error("the key file {path} cannot be used: {cause}. Each line is a key, or HOST:PORT and a key")]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
}

/// A folder of this user's configuration of Causeway: `causeway` in `$XDG_CONFIG_HOME` or `~/.config`.
pub fn configuration() -> Result<PathBuf, KeyFileError> {
    candidates::of_user().ok_or(KeyFileError::NoHomeVariable)
}

/// Where a server keeps its key unless another file is named: `key` in [`configuration`].
pub fn default_path() -> Result<PathBuf, KeyFileError> {
    Ok(configuration()?.join("key"))
}

/// Where a client keeps the keys of servers: `keys` in [`configuration`].
pub fn list_path() -> Result<PathBuf, KeyFileError> {
    Ok(configuration()?.join("keys"))
}

/// Reads the key in `path`, or makes one where there is none; the second value says that it is new. Who must be
/// able to read the file, and who not, says [`Permissions`].
pub fn load_or_create(path: &Path) -> Result<(Key, bool), KeyFileError> {
    match load(path) {
        Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            let new = create(path)?;
            // Another server may have been faster; then its key is the one that counts.
            let key = load(path)?;
            Ok((key.clone(), key == new))
        }
        read => read.map(|key| (key, false)),
    }
}

/// The key that serves for any server in the file at `path`, such as a server's own.
pub fn load(path: &Path) -> Result<Key, KeyFileError> {
    let keys = read(path)?;
    let of_servers: Vec<_> =
        keys.iter().filter_map(|line| line.server.as_ref()).map(Endpoint::to_string).collect();
    let missing = || {
        let cause = match of_servers.as_slice() {
            [] => "it has no key".to_owned(),
            [..] => format!("it has no line with a key alone, but keys of {}", of_servers.join(", ")),
        };
        KeyFileError::NoKey { path: path.to_owned(), cause }
    };
    keys.into_iter().find(|line| line.server.is_none()).map(|line| line.key).ok_or_else(missing)
}

/// A line of a key file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The server that the key is of; none for one that serves for any.
    pub server: Option<Endpoint>,
    /// The key.
    pub key: Key,
}

/// Reads a key file: a line is a key, or a server's `HOST:PORT` and its key; empty lines and those that begin
/// with `#` say nothing.
pub fn read(path: &Path) -> Result<Vec<Line>, KeyFileError> {
    let text = read_private(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(line)
        .collect::<Result<_, _>>()
        .map_err(|cause| KeyFileError::NoKey { path: path.to_owned(), cause })
}

/// Reads a file with secrets, which must belong to the user who runs this and be closed to everybody else, or be
/// given by root to a group of this user.
pub(super) fn read_private(path: &Path) -> Result<Zeroizing<String>, KeyFileError> {
    let failed = failed(path, "read");
    let file = fs::File::open(path).map_err(&failed)?;
    let data = file.metadata().map_err(&failed)?;
    if let Some(kind) = other_kind(data.file_type()) {
        return Err(KeyFileError::NotAFile { path: path.to_owned(), kind });
    }
    check(path, Permissions::of(&data), &Identity::of_process())?;
    let mut text = Zeroizing::new(String::with_capacity(data.len().min(MAX_FILE_BYTES) as usize));
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(&failed)?;
    Ok(text)
}

/// Waits until no other process changes what a lock file stands for; dropping what is returned lets the next one.
pub fn lock(path: &Path) -> Result<fs::File, KeyFileError> {
    let failed = failed(path, "locked");
    let open = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.map_err(&failed)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => sleep(LOCK_POLL_INTERVAL),
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Changes the list of servers' keys, while no other command of this user does.
///
/// # Errors
/// When it cannot be read or written, or as `change` says.
pub fn update_list<R, E: From<KeyFileError>>(
    change: impl FnOnce(&mut Vec<Line>) -> Result<R, E>,
) -> Result<R, E> {
    let path = list_path()?;
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder, "made"))?;
    }
    let _lock = lock(&path.with_extension("lock"))?;
    let mut lines = match read(&path) {
        Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let before = lines.clone();
    let result = change(&mut lines)?;
    if lines != before {
        write(&path, &lines)?;
    }
    Ok(result)
}

/// Whether the secrets of a file may be used by this user.
fn check(path: &Path, permissions: Permissions, identity: &Identity) -> Result<(), KeyFileError> {
    let Permissions { owner, mode, .. } = permissions;
    if permissions.is_granted_by_root(identity) {
        return Ok(());
    }
    match (owner == identity.user, permissions.is_owners_alone()) {
        (true, true) => Ok(()),
        // What root mounts is for this user as good as its own, so what is wrong with it is the mode.
        (true, false) => Err(KeyFileError::NotPrivate { path: path.to_owned(), mode }),
        (false, false) if owner == 0 => Err(KeyFileError::NotPrivate { path: path.to_owned(), mode }),
        (false, _) => Err(KeyFileError::NotOurs { path: path.to_owned(), owner, user: identity.user }),
    }
}

/// What something is from which no keys are read, whatever its mode; nothing for files, and for pipes, by which a
/// shell hands over what a command prints.
fn other_kind(kind: fs::FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_dir() => Some("folder"),
        kind if kind.is_char_device() || kind.is_block_device() => Some("device"),
        _ => None,
    }
}

/// Whether this process runs in a pod of Kubernetes, which says so to each container.
fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// What may be done where the system refuses a file; nothing is said of other failures.
fn advice(cause: &io::Error, is_in_pod: bool) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied if is_in_pod => {
            "; `fsGroup` of the pod lets users other than root read a Secret"
        }
        io::ErrorKind::PermissionDenied => "; --key-file names another",
        _ => "",
    }
}

/// How a file is closed to others.
fn mode_advice(path: &Path, is_in_pod: bool) -> String {
    let path = path.display();
    match is_in_pod {
        true => format!(
            "mount the Secret with `defaultMode: 0400`, for users other than root with `fsGroup`; where it is no Secret, run \
             `chmod 600 {path}`"
        ),
        false => format!("run `chmod 600 {path}`, or name another file with --key-file"),
    }
}

/// How the secrets of a file are replaced.
fn renewal(path: &Path) -> &'static str {
    if path.file_name().is_some_and(|name| name == candidates::CLIENT_LIST) {
        "give each client in it a new key with `causeway client rotate`"
    } else {
        "delete the key file on the server, which makes a new key"
    }
}

fn line(text: &str) -> Result<Line, String> {
    let (server, key) = match text.split_once(char::is_whitespace) {
        Some((server, key)) => (Some(server), key.trim()),
        None => (None, text),
    };
    let server =
        server.map(|server| server.parse::<Target>().map_err(|cause| cause.to_string())).transpose()?;
    let key = key.parse::<Key>().map_err(|cause| cause.to_string())?;
    Ok(Line { server: server.map(|server| server.endpoint), key })
}

/// A key file's text.
fn text(lines: &[Line]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(lines.len() * 128));
    for Line { server, key } in lines {
        if let Some(server) = server {
            text.push_str(&format!("{server} "));
        }
        text.push_str(&key.to_text());
        text.push('\n');
    }
    text
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |cause| KeyFileError::Io { path: path.clone(), action, cause }
}

fn create(path: &Path) -> Result<Key, KeyFileError> {
    let key = Key::generate();
    write_with(path, &text(&[Line { server: None, key: key.clone() }]), |draft| {
        // Only if there is none of that name.
        match fs::hard_link(draft, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    })?;
    Ok(key)
}

/// Writes a key file that only its owner can read, in the place of one that may be there.
pub fn write(path: &Path, lines: &[Line]) -> Result<(), KeyFileError> {
    write_private(path, &text(lines))
}

/// Writes a file that only its owner can read, in the place of one that may be there.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), KeyFileError> {
    write_with(path, text, |draft| fs::rename(draft, path))
}

/// Writes a draft beside `path`, and lets `publish` give it its name when it is complete.
fn write_with(
    path: &Path,
    text: &str,
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), KeyFileError> {
    let failed = failed(path, "created");
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(&failed)?;
    }
    let number = u64::from_le_bytes(random_bytes());
    let draft = path.with_extension(format!("new-{number:016x}"));
    let written =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            publish(&draft)?;
            sync_folder(path)
        });
    // A draft that cannot be removed holds a key that nobody uses, and one that was renamed is not there.
    let _ = fs::remove_file(&draft);
    written.map_err(&failed)
}

/// Brings a new name to the disk. What a file was written for may not be done twice, such as the use of an invitation.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::File::open(folder).and_then(|folder| folder.sync_all()) {
        // A folder that may not be read, or a file system that does this only for files.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("key");
        let (key, new) = load_or_create(&path).unwrap();
        assert!(new);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_create(&path).unwrap(), (key, false));
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_damaged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = load_or_create(&path).unwrap_err();
        assert!(error.to_string().contains("mode 640") && error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(load_or_create(&path), Err(KeyFileError::NoKey { .. })));
    }

    #[test]
    fn a_file_of_roots_counts_if_only_a_group_of_ours_can_read_it() {
        let pod = Identity { user: 1000, groups: vec![1000, 2000] };
        let checked = |owner, group, mode| {
            let permissions = Permissions { owner, group, mode };
            check(Path::new("/run/keys/key"), permissions, &pod).map_err(|error| error.to_string())
        };
        assert_eq!((checked(0, 2000, 0o440), checked(1000, 5, 0o400)), (Ok(()), Ok(())));
        for (owner, group, mode, said) in [
            (0, 2000, 0o444, "can be read by others (mode 444)"),
            (0, 2000, 0o460, "can be read by others (mode 460)"),
            (0, 3000, 0o440, "can be read by others (mode 440)"),
            (1000, 2000, 0o440, "can be read by others (mode 440)"),
            (1001, 2000, 0o440, "belongs to user 1001"),
            (0, 3000, 0o400, "belongs to user 0"),
        ] {
            let error = checked(owner, group, mode).unwrap_err();
            assert!(error.contains(said), "{owner} {group} {mode:o}: {error}");
        }
        let denied = KeyFileError::Io {
            path: "/run/keys/key".into(),
            action: "read",
            cause: io::ErrorKind::PermissionDenied.into(),
        };
        assert!(denied.to_string().contains("--key-file"), "{denied}");
    }

    #[test]
    fn advice_fits_what_the_file_is_and_where_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for (path, kind) in [(folder.path(), "a folder"), (Path::new("/dev/null"), "a device")] {
            let error = load(path).unwrap_err().to_string();
            assert!(error.contains(kind) && error.contains("--key-file"), "{error}");
            assert!(!error.contains("chmod"), "{error}");
        }
        let key = Path::new("/etc/causeway/key");
        assert!(!mode_advice(key, false).contains("Secret") && mode_advice(key, true).contains("`fsGroup`"));
        let denied = io::ErrorKind::PermissionDenied.into();
        assert!(!advice(&denied, false).contains("fsGroup") && advice(&denied, true).contains("fsGroup"));
        assert!(
            renewal(key).contains("delete")
                && !renewal(&key.with_file_name("clients.toml")).contains("delete")
        );
    }

    /// The files as the kubelet writes them: a link to a file in a folder that is a link, too, which is replaced
    /// as a whole.
    #[test]
    fn a_projected_secret_is_read_through_its_links_and_anew_after_it_has_been_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let publish = |name: &str| {
            let (key, version) = (Key::generate(), folder.path().join(name));
            write(&version.join("key"), &[Line { server: None, key: key.clone() }]).unwrap();
            fs::set_permissions(&version, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::symlink(name, folder.path().join("..data_tmp")).unwrap();
            fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
            key
        };
        let path = folder.path().join("key");
        std::os::unix::fs::symlink("..data/key", &path).unwrap();
        let first = publish("..2026_1");
        assert_eq!(load_or_create(&path).unwrap(), (first, false));
        let second = publish("..2026_2");
        assert_eq!(load_or_create(&path).unwrap(), (second, false));
        // Loose behind the link is loose, whatever the link's own mode.
        fs::set_permissions(folder.path().join("..2026_2/key"), fs::Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(load_or_create(&path), Err(KeyFileError::NotPrivate { mode: 0o444, .. })));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let server = Some("[::1]:5".parse::<Target>().unwrap().endpoint);
        let lines = [Line { server, key: Key::generate() }, Line { server: None, key: Key::generate() }];
        write(&path, &[]).unwrap();
        write(&path, &lines).unwrap();
        assert_eq!(read(&path).unwrap(), lines);
        assert_eq!(load(&path).unwrap(), lines[1].key);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        fs::write(&path, format!("# mine\n\n host \t {} \n", *lines[0].key.to_text())).unwrap();
        let read = read(&path).unwrap();
        assert!(read.len() == 1 && read[0].key == lines[0].key && read[0].server.is_some());
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("keys of host:7690"), "{error}");
        fs::write(&path, "# nothing\n").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("it has no key"));
    }
}
