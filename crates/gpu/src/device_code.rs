//! Device code: unpacking of fat binaries, the memory that code takes, and reports of compilers and linkers.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Read;

use causeway_api::handle::{Context, Library, Module, Native};
use causeway_api::image::{Entry, Packing};
use causeway_api::types::JitReport;
use parking_lot::Mutex;

/// The bytes of an entry, unpacked; nothing when they are damaged or more than `most`.
pub fn unpack<'a>(entry: &Entry<'a>, max_bytes: u64) -> Option<Cow<'a, [u8]>> {
    match entry.packing {
        Packing::Plain => (entry.payload.len() as u64 <= max_bytes).then_some(Cow::Borrowed(entry.payload)),
        Packing::Lz4 => {
            let bytes =
                usize::try_from(entry.unpacked_bytes).ok().filter(|_| entry.unpacked_bytes <= max_bytes)?;
            lz4_flex::block::decompress(entry.payload, bytes).ok().map(Cow::Owned)
        }
        Packing::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(entry.payload).ok()?;
            let mut unpacked = Vec::new();
            let bytes = decoder.take(max_bytes.saturating_add(1)).read_to_end(&mut unpacked).ok()?;
            (bytes as u64 <= max_bytes).then_some(Cow::Owned(unpacked))
        }
    }
}

/// Reports that nobody has asked for; the oldest goes when there are more.
const MAX_REPORTS: usize = 64;

/// The reports of a session by the numbers that the client chose.
#[derive(Default)]
pub struct Reports(Mutex<VecDeque<(u64, JitReport)>>);

impl Reports {
    /// Keeps a report in place of an older one of the same number; 0 says that nobody will ask for it.
    pub fn put(&self, number: u64, report: JitReport) {
        if number == 0 {
            return;
        }
        let mut reports = self.0.lock();
        reports.retain(|(kept, _)| *kept != number);
        reports.push_back((number, report));
        if reports.len() > MAX_REPORTS {
            reports.pop_front();
        }
    }

    /// Takes a report out; an empty one when there is none.
    pub fn take(&self, number: u64) -> JitReport {
        let mut reports = self.0.lock();
        let index = reports.iter().position(|(kept, _)| *kept == number);
        index.and_then(|index| reports.remove(index)).map(|(_, report)| report).unwrap_or_default()
    }
}

/// What has been loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOwner {
    /// A module.
    Module(Native<Module>),
    /// A library, in one of the contexts that use it.
    Library(Native<Library>),
}

/// Code that a session has loaded, as it came.
#[derive(Debug, Clone, Copy)]
pub struct LoadedCode<'a> {
    /// What it has become.
    pub owner: CodeOwner,
    /// In which context it was loaded.
    pub context: Native<Context>,
    /// The number of its [`Form`](causeway_api::image::Form).
    pub form: u32,
    /// Its bytes.
    pub image: &'a [u8],
}

/// The variables of a module, or of a library in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMemory {
    /// What they belong to.
    pub owner: CodeOwner,
    /// In which context.
    pub context: Native<Context>,
    /// First address and size of each range, in the order in which the back end has allocated them.
    pub ranges: Vec<(u64, u64)>,
    /// Its variables in the order of the image, where the back end cannot load code at addresses of another
    /// process and somebody else has to find them again; else nothing.
    pub variables: Vec<CodeVariable>,
}

/// A variable of loaded code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeVariable {
    /// Its name in the image.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Where it holds addresses that were put there when it was loaded, from its beginning.
    pub pointers: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use causeway_api::image::EntryKind;

    use super::*;

    fn entry(packing: Packing, payload: &[u8], unpacked_bytes: u64) -> Entry<'_> {
        Entry { kind: EntryKind::Ptx, architecture: 90, packing, payload, unpacked_bytes }
    }

    #[test]
    fn every_packing_is_undone_within_its_limit() {
        let lz4 = lz4_flex::block::compress(b"text text text text");
        let zstd = ruzstd::encoding::compress_to_vec(
            &b"text text text text"[..],
            ruzstd::encoding::CompressionLevel::Uncompressed,
        );
        for (packing, payload) in
            [(Packing::Plain, &b"text text text text"[..]), (Packing::Lz4, &lz4), (Packing::Zstd, &zstd)]
        {
            assert_eq!(
                unpack(&entry(packing, payload, 19), 19).as_deref(),
                Some(&b"text text text text"[..])
            );
            assert_eq!(unpack(&entry(packing, payload, 19), 18), None);
        }
    }

    #[test]
    fn damaged_entries_unpack_to_nothing() {
        assert_eq!(unpack(&entry(Packing::Zstd, b"no zstd frame", 100), 100), None);
        assert_eq!(unpack(&entry(Packing::Lz4, b"\0", u64::MAX), 100), None);
        assert_eq!(unpack(&entry(Packing::Lz4, b"\xff", 100), 100), None);
    }

    #[test]
    fn a_report_is_given_once_and_old_ones_go() {
        let reports = Reports::default();
        let report = |errors: &str| JitReport { errors: errors.into(), ..JitReport::default() };
        for number in 0..=MAX_REPORTS as u64 + 1 {
            reports.put(number, report("old"));
        }
        reports.put(9, report("new"));
        assert_eq!(reports.take(9), report("new"));
        assert_eq!(reports.take(9), JitReport::default());
        assert_eq!((reports.take(0), reports.take(1)), (JitReport::default(), JitReport::default()));
        assert_eq!(reports.take(2), report("old"));
    }
}
