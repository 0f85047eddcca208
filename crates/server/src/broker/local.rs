//! Unix sockets at which the broker listens on its host.
//!
//! One whose name is given, if that is wanted; an abstract one, for processes of the same network namespace;
//! and one in a folder, for containers that share the folder and nothing else. The names of the last two
//! cannot be guessed and are sent to clients that have a session, which join it there. At all of them the
//! kernel says who is there (`access`): other users can ask for no more than what a session's token or a
//! ticket proves.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_access::local::{SOCKET_PREFIX, SOCKET_SUFFIX, boot_id};
use causeway_access::private_folder;
use causeway_access::target::random_bytes;
use causeway_connection::unix;
use causeway_wire::handshake::Locality;

use super::hot_restart::InheritedSockets;
use crate::locks::{Mutex, rank};
use crate::protocol::messages::ListenerAddress;

/// The sockets; those in folders are removed when this is dropped.
#[derive(Debug, Default)]
pub struct LocalSockets {
    listeners: Mutex<rank::Leaf, Vec<Arc<LocalListener>>>,
    names: Vec<String>,
    paths: Mutex<rank::Leaf, Vec<PathBuf>>,
    /// Files of sockets that are inherited, which are the other process's until it gives them up.
    inherited: Mutex<rank::Leaf, Vec<PathBuf>>,
    /// Where this server's own socket lies, and those of others that serve the same user.
    folder: Option<PathBuf>,
}

/// A socket at which callers of this host come in.
#[derive(Debug)]
pub struct LocalListener {
    /// The socket, which does not block.
    pub socket: UnixListener,
    /// Which one it is.
    pub address: ListenerAddress,
}

impl LocalSockets {
    /// Opens what can be opened and is not inherited; the log says what cannot. `folder` is one that clients in
    /// containers see, too; otherwise one of this user alone is used.
    pub fn open(folder: Option<&Path>, inherited: &mut InheritedSockets) -> Self {
        let mut sockets = Self::default();
        let number = u128::from_le_bytes(random_bytes());
        let name = format!("{SOCKET_PREFIX}{number:032x}");
        let bind_abstract = || {
            let address = SocketAddr::from_abstract_name(&name)?;
            Ok((format!("@{name}"), UnixListener::bind_addr(&address)?))
        };
        match inherited
            .take_announced(|name| name.starts_with('@'))
            .map_or_else(bind_abstract, Ok::<_, io::Error>)
        {
            Ok((name, listener)) => sockets.add(listener, name),
            Err(error) => tracing::warn!("cannot open the abstract socket for clients of this host: {error}"),
        }
        let named = folder.map_or_else(
            || "a folder of this user".to_owned(),
            |folder| format!("the folder {} (--socket-dir)", folder.display()),
        );
        let (folder, is_private) = match folder {
            Some(folder) => (Ok(folder.to_owned()), false),
            None => (private_folder(), true),
        };
        let opened = folder.and_then(|folder| {
            remove_stale(&folder);
            // Whoever is notified of the socket follows no links.
            let folder = folder.canonicalize()?;
            if let Some((path, listener)) =
                inherited.take_announced(|name| Path::new(name).parent() == Some(folder.as_path()))
            {
                return Ok((listener, PathBuf::from(path), folder, true));
            }
            let path = folder.join(format!("{name}{SOCKET_SUFFIX}"));
            bind(&path, is_private).map(|listener| (listener, path, folder, false))
        });
        match opened {
            Ok((listener, path, folder, is_inherited)) => {
                sockets.folder = Some(folder);
                sockets.add(listener, path.to_string_lossy().into_owned());
                sockets.keep(path, is_inherited);
            }
            Err(error) => tracing::warn!(
                "cannot open a socket in {named}, so clients in containers of this host do not share memory: \
                 {error}"
            ),
        }
        sockets
    }

    /// Listens at a socket whose name was given: a path, or `@` and an abstract name. Clients are not told of
    /// it. With `others` any user may connect.
    ///
    /// # Errors
    /// When it cannot be listened at: a server that cannot be found is no use.
    pub fn listen_at(
        &mut self,
        name: &str,
        others: bool,
        inherited: &mut InheritedSockets,
    ) -> io::Result<()> {
        let address = ListenerAddress::Named(name.to_owned());
        let own = inherited.take::<UnixListener>(&address);
        let socket = match (name.strip_prefix('@'), own) {
            (Some(_), Some(own)) => own,
            (Some(name), None) => UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?,
            (None, own) => {
                let path = Path::new(name);
                let is_inherited = own.is_some();
                let socket = match own {
                    Some(own) => {
                        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode(!others)))?;
                        own
                    }
                    None => {
                        if is_stale(path) {
                            std::fs::remove_file(path)?;
                        }
                        // Otherwise the finished socket would take the other server's place.
                        if path.symlink_metadata().is_ok() {
                            return Err(io::ErrorKind::AddrInUse.into());
                        }
                        bind(path, !others)?
                    }
                };
                self.keep(path.to_owned(), is_inherited);
                socket
            }
        };
        socket.set_nonblocking(true)?;
        self.listeners.get_mut().push(Arc::new(LocalListener { socket, address }));
        Ok(())
    }

    fn add(&mut self, socket: UnixListener, name: String) {
        match socket.set_nonblocking(true) {
            Ok(()) => {
                let address = ListenerAddress::Announced(name.clone());
                self.listeners.get_mut().push(Arc::new(LocalListener { socket, address }));
                self.names.push(name);
            }
            Err(error) => tracing::warn!("cannot use a socket for clients of this host: {error}"),
        }
    }

    fn keep(&mut self, path: PathBuf, is_inherited: bool) {
        let paths = if is_inherited { &mut self.inherited } else { &mut self.paths };
        paths.get_mut().push(path);
    }

    /// The files of sockets that are inherited are this process's from now on.
    pub fn own_inherited(&self) {
        let inherited = core::mem::take(&mut *self.inherited.lock());
        self.paths.lock().extend(inherited);
    }

    /// Where callers come in.
    pub fn listeners(&self) -> Vec<Arc<LocalListener>> {
        self.listeners.lock().clone()
    }

    /// Gives the sockets up, which another process has now, files and all.
    pub fn give_up(&self) {
        self.listeners.lock().clear();
        self.paths.lock().clear();
    }

    /// The folder with the server's own socket, if it has one there.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What is sent to clients.
    pub fn locality(&self) -> Locality {
        Locality { boot_id: boot_id(), sockets: self.names.clone() }
    }
}

impl LocalSockets {
    /// Takes the sockets out of their folders, when nobody accepts any more. Threads that still answer a caller
    /// keep the rest of this for a while.
    pub fn remove(&self) {
        for path in core::mem::take(&mut *self.paths.lock()) {
            // Somebody may have tidied up already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for LocalSockets {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Listens at `path`. In a shared folder everybody may knock, since the users of two containers have little
/// to do with each other; the session's token is what counts.
fn bind(path: &Path, is_private: bool) -> io::Result<UnixListener> {
    // Whoever looks for sockets that nobody listens at must not find this one before it does.
    let unfinished = path.with_extension("new");
    let listener = unix::listen_at(&unfinished)?;
    let finished = std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(mode(is_private)))
        .and_then(|()| std::fs::rename(&unfinished, path));
    if let Err(error) = finished {
        let _ = std::fs::remove_file(&unfinished);
        return Err(error);
    }
    Ok(listener)
}

fn mode(is_private: bool) -> u32 {
    if is_private { 0o600 } else { 0o666 }
}

/// Removes the sockets of servers that were killed.
fn remove_stale(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .is_some_and(|name| name.starts_with(SOCKET_PREFIX) && name.ends_with(SOCKET_SUFFIX));
        if is_ours && is_stale(&entry.path()) {
            // Another server may be doing the same.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether there is a socket at which nobody listens any more.
fn is_stale(path: &Path) -> bool {
    // Connecting to an ordinary file is refused likewise.
    path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket())
        && unix::connect_at(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn open(folder: &Path) -> LocalSockets {
        LocalSockets::open(Some(folder), &mut InheritedSockets::default())
    }

    #[test]
    fn sockets_go_with_their_server_and_those_of_killed_ones_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let first = open(folder.path());
        let Locality { sockets, .. } = first.locality();
        assert!(sockets.len() == 2 && sockets[0].starts_with('@') && sockets[1].ends_with(SOCKET_SUFFIX));
        assert!(UnixStream::connect(&sockets[1]).is_ok());
        // As a killed server leaves it: nobody listens any more, and the file is still there.
        drop(UnixListener::bind(folder.path().join("causeway-0.sock")).unwrap());
        std::fs::write(folder.path().join("other"), "").unwrap();
        assert_eq!(files(), 3);
        let second = open(folder.path());
        assert_eq!(files(), 3, "the stale one has gone, a new one has come");
        assert!(UnixStream::connect(&sockets[1]).is_ok());
        first.remove();
        assert_eq!(files(), 2, "what is removed is the first one's");
        // The next server has taken the name over, so that it is not the first one's any more.
        std::fs::write(&sockets[1], "").unwrap();
        drop((first, second));
        assert!(Path::new(&sockets[1]).exists());
        assert_eq!(files(), 2);
    }

    #[test]
    fn a_socket_with_a_name_is_taken_over_from_a_killed_server_and_from_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.sock");
        drop(UnixListener::bind(&path).unwrap());
        let listen = |others| {
            let mut sockets = LocalSockets::default();
            sockets
                .listen_at(path.to_str().unwrap(), others, &mut InheritedSockets::default())
                .map(|()| sockets)
        };
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let first = listen(false).unwrap();
        assert!(UnixStream::connect(&path).is_ok() && mode() == 0o600);
        assert_eq!(listen(true).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let second = listen(true).unwrap();
        assert!(mode() == 0o666 && second.locality().sockets.is_empty());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert!(listen(true).is_err() && path.exists());
    }

    #[test]
    fn sockets_that_are_inherited_keep_their_names_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("server.sock").into_os_string().into_string().unwrap();
        let mut first = open(folder.path());
        first.listen_at(&named, false, &mut InheritedSockets::default()).unwrap();
        let mut inherited = InheritedSockets::default();
        for listener in first.listeners() {
            inherited.add(listener.address.clone(), listener.socket.try_clone().unwrap().into());
        }
        let mut second = LocalSockets::open(Some(folder.path()), &mut inherited);
        second.listen_at(&named, true, &mut inherited).unwrap();
        assert_eq!(second.locality(), first.locality());
        // A process that does not come up after all leaves the files.
        let mut third = LocalSockets::default();
        third.keep(PathBuf::from(&named), true);
        drop(third);
        assert!(Path::new(&named).exists());
        second.own_inherited();
        first.give_up();
        drop(first);
        for name in second.locality().sockets[1..].iter().chain([&named]) {
            let _caller = UnixStream::connect(name).unwrap();
        }
        assert_eq!(second.listeners().iter().filter(|listener| listener.socket.accept().is_ok()).count(), 2);
        assert_eq!(std::fs::metadata(&named).unwrap().permissions().mode() & 0o777, 0o666);
        drop(second);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_costs_only_its_socket() {
        let sockets = open(Path::new("/nonexistent/folder"));
        assert_eq!(sockets.locality().sockets.len(), 1);
    }
}
