//! Jobs of two ranks: their start, and what they report.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use causeway_comm::Job;

use crate::rank::{TASK, Task};

/// How long a job may take, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(240);

/// A rank that is to be started.
#[derive(Clone, Default)]
pub struct Rank {
    /// The network namespace, where not the one here.
    pub host: Option<&'static str>,
    pub variables: Vec<(&'static str, String)>,
}

/// What a rank has said for the test, and on standard error.
pub struct Ended {
    pub is_ok: bool,
    pub said: Vec<String>,
    pub trouble: String,
}

impl Ended {
    /// Messages that it has received by a channel.
    pub fn messages(&self, channel: &str) -> u64 {
        let word = format!("{channel} ");
        self.said.iter().filter_map(|line| line.strip_prefix(&word)?.parse::<u64>().ok()).sum()
    }
}

/// The library of the GPU that is none, compiled once.
fn fake_gpu() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/channels/fake_gpu.c");
        // Another run may use the one that is there.
        let [new, library] = [format!("fake-gpu-{}", std::process::id()), "libcuda.so.1".to_owned()];
        let [new, library] = [new, library].map(|name| folder.join(name));
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]);
        compiler.arg(&new).arg(source).args(["-ldl", "-lpthread"]);
        assert!(compiler.status().unwrap().success(), "{compiler:?}");
        std::fs::rename(new, &library).unwrap();
        library
    });
    built.clone()
}

/// A seed for random messages, which is printed.
pub fn seed() -> u64 {
    let set = std::env::var("CAUSEWAY_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
    let drawn = || u64::from_le_bytes(*Job::random_nonce().unwrap().first_chunk().unwrap());
    let seed = set.unwrap_or_else(drawn);
    println!("CAUSEWAY_TEST_SEED={seed}");
    seed
}

/// Ends what is still running.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs two ranks that send each other messages.
pub fn run(ranks: &[Rank; 2], channels: &str, messages: u64, sender_dies: bool) -> [Ended; 2] {
    run_job(Job::random_nonce().unwrap(), ranks, channels, messages, sender_dies)
}

/// The same as the job of this nonce.
pub fn run_job(
    nonce: [u8; 16],
    ranks: &[Rank; 2],
    channels: &str,
    messages: u64,
    sender_dies: bool,
) -> [Ended; 2] {
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let library = fake_gpu();
    let program = std::env::current_exe().unwrap();
    let mut running = [0, 1].map(|rank| {
        let Rank { host, variables } = &ranks[rank as usize];
        let mut command = match host {
            Some(host) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", host]).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        command.args(["--exact", "rank", "--nocapture"]);
        command.env(TASK, Task::new(nonce, rank, seed, messages, sender_dies).text());
        command.env("CAUSEWAY_COMM_CHANNELS", channels).env("CAUSEWAY_SOCKET_DIR", folder.path());
        command.env("CAUSEWAY_CACHE_DIR", "").env("LD_PRELOAD", &library);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    });
    let [one, two] = &mut running;
    let [(mut to_one, from_one, error_one), (mut to_two, from_two, error_two)] = [one, two].map(|running| {
        let child = &mut running.0;
        (child.stdin.take().unwrap(), child.stdout.take().unwrap(), child.stderr.take().unwrap())
    });
    let pass = |from: std::process::ChildStdout, mut to: Option<std::process::ChildStdin>| {
        std::thread::spawn(move || {
            let mut said = Vec::new();
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let (Some(word), Some(other)) = (line.strip_prefix("> "), &mut to) {
                    // The other one may have ended, which it tells by itself.
                    let _ = writeln!(other, "{word}");
                } else if let Some(word) = line.strip_prefix("# ") {
                    said.push(word.to_owned());
                }
            }
            said
        })
    };
    let collect = |mut from: std::process::ChildStderr| {
        std::thread::spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).unwrap_or(0);
            text
        })
    };
    to_one.flush().unwrap();
    to_two.flush().unwrap();
    let said = [pass(from_one, Some(to_two)), pass(from_two, Some(to_one))];
    let trouble = [collect(error_one), collect(error_two)];
    let until = Instant::now() + LIMIT;
    let mut statuses = [None, None];
    while statuses.iter().any(Option::is_none) && Instant::now() < until {
        for (status, running) in statuses.iter_mut().zip(&mut running) {
            *status = status.or_else(|| running.0.try_wait().unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(running);
    let mut ended = said.into_iter().zip(trouble).zip(statuses).map(|((said, trouble), status)| Ended {
        is_ok: status.is_some_and(|status| status.success()),
        said: said.join().unwrap(),
        trouble: trouble.join().unwrap(),
    });
    [ended.next().unwrap(), ended.next().unwrap()]
}

/// Runs two ranks all of whose messages must come by one channel. Gives what both have said on standard
/// error.
pub fn all_come(ranks: &[Rank; 2], channel: &str, messages: u64) -> String {
    let ended = run(ranks, channel, messages, false);
    let trouble = format!("-- rank 0\n{}\n-- rank 1\n{}", ended[0].trouble, ended[1].trouble);
    for one in &ended {
        assert!(one.is_ok, "{channel}: {:?}\n{trouble}", one.said);
    }
    assert_eq!(ended.iter().map(|one| one.messages(channel)).sum::<u64>(), messages, "{channel}");
    trouble
}
