//! Every environment variable that means something to this library, in one table.

/// Who acts on a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// This library.
    Client,
    /// The worker: it gets the variable before it starts the driver.
    Worker,
}

/// One variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Who acts on it.
    pub place: Place,
    /// What it does.
    pub text: &'static str,
}

const fn client(name: &'static str, text: &'static str) -> Variable {
    Variable { name, place: Place::Client, text }
}

const fn worker(name: &'static str, text: &'static str) -> Variable {
    Variable { name, place: Place::Worker, text }
}

/// The table.
pub static VARIABLES: &[Variable] = &[
    client(
        "CAUSEWAY_BETWEEN_SERVERS",
        "auto (the default), link, shm, verbs, tcp or client: what carries copies between devices of two servers",
    ),
    client(
        "CAUSEWAY_CACHE_DIR",
        "where hashes of images are kept, instead of ~/.cache/causeway; nothing is kept when it is empty",
    ),
    client("CAUSEWAY_DEDUP", "on: large copies to devices send only what the server does not have"),
    client("CAUSEWAY_KEY_FILE", "a file with the servers' keys, instead of those in ~/.config/causeway"),
    client("CAUSEWAY_LANES", "how many connections carry large copies"),
    client("CAUSEWAY_LOG", "off, error (the default), info, debug, or trace: lines on standard error"),
    client(
        "CAUSEWAY_ON",
        "the server: HOST:PORT, or the connect string that `causeway serve` prints; or several, with commas between",
    ),
    client(
        "CAUSEWAY_PIPELINE",
        "how copies are cut and carried, by their size; see docs/src/reference/environment.md",
    ),
    client(
        "CAUSEWAY_SOCKET_DIR",
        "a folder shared with the server's container, where its socket is (`causeway serve --socket-dir`)",
    ),
    client("CAUSEWAY_STATS", "a file that gets counts of calls and bytes, as JSON, when the program ends"),
    client("CAUSEWAY_SYNC", "1: every call waits for its outcome, so that errors appear where they are made"),
    client("CAUSEWAY_VIA", "auto (the default), tcp, shm or verbs: what carries calls and copies"),
    client("CUDA_DEVICE_ORDER", "FASTEST_FIRST (the server's order, the default) or PCI_BUS_ID"),
    client("CUDA_LAUNCH_BLOCKING", "1: each launch waits until its kernel is done"),
    client("CUDA_VISIBLE_DEVICES", "numbers or UUIDs of the server's devices that the program sees"),
    worker(
        "CAUSEWAY_GPUDIRECT",
        "auto (the default), off, dma-buf or peermem: how network cards reach the GPU's memory",
    ),
    worker("CUDA_AUTO_BOOST", "whether clocks may rise by themselves"),
    worker("CUDA_BINARY_LOADER_THREAD_COUNT", "threads that load binaries"),
    worker("CUDA_CACHE_DISABLE", "1: compiled PTX is not kept"),
    worker("CUDA_CACHE_MAXSIZE", "bytes of compiled PTX that are kept"),
    worker(
        "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
        "part of the L2 cache for persisting data",
    ),
    worker("CUDA_DEVICE_MAX_CONNECTIONS", "hardware queues of a context"),
    worker("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "hardware queues for copies of a context"),
    worker("CUDA_DISABLE_PTX_JIT", "1: PTX in images is not compiled"),
    worker("CUDA_FORCE_JIT", "1: PTX is compiled even where a binary would fit"),
    worker("CUDA_FORCE_PTX_JIT", "1: binaries in images are ignored in favour of PTX"),
    worker("CUDA_GRAPHS_USE_NODE_PRIORITY", "priorities of graph nodes"),
    worker("CUDA_MODULE_DATA_LOADING", "when data of modules is loaded"),
    worker("CUDA_MODULE_LOADING", "LAZY or EAGER: when code of modules is loaded"),
    worker("CUDA_SCALE_LAUNCH_QUEUES", "size of the launch queues"),
];

/// The value of a variable, if it is set to text.
pub fn read(name: &str) -> Option<String> {
    debug_assert!(VARIABLES.iter().any(|variable| variable.name == name), "{name} is not in the table");
    std::env::var(name).ok()
}

/// Whether a variable is set to something other than `0` or nothing.
pub fn is_on(name: &str) -> bool {
    read(name).is_some_and(|value| !matches!(value.trim(), "" | "0"))
}

/// The variables that the worker gets, with their values.
pub fn for_worker() -> Vec<(String, String)> {
    let names = VARIABLES.iter().filter(|variable| variable.place == Place::Worker);
    names.filter_map(|variable| Some((variable.name.to_owned(), read(variable.name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_within_each_place_and_names_nothing_twice() {
        for place in [Place::Client, Place::Worker] {
            let names: Vec<_> = VARIABLES.iter().filter(|v| v.place == place).map(|v| v.name).collect();
            assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        }
        assert!(VARIABLES.iter().all(|variable| !variable.text.is_empty()));
    }

    #[test]
    fn the_worker_gets_only_its_own_variables() {
        assert!(for_worker().iter().all(|(name, _)| name != "CUDA_VISIBLE_DEVICES" && name != "CAUSEWAY_ON"));
    }
}
