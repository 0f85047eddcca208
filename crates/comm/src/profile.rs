//! Profile of channel costs: a text file in the user's cache.
//!
//! Each line describes one kind of pair (the GPU's model, how the driver is reached, what lies between the
//! ranks), a channel, a kind of traffic and a class of sizes: what such messages have cost. Others tell of a
//! kind of GPU what its copies cost the proxies of kernels. A file that makes no sense is not used, and the
//! next job that has something to tell writes a new one.

use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use causeway_config::file::candidates::is_absent;
use causeway_sync::threads;
use thiserror::Error;

use crate::channels::Channel;
use crate::scheduler::{Known, MAX_COST, MAX_SIZE_CLASS};
use crate::tracer::Traffic;

const HEAD: &str = "causeway comm profile 1";

/// The longest file that is read. A kind of pair has 7 KiB at most.
const MAX_BYTES: u64 = 1 << 20;

/// The kinds of pairs, and of GPUs, that are kept; others are not added.
const MAX_KINDS: usize = 100;

/// Stands for the channel in lines that describe a GPU's copies.
const COPIES: &str = "copies";

/// Why a profile is not used, or not kept.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// It cannot be read or written.
    #[error("the profile of channels {} cannot be read or written: {cause}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It makes no sense.
    #[error("the profile of channels {} is not used: line {line} is invalid; the file will be rewritten", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
}

/// What copies within a GPU cost a thread of the host that asks for them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyCosts {
    /// Nanoseconds from asking for a short one to its end being seen.
    pub latency: f64,
    /// Nanoseconds that a short one keeps the next one waiting.
    pub post: f64,
    /// Bytes a nanosecond (GB/s) of a long one.
    pub bandwidth: f64,
}

impl CopyCosts {
    /// None where no machine is like that.
    fn sound(latency: f64, post: f64, bandwidth: f64) -> Option<Self> {
        let is_sound = (1.0..=1e9).contains(&latency)
            && (0.0..=1e9).contains(&post)
            && (1e-6..=1e6).contains(&bandwidth);
        is_sound.then_some(Self { latency, post, bandwidth })
    }
}

/// What is known of each kind of pair, and of each kind of GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    kinds: BTreeMap<String, Known>,
    copies: BTreeMap<String, CopyCosts>,
}

impl Profile {
    /// What is known of a kind of pair.
    pub fn of(&self, kind: &str) -> Known {
        self.kinds.get(kind).cloned().unwrap_or_default()
    }

    /// Adds what has been found out about a kind of pair; what was known before of the same counts no more.
    pub fn learn(&mut self, kind: &str, found: &Known) {
        if found.all().next().is_none() || kind.contains(['\t', '\n']) {
            return;
        }
        if self.kinds.len() < MAX_KINDS || self.kinds.contains_key(kind) {
            let known = self.kinds.entry(kind.to_owned()).or_default();
            for (channel, traffic, class, cost) in found.all() {
                known.set(channel, traffic, class, cost);
            }
        }
    }

    /// What copies of a kind of GPU cost, if that is known.
    pub fn copies(&self, gpu: &str) -> Option<CopyCosts> {
        self.copies.get(gpu).copied()
    }

    /// Adds what copies of a kind of GPU cost; what was known before counts no more.
    pub fn learn_copies(&mut self, gpu: &str, costs: CopyCosts) {
        let has_capacity = self.copies.len() < MAX_KINDS || self.copies.contains_key(gpu);
        let CopyCosts { latency, post, bandwidth } = costs;
        if has_capacity && !gpu.contains(['\t', '\n']) && CopyCosts::sound(latency, post, bandwidth).is_some()
        {
            self.copies.insert(gpu.to_owned(), costs);
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (kind, known) in &self.kinds {
            for (channel, traffic, class, cost) in known.all() {
                let traffic = name(traffic);
                // Writing to a text does not fail.
                let _ = writeln!(text, "{kind}\t{channel}\t{traffic}\t{class}\t{cost}");
            }
        }
        for (gpu, CopyCosts { latency, post, bandwidth }) in &self.copies {
            let _ = writeln!(text, "{gpu}\t{COPIES}\t{latency}\t{post}\t{bandwidth}");
        }
        text
    }

    /// The profile of a text, or the number of the first line that makes no sense.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(1);
        }
        let mut profile = Self::default();
        for (number, line) in (2_usize..).zip(lines) {
            if let Some((gpu, costs)) = Self::line_of_copies(line) {
                profile.learn_copies(gpu, costs);
                continue;
            }
            let (kind, known) = Self::line(line).ok_or(number)?;
            profile.learn(kind, &known);
        }
        Ok(profile)
    }

    fn line_of_copies(line: &str) -> Option<(&str, CopyCosts)> {
        let fields: Vec<_> = line.split('\t').collect();
        let &[gpu, COPIES, latency, post, bandwidth] = fields.as_slice() else { return None };
        let number = |word: &str| word.parse::<f64>().ok();
        Some((gpu, CopyCosts::sound(number(latency)?, number(post)?, number(bandwidth)?)?))
    }

    fn line(line: &str) -> Option<(&str, Known)> {
        let fields: Vec<_> = line.split('\t').collect();
        let &[kind, channel, traffic, class, cost] = fields.as_slice() else { return None };
        let channel: Channel = channel.parse().ok()?;
        let traffic =
            [Traffic::Latency, Traffic::Bandwidth].into_iter().find(|known| name(*known) == traffic)?;
        let class = class.parse().ok().filter(|class| *class <= MAX_SIZE_CLASS)?;
        let cost = cost.parse().ok().filter(|cost| (1.0 / MAX_COST..=MAX_COST).contains(cost))?;
        let mut known = Known::default();
        known.set(channel, traffic, class, cost);
        Some((kind, known))
    }

    /// The one in a file; an empty one where there is no file.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let system = |cause| ProfileError::System { path: path.to_owned(), cause };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(cause) if is_absent(path, &cause) => return Ok(Self::default()),
            Err(cause) => return Err(system(cause)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(system)?;
        let damaged = |line| ProfileError::Damaged { path: path.to_owned(), line };
        let text = core::str::from_utf8(&bytes).map_err(|_| damaged(1))?;
        Self::parse(text).map_err(damaged)
    }

    /// Adds this to what the file has, for this user alone. Other jobs may do so at the same time: then one
    /// of them is not remembered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let mut all = Self::load(path).unwrap_or_default();
        for (kind, known) in &self.kinds {
            all.learn(kind, known);
        }
        for (gpu, costs) in &self.copies {
            all.learn_copies(gpu, *costs);
        }
        let write = || -> io::Result<()> {
            let folder = path.parent().unwrap_or(Path::new("."));
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            // Of its own, so that nobody reads half a file.
            let temporary = path.with_extension(format!("{}.new", std::process::id()));
            let written =
                threads::without_sigxfsz(|| File::create(&temporary)?.write_all(all.text().as_bytes()));
            written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
                // It is of no use.
                let _ = fs::remove_file(&temporary);
            })
        };
        write().map_err(|cause| ProfileError::System { path: path.to_owned(), cause })
    }
}

fn name(traffic: Traffic) -> &'static str {
    match traffic {
        Traffic::Latency => "latency",
        Traffic::Bandwidth => "bandwidth",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(costs: &[(Channel, u8, f64)]) -> Known {
        let mut known = Known::default();
        for (channel, class, cost) in costs {
            known.set(*channel, Traffic::Latency, *class, *cost);
        }
        known
    }

    #[test]
    fn what_one_job_writes_the_next_one_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/profile");
        assert_eq!(Profile::load(&path).unwrap(), Profile::default());
        let mut first = Profile::default();
        first.learn("H100, same GPU", &known(&[(Channel::Ipc, 13, 0.25), (Channel::Vmm, 13, 0.5)]));
        first.save(&path).unwrap();
        let mut second = Profile::default();
        second.learn("H100, same GPU", &known(&[(Channel::Vmm, 13, 0.125)]));
        second.learn("H200, peers", &known(&[(Channel::Staged, 64, 3.0)]));
        second.save(&path).unwrap();
        let both = Profile::load(&path).unwrap();
        let expected = known(&[(Channel::Ipc, 13, 0.25), (Channel::Vmm, 13, 0.125)]);
        assert_eq!(both.of("H100, same GPU"), expected);
        assert_eq!(both.of("H200, peers"), known(&[(Channel::Staged, 64, 3.0)]));
        assert_eq!(both.of("K80"), Known::default());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing lies beside it");
    }

    #[test]
    fn copies_of_gpus_are_remembered_beside_channels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        let drawn = f64::from(std::process::id());
        let costs = |factor| CopyCosts { latency: drawn * factor, post: 0.0, bandwidth: 1500.25 };
        let mut first = Profile::default();
        first.learn_copies("H100", costs(1.5));
        first.learn_copies("H200", costs(2.0));
        first.learn_copies("a\tname", costs(1.0));
        first.learn_copies("K80", CopyCosts { latency: f64::NAN, ..costs(1.0) });
        first.save(&path).unwrap();
        let mut second = Profile::default();
        second.learn("H100, same GPU", &known(&[(Channel::Ipc, 13, 0.25)]));
        second.learn_copies("H200", costs(3.0));
        second.save(&path).unwrap();
        let both = Profile::load(&path).unwrap();
        assert_eq!((both.copies("H100"), both.copies("H200")), (Some(costs(1.5)), Some(costs(3.0))));
        assert_eq!((both.copies("K80"), both.copies.len()), (None, 2));
        assert_eq!(both.of("H100, same GPU"), known(&[(Channel::Ipc, 13, 0.25)]));
        for line in [
            "H100\tcopies\t0\t1\t1",
            "H100\tcopies\t1\t-1\t1",
            "H100\tcopies\tinf\t1\t1",
            "H100\tcopies\t1\t1",
        ] {
            assert_eq!(Profile::parse(&format!("{HEAD}\n{line}\n")), Err(2), "{line}");
        }
    }

    #[test]
    fn a_damaged_file_is_named_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        for (text, line) in [
            ("", "line 1"),
            ("causeway comm profile 2\n", "line 1"),
            ("causeway comm profile 1\nK80\tipc\tlatency\t3\t1\nK80\tipc\tlatency\t3\n", "line 3"),
            ("causeway comm profile 1\nK80\tipc\tlatency\t65\t1\n", "line 2"),
            ("causeway comm profile 1\nK80\tipc\tlatency\t3\tNaN\n", "line 2"),
            ("causeway comm profile 1\nK80\tipc\tlatency\t3\t-1\n", "line 2"),
            ("causeway comm profile 1\nK80\tgdr\tlatency\t3\t1\n", "line 2"),
            ("causeway comm profile 1\nK80\tipc\tboth\t3\t1\n", "line 2"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Profile::load(&path).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains("profile"), "{text:?}: {error}");
        }
        let mut profile = Profile::default();
        profile.learn("K80", &known(&[(Channel::Ipc, 3, 1.0)]));
        profile.save(&path).unwrap();
        assert_eq!(Profile::load(&path).unwrap(), profile);
        assert!(matches!(Profile::load(folder.path()), Err(ProfileError::System { .. })));
    }

    #[test]
    fn the_kinds_that_are_kept_are_bounded() {
        let mut profile = Profile::default();
        for number in 0..2 * MAX_KINDS {
            profile.learn(&format!("GPU {number}"), &known(&[(Channel::Ipc, 3, 1.0)]));
        }
        profile.learn("a\tb", &known(&[(Channel::Ipc, 3, 1.0)]));
        assert_eq!(profile.kinds.len(), MAX_KINDS);
    }

    proptest! {
        #[test]
        fn any_text_is_a_profile_or_damaged(text in "(causeway comm profile 1\n)?[a-z0-9.\t\n-]{0,200}") {
            if let Ok(profile) = Profile::parse(&text) {
                prop_assert_eq!(Profile::parse(&profile.text()), Ok(profile));
            }
        }
    }
}
