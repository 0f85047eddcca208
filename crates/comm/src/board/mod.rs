//! Boards: which ranks are on this host, and which of them live.
//!
//! A board is a list of all ranks of a job in something that the processes of a host share: a folder,
//! `/dev/shm`, System V memory. A rank writes only its own slot, without locks; who has written
//! is found by one pass over a byte a rank. What containers share is not known beforehand, so every rank has
//! a board in each medium that it reaches, and meets in each of them those who reach it as well.
//!
//! A place in the list proves nothing: processes end without a word. A rank counts when the kernel says that
//! its process lives, by a lock on the file or by a segment that is attached. Process ids are not asked: each
//! container has its own.

mod file;
mod medium;
mod scan;
mod slot;
mod system_v;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub(crate) use file::open_folder;
pub(crate) use medium::FILE_PREFIX;
pub use medium::{MediumError, MediumKind};
pub use scan::{Disbelieved, Scan, Seen, Why};
pub use slot::{Mark, SLOT_BYTES, Slot, SlotError};

use crate::identity::Identity;
use crate::job::{Job, JobError};
use file::FileMedium;
use medium::Medium;
use slot::Layout;
use system_v::SystemVMedium;

/// Where boards may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardLocations {
    /// Folders, each of which gets one.
    pub folders: Vec<PathBuf>,
    /// Whether System V memory is used.
    pub system_v: bool,
}

impl BoardLocations {
    /// The folder that the user names, if any, `/dev/shm`, and System V memory.
    pub fn defaults(named: Option<PathBuf>) -> Self {
        let mut folders: Vec<PathBuf> = named.into_iter().collect();
        let shared = PathBuf::from("/dev/shm");
        if !folders.contains(&shared) {
            folders.push(shared);
        }
        Self { folders, system_v: true }
    }
}

/// Why a rank has no board.
#[derive(Debug, Error)]
pub enum BoardError {
    /// No such rank.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Nothing can hold one.
    #[error(
        "this rank cannot find the other ranks of this host: {}. Let the containers share a folder, and name \
         it in CAUSEWAY_SOCKET_DIR", sentences(.0)
    )]
    Nowhere(Vec<MediumError>),
}

fn sentences(errors: &[MediumError]) -> String {
    if errors.is_empty() {
        return "no place for a board was named".to_owned();
    }
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A rank's places on the boards of its host. They are free again when this value is dropped.
#[derive(Debug)]
pub struct Board {
    job: Job,
    slot: Slot,
    media: Vec<Box<dyn Medium>>,
    refused: Vec<MediumError>,
}

impl Board {
    /// Puts a rank on every board that it reaches. Ranks of one epoch meet; a rank that moves leaves with the
    /// last epoch's board and joins the next one's.
    ///
    /// # Errors
    /// When the job has no such rank, or no place can hold a board.
    pub fn join(
        job: &Job,
        rank: u32,
        epoch: u32,
        identity: Identity,
        locations: &BoardLocations,
    ) -> Result<Self, BoardError> {
        let rank = job.check(rank)?;
        let mut board = Self {
            job: job.clone(),
            slot: Slot { rank, epoch, identity, segment: None },
            media: Vec::new(),
            refused: Vec::new(),
        };
        for folder in &locations.folders {
            board.keep(FileMedium::open(folder, job, epoch).map(|medium| Box::new(medium) as _));
        }
        if locations.system_v {
            board.keep(SystemVMedium::open(job, epoch).map(|medium| Box::new(medium) as _));
        }
        if board.media.is_empty() {
            return Err(BoardError::Nowhere(core::mem::take(&mut board.refused)));
        }
        board.publish();
        Ok(board)
    }

    /// Keeps a medium in which this rank can show that it lives.
    fn keep(&mut self, opened: Result<Box<dyn Medium>, MediumError>) {
        let proved = opened.and_then(|mut medium| match medium.prove(self.slot.rank) {
            Ok(segment) => {
                self.slot.segment = segment.or(self.slot.segment);
                Ok(medium)
            }
            Err(cause) => {
                let location = medium.kind().to_string();
                Err(MediumError::System { location, what: "showing that this rank is alive", cause })
            }
        });
        match proved {
            Ok(medium) => self.media.push(medium),
            Err(error) => self.refused.push(error),
        }
    }

    /// Writes the slot, and then the mark that says so.
    fn publish(&mut self) {
        let bytes = self.slot.encode(self.job.tag());
        let layout = self.layout();
        let (rank, mark) = (self.slot.rank, Mark::present(self.slot.epoch, false));
        let write = |medium: &dyn Medium| {
            medium.write(layout.slot(rank), &bytes).and_then(|()| medium.write(layout.mark(rank), &[mark.0]))
        };
        let mut usable = Vec::new();
        for medium in core::mem::take(&mut self.media) {
            match write(&*medium) {
                Ok(()) => usable.push(medium),
                Err(cause) => {
                    let location = medium.kind().to_string();
                    self.refused.push(MediumError::System {
                        location,
                        what: "writing this rank's slot",
                        cause,
                    });
                }
            }
        }
        self.media = usable;
    }

    fn layout(&self) -> Layout {
        Layout { ranks: self.job.ranks() }
    }

    /// What this rank has written.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Where boards lie.
    pub fn media(&self) -> impl Iterator<Item = MediumKind> + '_ {
        self.media.iter().map(|medium| medium.kind())
    }

    /// Why there is none elsewhere.
    pub fn refused(&self) -> &[MediumError] {
        &self.refused
    }

    /// Looks once for all ranks of this host: a copy of what they say, which changes no more. Everybody must
    /// have joined before, as after a barrier.
    pub fn scan(&self) -> Scan {
        scan::scan(&self.media, self.layout(), self.job.tag(), &self.slot)
    }

    /// Whether another rank still lives, as far as a board tells on which it was seen.
    pub fn lives(&self, seen: &Seen) -> bool {
        let on = self.media.iter().filter(|medium| seen.media.contains(&medium.kind()));
        on.map(|medium| medium.lives(seen.slot.rank, seen.slot.segment))
            .any(|lives| matches!(lives, Ok(true)))
    }

    /// Says that this rank is about to move: it lets what is under way come to its end, and starts nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn announce_move(&self) -> io::Result<()> {
        self.mark(Mark::present(self.slot.epoch, true))
    }

    /// What was said of a move is taken back.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn announce_stay(&self) -> io::Result<()> {
        self.mark(Mark::present(self.slot.epoch, false))
    }

    /// Leaves all boards: this rank is seen on none any more, until it joins again.
    pub fn leave(&mut self) {
        // What cannot be written is noticed by the sign of life, which goes as well.
        let _ = self.mark(Mark::ABSENT);
        self.media.clear();
    }

    /// The mark of a rank now; absent where none can be read.
    pub fn mark_of(&self, rank: u32) -> Mark {
        let read = |medium: &dyn Medium| {
            let mut mark = [0];
            medium.read(self.layout().mark(rank), &mut mark).map_or(Mark::ABSENT, |()| Mark(mark[0]))
        };
        let marks = self.media.iter().map(|medium| read(&**medium));
        marks.max_by_key(|mark| mark.0).filter(|_| rank < self.job.ranks()).unwrap_or(Mark::ABSENT)
    }

    fn mark(&self, mark: Mark) -> io::Result<()> {
        let at = self.layout().mark(self.slot.rank);
        self.media.iter().try_for_each(|medium| medium.write(at, &[mark.0]))
    }

    /// Takes the name of the board in System V memory away when all ranks of the job have been seen, as
    /// [`forget_names`](Self::forget_names) does of all boards. Nothing shows that its ranks have ended when
    /// it is left behind but that nobody has it attached, and there are few such segments on a host.
    ///
    /// # Errors
    /// When the name cannot be removed.
    pub fn forget_segment(&self) -> io::Result<()> {
        let segments = self.media.iter().filter(|medium| medium.kind() == MediumKind::SystemV);
        segments.into_iter().try_for_each(|medium| medium.forget_name())
    }

    /// Takes the boards' names away, so that nothing is left behind however processes end. To be called when
    /// all ranks have joined; those who come later find another board.
    ///
    /// # Errors
    /// When a name cannot be removed.
    pub fn forget_names(&self) -> io::Result<()> {
        self.media.iter().try_for_each(|medium| medium.forget_name())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.leave();
    }
}
