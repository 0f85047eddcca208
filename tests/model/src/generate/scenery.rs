//! Buffers, streams and graphs of a random program.

use super::{Profile, Setting};
use crate::program::{
    Buffer, BufferKind, CopyForm, GraphPlan, Program, Region, Step, Stream, StreamKind, Work,
};
use fastrand::Rng;

/// Sizes around the limits at which drivers and transports change their ways.
const SIZES: [usize; 14] =
    [256, 1000, 4092, 4096, 4100, 12_288, 16_384, 65_280, 65_532, 65_536, 65_792, 131_072, 262_144, 263_168];
const LONG_SIZES: [usize; 5] = [262_140, 1 << 20, (1 << 20) + 4096, 2 << 20, 4 << 20];

/// A size for a buffer.
pub fn size(profile: Profile, rng: &mut Rng) -> usize {
    let long = match profile {
        Profile::Small => rng.u32(..100) < 2,
        Profile::Long => rng.u32(..100) < 40,
    };
    if long { LONG_SIZES[rng.usize(..LONG_SIZES.len())] } else { SIZES[rng.usize(..SIZES.len())] }
}

/// A kind of memory of the host that streams copy from and to.
pub fn locked_kind(rng: &mut Rng) -> BufferKind {
    match rng.u32(..10) {
        0..4 => BufferKind::Pinned,
        4..8 => BufferKind::Registered,
        _ => BufferKind::Mapped,
    }
}

/// A program without operations: only the legacy default stream of each device.
pub fn empty(seed: u64, kind: &'static str, devices: usize, threads: usize, setting: &Setting) -> Program {
    let legacy = |device| Stream { device, kind: StreamKind::Legacy };
    Program {
        seed,
        kind,
        devices,
        threads,
        events: Vec::new(),
        streams: (0..devices).map(legacy).collect(),
        buffers: Vec::new(),
        graphs: Vec::new(),
        words: 0,
        uploads_wait: setting.uploads_wait,
        host_order: setting.host_order,
        host_sources: setting.host_sources,
        ops: Vec::new(),
    }
}

/// The scenery of a random program.
pub fn random(seed: u64, setting: &Setting, rng: &mut Rng) -> Program {
    let devices = if setting.devices > 1 && rng.u32(..3) == 0 { 2 } else { 1 };
    let threads = if rng.u32(..5) == 0 { rng.usize(2..=3) } else { 1 };
    let mut program = empty(seed, super::RANDOM, devices, threads, setting);
    for device in 0..devices {
        for _ in 0..rng.usize(if devices == 1 { 1..=4 } else { 1..=2 }) {
            let kind = if rng.u32(..3) == 0 { StreamKind::Blocking } else { StreamKind::NonBlocking };
            program.streams.push(Stream { device, kind });
        }
        if rng.u32(..4) == 0 {
            let kind = StreamKind::PerThread(rng.usize(..threads));
            program.streams.push(Stream { device, kind });
        }
        program.events.extend([device; 3]);
    }
    buffers(&mut program, setting, rng);
    if setting.values && threads == 1 && rng.u32(..6) == 0 {
        program.words = 2;
        // Nothing but the release of other streams goes into this one.
        program.streams.push(Stream { device: 0, kind: StreamKind::NonBlocking });
    }
    for _ in 0..[0, 0, 1, 2][rng.usize(..4)] {
        let device = rng.usize(..devices);
        if let Some(graph) = graph(&program, device, rng) {
            program.graphs.push(graph);
        }
    }
    program
}

fn buffers(program: &mut Program, setting: &Setting, rng: &mut Rng) {
    // Half of the programs have buffers of one size, so that whole buffers are copied to each other.
    let common = rng.bool().then(|| size(setting.profile, rng));
    let devices = program.devices;
    let mut add = |kind, device, initial, rng: &mut Rng| {
        let size = common.unwrap_or_else(|| size(setting.profile, rng));
        program.buffers.push(Buffer { kind, size, device, initial });
    };
    for device in 0..devices {
        for _ in 0..rng.usize(1..=2) {
            add(BufferKind::Device, device, true, rng);
        }
    }
    for _ in 0..rng.usize(1..=3) {
        add(locked_kind(rng), rng.usize(..devices), true, rng);
    }
    if rng.u32(..3) == 0 {
        add(BufferKind::Pageable, 0, true, rng);
    }
    if setting.managed && rng.u32(..5) == 0 {
        add(BufferKind::Managed, rng.usize(..devices), true, rng);
    }
    for _ in 0..[0, 0, 1, 2][rng.usize(..4)] {
        let kind = match rng.u32(..6) {
            0..3 if setting.pools => BufferKind::Pool,
            0..4 => BufferKind::Device,
            _ => locked_kind(rng),
        };
        add(kind, rng.usize(..devices), false, rng);
    }
}

/// A graph of a few steps over buffers that exist from the start.
fn graph(program: &Program, device: usize, rng: &mut Rng) -> Option<GraphPlan> {
    let lanes = [1, 1, 2, 3][rng.usize(..4)];
    let fits = |(_, buffer): &(usize, &Buffer)| {
        buffer.initial
            && buffer.kind != BufferKind::Pageable
            && (!buffer.kind.has_device_pointer() || buffer.device == device)
    };
    let buffers: Vec<usize> =
        program.buffers.iter().enumerate().filter(fits).map(|(index, _)| index).collect();
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..rng.usize(2..=6) {
        let lane = rng.usize(..lanes);
        let work = work(program, device, &buffers, &[], rng)?;
        // What touches the same bytes in another lane comes first.
        let meets = |step: &Step| match step {
            Step::Work { lane: other, work: earlier } if *other != lane => {
                let regions =
                    |work: &Work| work.source().into_iter().chain(work.target()).copied().collect::<Vec<_>>();
                let overlap = regions(earlier).iter().any(|a| regions(&work).iter().any(|b| a.overlaps(b)));
                overlap.then_some(*other)
            }
            _ => None,
        };
        let joins: Vec<usize> = steps.iter().filter_map(meets).collect();
        for from in 0..lanes {
            if joins.contains(&from) {
                steps.push(Step::Join { from, to: lane });
            }
        }
        steps.push(Step::Work { lane, work });
    }
    Some(GraphPlan { device, lanes, steps })
}

/// Work over some of the buffers, for a stream of a device; none if no buffer fits.
pub fn work(
    program: &Program,
    device: usize,
    buffers: &[usize],
    recent: &[Region],
    rng: &mut Rng,
) -> Option<Work> {
    let any = |accept: &dyn Fn(&Buffer) -> bool, rng: &mut Rng| {
        let fit: Vec<usize> =
            buffers.iter().copied().filter(|&buffer| accept(&program.buffers[buffer])).collect();
        rng.choice(fit)
    };
    let for_kernels = |buffer: &Buffer| buffer.kind.has_device_pointer() && buffer.device == device;
    let for_host = |buffer: &Buffer| buffer.kind.is_locked() || buffer.kind == BufferKind::Pageable;
    let delay = if rng.u32(..4) == 0 { rng.u32(1..60_000) } else { 0 };
    let chance = rng.u32(..100);
    if chance < 55 {
        return copy(program, device, buffers, recent, rng);
    }
    if chance < 64 {
        let to = any(&for_kernels, rng)?;
        let element = if rng.bool() { 1 } else { 4 };
        let mut to = region(program, to, recent, 4, rng);
        if rng.u32(..4) == 0 {
            to = shape(to, CopyForm::Rows, 4, rng);
        }
        return Some(Work::Fill { to, value: rng.u32(..), element });
    }
    if chance < 88 {
        let to = region(program, any(&for_kernels, rng)?, recent, 4, rng);
        return Some(match rng.u32(..3) {
            0 => Work::Generate { to, key: rng.u32(..), delay },
            1 => Work::Add { to, constant: rng.u32(..), delay },
            _ => {
                let mut from = region(program, any(&for_kernels, rng)?, recent, 4, rng);
                let width = to.width.min(from.width);
                let to = Region::linear(to.buffer, to.offset, width);
                from = Region::linear(from.buffer, from.offset, width);
                if from.overlaps(&to) {
                    Work::Generate { to, key: rng.u32(..), delay }
                } else {
                    Work::Move { to, from, constant: rng.u32(..), delay }
                }
            }
        });
    }
    let at = region(program, any(&for_host, rng)?, recent, 4, rng);
    Some(if rng.bool() { Work::HostRead { from: at } } else { Work::HostWrite { to: at, key: rng.u32(..) } })
}

fn copy(
    program: &Program,
    device: usize,
    buffers: &[usize],
    recent: &[Region],
    rng: &mut Rng,
) -> Option<Work> {
    let (first, second) = (rng.choice(buffers.to_vec())?, rng.choice(buffers.to_vec())?);
    // Most copies are between a device and the host.
    let side = |index: usize| program.buffers[index].kind.is_device();
    let second = if side(first) == side(second) && rng.u32(..10) < 7 {
        let other: Vec<usize> = buffers.iter().copied().filter(|&index| side(index) != side(first)).collect();
        rng.choice(other).unwrap_or(second)
    } else {
        second
    };
    let align = if rng.u32(..8) == 0 { 1 } else { 4 };
    let (mut to, mut from) =
        (region(program, first, recent, align, rng), region(program, second, recent, align, rng));
    let width = to.width.min(from.width);
    (to, from) = (Region::linear(first, to.offset, width), Region::linear(second, from.offset, width));
    let mut form = match rng.u32(..10) {
        0..5 => CopyForm::Directed,
        5..7 => CopyForm::Unified,
        7..9 => CopyForm::Rows,
        _ => CopyForm::Slices,
    };
    let is_of_other = |region: &Region| {
        let buffer = &program.buffers[region.buffer];
        buffer.kind.is_device() && buffer.device != device
    };
    if is_of_other(&to) || is_of_other(&from) {
        // Memory of a pool is within reach of its own device alone, until a program gives others access
        // (cuMemPoolSetAccess): their streams refuse it, also where peers reach each other.
        let is_of_pool = |region: &Region| program.buffers[region.buffer].kind == BufferKind::Pool;
        if [&to, &from].into_iter().any(|region| is_of_other(region) && is_of_pool(region)) {
            return None;
        }
        form = CopyForm::Directed;
    }
    if matches!(form, CopyForm::Rows | CopyForm::Slices) && width >= 64 {
        to = shape(to, form, align, rng);
        let rows = Region { buffer: second, offset: from.offset, ..to };
        // The source has the same shape; it is packed, or has the same pitch.
        let packed = Region { pitch: to.width, slice_rows: to.height, ..rows };
        from = if rng.bool() && rows.end() <= program.buffers[second].size { rows } else { packed };
    }
    Some(Work::Copy { to, from, form })
}

/// A range of a buffer: a whole one, one that was used before, one with a size at a limit, or any.
fn region(program: &Program, buffer: usize, recent: &[Region], align: usize, rng: &mut Rng) -> Region {
    let size = program.buffers[buffer].size & !(align - 1);
    let used: Vec<&Region> =
        recent.iter().filter(|region| region.buffer == buffer && region.offset % align == 0).collect();
    let (offset, width) = match rng.u32(..10) {
        0..3 => (0, size),
        3..7 if !used.is_empty() => {
            let region = used[rng.usize(..used.len())];
            (region.offset, region.end() - region.offset)
        }
        7 => (0, SIZES[rng.usize(..SIZES.len())].min(size)),
        _ => {
            let offset = rng.usize(..size / align) * align;
            (offset, rng.usize(1..=(size - offset) / align) * align)
        }
    };
    Region::linear(buffer, offset, (width & !(align - 1)).max(align))
}

/// Makes rows, or slices of rows, of a linear range, with gaps between the rows or without.
fn shape(range: Region, form: CopyForm, align: usize, rng: &mut Rng) -> Region {
    let length = range.width;
    let (depth, gap_rows) =
        if form == CopyForm::Slices { (rng.usize(1..=3), rng.usize(..2)) } else { (1, 0) };
    let height = rng.usize(1..=12);
    let slice_rows = height + gap_rows;
    let pitch = (length / (slice_rows * depth)) & !(align - 1);
    if pitch < align {
        return range;
    }
    let width = if rng.bool() { pitch } else { (rng.usize(1..=pitch) & !(align - 1)).max(align) };
    Region { width, pitch, height, depth, slice_rows, ..range }
}
