//! Boards, with several ranks in one process: who is found, who is believed, and what others can do to them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway_comm::board::{BoardLocations, Mark, MediumKind, SLOT_BYTES, SlotError, Why};
use causeway_comm::{Board, BoardError, Identity, Job};

fn job(ranks: u32) -> Job {
    Job::new(Job::random_nonce().unwrap(), ranks).unwrap()
}

fn in_folder(folder: &Path) -> BoardLocations {
    BoardLocations { folders: vec![folder.to_owned()], system_v: false }
}

fn join(job: &Job, rank: u32, locations: &BoardLocations) -> Board {
    Board::join(job, rank, 0, Identity::of_this_process(None).unwrap(), locations).unwrap()
}

fn ranks(board: &Board) -> Vec<u32> {
    board.scan().ranks.iter().map(|seen| seen.slot.rank).collect()
}

/// The file of a job's board.
fn file(folder: &Path, job: &Job) -> PathBuf {
    folder.join(format!("causeway-comm-{}-0.board", job.name()))
}

/// Where a rank's slot lies in a board of so many ranks, as the documentation of the format says.
fn slot_at(ranks: u64, rank: u64) -> u64 {
    (128 + ranks).div_ceil(128) * 128 + 128 * rank
}

#[test]
fn ranks_find_each_other_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(8), in_folder(folder.path()));
    let boards: Vec<Board> = [5, 0, 3].iter().map(|rank| join(&job, *rank, &locations)).collect();
    for board in &boards {
        let scan = board.scan();
        assert_eq!((ranks(board), scan.local_count()), (vec![0, 3, 5], 3));
        assert_eq!((scan.local_order(3), scan.local_order(5), scan.local_order(4)), (Some(1), Some(2), None));
        assert_eq!(scan.get(5).unwrap().slot, *boards[0].slot());
        assert!(scan.disbelieved.is_empty());
    }
}

#[test]
fn system_v_memory_alone_is_enough() {
    let (job, locations) = (job(4), BoardLocations { folders: Vec::new(), system_v: true });
    let (zero, two) = (join(&job, 0, &locations), join(&job, 2, &locations));
    assert_eq!((ranks(&zero), ranks(&two)), (vec![0, 2], vec![0, 2]));
    let seen = zero.scan().get(2).unwrap().clone();
    assert_eq!(seen.media, [MediumKind::SystemV]);
    assert!(zero.lives(&seen));
    zero.forget_names().unwrap();
    drop(two);
    assert!(!zero.lives(&seen));
    assert_eq!(ranks(&zero), [0]);
}

#[test]
fn several_media_show_a_rank_once() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(4);
    let both = BoardLocations { system_v: true, ..in_folder(folder.path()) };
    let (zero, one) = (join(&job, 0, &both), join(&job, 1, &in_folder(folder.path())));
    zero.forget_names().unwrap();
    let scan = zero.scan();
    assert_eq!(scan.get(0).unwrap().media.len(), 2);
    assert_eq!(scan.get(1).unwrap().media, [MediumKind::Folder(folder.path().to_owned())]);
    assert_eq!(ranks(&one), [0, 1]);
}

#[test]
fn a_million_ranks_cost_what_those_who_are_here_need() {
    const RANKS: u32 = 1_000_000;
    let folder = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let (job, locations) = (job(RANKS), in_folder(folder.path()));
    let here = [0, 1, 499_999, 999_998, 999_999];
    let boards: Vec<Board> = here.iter().map(|rank| join(&job, *rank, &locations)).collect();
    let begun = std::time::Instant::now();
    assert_eq!(ranks(&boards[0]), here);
    println!("one scan of {RANKS} ranks took {:?}", begun.elapsed());
    let found = fs::metadata(file(folder.path(), &job)).unwrap();
    // 129 bytes a rank and a head; of that, pages where something was written.
    assert_eq!(found.len(), 129_000_192);
    assert!(found.blocks() * 512 <= 16 * 4096, "{} bytes are used", found.blocks() * 512);
}

#[test]
fn every_rank_of_a_large_job_is_found() {
    const RANKS: u32 = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(RANKS), in_folder(folder.path()));
    let boards: Vec<Board> = (0..RANKS).step_by(3).map(|rank| join(&job, rank, &locations)).collect();
    assert!(ranks(&boards[7]).into_iter().eq((0..RANKS).step_by(3)));
}

#[test]
fn who_has_gone_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(4), in_folder(folder.path()));
    let (zero, one) = (join(&job, 0, &locations), join(&job, 1, &locations));
    let seen = zero.scan().get(1).unwrap().clone();
    assert!(zero.lives(&seen));
    // What a process leaves that was killed: its slot and its mark, without the lock.
    let left = one.slot().clone();
    drop(one);
    let board = OpenOptions::new().write(true).open(file(folder.path(), &job)).unwrap();
    board.write_all_at(&left.encode(job.tag()), slot_at(4, 1)).unwrap();
    board.write_all_at(&[Mark::present(0, false).0], 128 + 1).unwrap();
    let scan = zero.scan();
    assert_eq!((ranks(&zero), &scan.disbelieved[0].why), (vec![0], &Why::Dead));
    assert!(!zero.lives(&seen));
    // The rank may be taken by the process that comes in its place.
    let again = join(&job, 1, &locations);
    assert_eq!(ranks(&again), [0, 1]);
}

#[test]
fn a_rank_is_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(4), in_folder(folder.path()));
    let _one = join(&job, 1, &locations);
    let error = Board::join(&job, 1, 0, Identity::of_this_process(None).unwrap(), &locations)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("another process claims to be rank 1") && error.contains("CAUSEWAY_SOCKET_DIR"),
        "{error}"
    );
}

#[test]
fn jobs_do_not_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let locations = BoardLocations { system_v: true, ..in_folder(folder.path()) };
    let (first, second) = (job(4), job(4));
    let boards = [join(&first, 0, &locations), join(&second, 1, &locations)];
    assert_eq!((ranks(&boards[0]), ranks(&boards[1])), (vec![0], vec![1]));
    boards.iter().for_each(|board| board.forget_names().unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn nowhere_to_meet_is_an_error_that_says_what_to_do() {
    let gone = tempfile::tempdir().unwrap().path().join("gone");
    let error = Board::join(&job(2), 0, 0, Identity::of_this_process(None).unwrap(), &in_folder(&gone));
    let text = error.unwrap_err().to_string();
    assert!(text.contains("gone cannot be used") && text.contains("CAUSEWAY_SOCKET_DIR"), "{text}");
    let rank = Board::join(&job(2), 2, 0, Identity::of_this_process(None).unwrap(), &in_folder(&gone));
    assert!(matches!(rank, Err(BoardError::Job(_))));
}

/// What comes of joining where this lies already.
fn joined_over(put: impl FnOnce(&Path)) -> Result<Board, String> {
    let folder = tempfile::tempdir().unwrap();
    let job = job(4);
    put(&file(folder.path(), &job));
    let identity = Identity::of_this_process(None).unwrap();
    Board::join(&job, 0, 0, identity, &in_folder(folder.path())).map_err(|error| error.to_string())
}

#[test]
fn what_lies_there_already_is_looked_at() {
    let refused = |put: &dyn Fn(&Path)| joined_over(put).unwrap_err();
    let foreign = |text: String| assert!(text.contains("belongs to another user or is accessible"), "{text}");
    let other = |text: String| assert!(text.contains("not a board of this job"), "{text}");
    // A name that leads elsewhere, a folder, a pipe, a file that others may write to, and one with a second
    // name.
    foreign(refused(&|path| symlink("/etc/passwd", path).unwrap()));
    assert!(joined_over(|path| fs::create_dir(path).unwrap()).is_err());
    foreign(refused(&|path| {
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    }));
    foreign(refused(&|path| drop(File::create(path).unwrap())));
    foreign(refused(&|path| {
        make(path, b"");
        fs::hard_link(path, path.with_extension("second")).unwrap();
    }));
    // Another length, and another content of the right length.
    other(refused(&|path| make(path, b"short")));
    other(refused(&|path| make(path, &[1; 128 + 128 + 4 * SLOT_BYTES])));
    // An empty file is a board that nobody has written to.
    assert!(joined_over(|path| make(path, b"")).is_ok());
}

/// A file of this user alone.
fn make(path: &Path, content: &[u8]) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all_at(content, 0).unwrap();
}

#[test]
fn bytes_of_others_on_the_board_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(4), in_folder(folder.path()));
    let (zero, one) = (join(&job, 0, &locations), join(&job, 1, &locations));
    let board = OpenOptions::new().write(true).open(file(folder.path(), &job)).unwrap();
    let why = |rank: usize| {
        let scan = zero.scan();
        assert_eq!(scan.local_order(0), Some(0));
        scan.disbelieved.iter().find(|doubt| doubt.rank as usize == rank).map(|doubt| doubt.why.clone())
    };
    // A mark without a slot, a slot of another rank, one of another job, one of another epoch, one that is
    // torn.
    board.write_all_at(&[1], 128 + 2).unwrap();
    assert_eq!(why(2), Some(Why::Slot(SlotError::Magic)));
    board.write_all_at(&one.slot().encode(job.tag()), slot_at(4, 2)).unwrap();
    assert_eq!(why(2), Some(Why::Slot(SlotError::Rank(1))));
    board.write_all_at(&one.slot().encode(job.tag() + 1), slot_at(4, 1)).unwrap();
    assert_eq!(why(1), Some(Why::Slot(SlotError::Job)));
    let mut later = one.slot().clone();
    later.epoch = 9;
    board.write_all_at(&later.encode(job.tag()), slot_at(4, 1)).unwrap();
    assert_eq!(why(1), Some(Why::Epoch(9)));
    board.write_all_at(&[0xff], slot_at(4, 1) + 20).unwrap();
    assert_eq!(why(1), Some(Why::Slot(SlotError::Sum)));
    // All marks set, and every slot nonsense.
    board.write_all_at(&[0xff; 4], 128).unwrap();
    board.write_all_at(&[0xff; 4 * SLOT_BYTES], slot_at(4, 0)).unwrap();
    let scan = zero.scan();
    assert_eq!((scan.local_count(), scan.disbelieved.len()), (1, 3));
    // A file that has become shorter: an error, where a mapped one would be a signal.
    board.set_len(64).unwrap();
    let scan = zero.scan();
    assert!(matches!(scan.disbelieved.as_slice(), [doubt] if matches!(doubt.why, Why::Unreadable(_))));
    assert_eq!(zero.mark_of(1), Mark::ABSENT);
}

#[test]
fn a_rank_that_moves_says_so_and_meets_the_others_on_the_next_board() {
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(2), in_folder(folder.path()));
    let (zero, one) = (join(&job, 0, &locations), join(&job, 1, &locations));
    assert!(!zero.mark_of(1).is_moving());
    one.announce_move().unwrap();
    assert!(zero.mark_of(1).is_moving());
    let next =
        |rank| Board::join(&job, rank, 1, Identity::of_this_process(None).unwrap(), &locations).unwrap();
    let (zero_then, one_then) = (next(0), next(1));
    assert_eq!((ranks(&zero_then), one_then.scan().get(0).unwrap().slot.epoch), (vec![0, 1], 1));
    drop(one);
    assert_eq!(ranks(&zero), [0]);
    assert_eq!(zero.mark_of(7), Mark::ABSENT);
}

#[test]
fn what_jobs_have_left_behind_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let locations = in_folder(folder.path());
    let (left, living, young, own) = (job(2), job(2), job(2), job(2));
    drop(join(&left, 0, &locations));
    let socket = folder.path().join(format!("causeway-comm-{}-0.1", left.name()));
    let other = folder.path().join(format!("causeway-comm-{}-0.txt", left.name()));
    for path in [&socket, &other] {
        fs::write(path, "").unwrap();
    }
    let lives = join(&living, 0, &locations);
    drop(join(&young, 0, &locations));
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for job in [&left, &living] {
        let opened = OpenOptions::new().write(true).open(file(folder.path(), job)).unwrap();
        opened.set_modified(long_ago).unwrap();
    }
    join(&own, 1, &locations);
    let is_there = |path: &Path| path.exists();
    assert!(!is_there(&file(folder.path(), &left)) && !is_there(&socket));
    assert!(is_there(&other), "files of other kinds stay");
    for (job, what) in [(&living, "a rank lives"), (&young, "ranks may be about to join"), (&own, "its own")]
    {
        assert!(is_there(&file(folder.path(), job)), "{what}");
    }
    assert_eq!(ranks(&lives), [0]);
}

/// Makes a file or socket look as if it had been made an hour ago.
fn make_old(path: &Path) {
    let ago = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - Duration::from_secs(3600);
    let time = libc::timespec { tv_sec: ago.as_secs() as i64, tv_nsec: 0 };
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a zero, and there are two times.
    assert_eq!(unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), [time, time].as_ptr(), 0) }, 0);
}

#[test]
fn sockets_whose_board_has_gone_are_swept_when_nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let socket = |job: &Job| folder.path().join(format!("causeway-comm-{}-0.1", job.name()));
    let (left, young, living) = (job(2), job(2), job(2));
    let [_, _, _lives] = [&left, &young, &living].map(|job| UnixListener::bind(socket(job)).unwrap());
    for job in [&left, &living] {
        make_old(&socket(job));
    }
    join(&job(2), 0, &in_folder(folder.path()));
    assert_eq!([&left, &young, &living].map(|job| socket(job).exists()), [false, true, true]);
}

#[test]
fn a_child_made_by_fork_does_not_keep_its_parent_alive() {
    let folder = tempfile::tempdir().unwrap();
    let (job, locations) = (job(2), in_folder(folder.path()));
    let (other, parent) = (join(&job, 0, &locations), join(&job, 1, &locations));
    let (mut ends, mut ready, mut byte) = ([0; 2], [0; 2], 0_u8);
    // SAFETY: there is room for two descriptors each.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) | libc::pipe(ready.as_mut_ptr()) }, 0);
    // SAFETY: the child makes async-signal-safe calls alone, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: there is room for the byte; the read ends when the parent closes the other end.
        unsafe {
            libc::close(ends[1]);
            libc::write(ready[1], (&raw const byte).cast(), 1);
            libc::read(ends[0], (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    }
    assert!(child > 0);
    // SAFETY: there is room for the byte. The child has come back from `fork` when it has written.
    assert_eq!(unsafe { libc::read(ready[0], (&raw mut byte).cast(), 1) }, 1);
    let seen = other.scan().get(1).unwrap().clone();
    assert!(other.lives(&seen));
    drop(parent);
    let lives = other.lives(&seen);
    let mut status = 0;
    // SAFETY: all are this test's, as is the child.
    unsafe {
        libc::close(ends[1]);
        libc::waitpid(child, &raw mut status, 0);
        for end in [ends[0], ready[0], ready[1]] {
            libc::close(end);
        }
    }
    assert!(!lives && status == 0, "{lives} {status}");
}
