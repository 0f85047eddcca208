//! Programs in readable form: one line an operation.

use crate::program::{Await, Buffer, Call, CopyForm, Program, Region, Step, StreamKind, Work};
use core::fmt::{Display, Formatter, Result};

impl Display for Region {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { buffer, offset, width, pitch, height, depth, slice_rows } = self;
        write!(f, "B{buffer}[{offset:#x}+{width:#x}")?;
        if !self.is_linear() {
            write!(f, " x{height} pitch {pitch:#x}")?;
        }
        if *depth > 1 {
            write!(f, " x{depth} of {slice_rows} rows")?;
        }
        write!(f, "]")
    }
}

impl Display for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let slow = |f: &mut Formatter<'_>, delay: u32| {
            if delay > 0 { write!(f, " after {delay} steps") } else { Ok(()) }
        };
        match self {
            Self::Copy { to, from, form } => {
                let form = match form {
                    CopyForm::Directed => "",
                    CopyForm::Unified => " (unified)",
                    CopyForm::Rows => " (2D)",
                    CopyForm::Slices => " (3D)",
                };
                write!(f, "copy {to} <- {from}{form}")
            }
            Self::Fill { to, value, element } => write!(f, "fill {to} with {value:#x}, {element} bytes each"),
            Self::Generate { to, key, delay } => {
                write!(f, "kernel {to} = words of {key:#x}")?;
                slow(f, *delay)
            }
            Self::Add { to, constant, delay } => {
                write!(f, "kernel {to} += {constant:#x}")?;
                slow(f, *delay)
            }
            Self::Move { to, from, constant, delay } => {
                write!(f, "kernel {to} = {from} + {constant:#x}")?;
                slow(f, *delay)
            }
            Self::HostRead { from } => write!(f, "host reads {from}"),
            Self::HostWrite { to, key } => write!(f, "host writes {to} = words of {key:#x}"),
        }
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Enqueue { stream, work } => write!(f, "S{stream}: {work}"),
            Self::Blocking { device, work } => write!(f, "synchronous, device {device}: {work}"),
            Self::Host(work) => write!(f, "{work}"),
            Self::Record { event, stream } => write!(f, "S{stream}: record E{event}"),
            Self::WaitEvent { stream, event } => write!(f, "S{stream}: wait for E{event}"),
            Self::Await(Await::Stream(stream)) => write!(f, "synchronize with S{stream}"),
            Self::Await(Await::StreamQueries(stream)) => write!(f, "query S{stream} until it is done"),
            Self::Await(Await::Event(event)) => write!(f, "synchronize with E{event}"),
            Self::Await(Await::EventQueries(event)) => write!(f, "query E{event} until it is done"),
            Self::Await(Await::Context(device)) => {
                write!(f, "synchronize with the context of device {device}")
            }
            Self::Capture { graph } => write!(f, "capture and instantiate G{graph}"),
            Self::Launch { graph, stream } => write!(f, "S{stream}: launch G{graph}"),
            Self::Allocate { buffer, stream, value } => {
                write!(f, "S{stream}: allocate B{buffer}, contents {value:#x}")
            }
            Self::Release { buffer, stream } => write!(f, "S{stream}: free B{buffer}"),
            Self::DestroyStream { stream } => write!(f, "destroy S{stream}"),
            Self::WaitValue { stream, word } => write!(f, "S{stream}: wait for word {word}"),
            Self::WriteValue { stream, word } => write!(f, "S{stream}: write word {word}"),
            Self::Barrier => write!(f, "all threads meet"),
        }
    }
}

fn buffer(buffer: &Buffer) -> String {
    let Buffer { kind, size, device, initial } = buffer;
    let born = if *initial { "" } else { ", made later" };
    format!("{kind:?}, {size} bytes, device {device}{born}")
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (seed, kind, threads) = (self.seed, self.kind, self.threads);
        writeln!(f, "program {seed} ({kind}), threads: {threads}, devices: {}", self.devices)?;
        // What no operation names is left out: a reduced program has little of its scenery.
        let text: String = self.ops.iter().map(|op| format!("{} ", op.call)).collect();
        let is_launched = |graph: usize| text.contains(&format!("G{graph} "));
        let steps: String = (0..self.graphs.len())
            .filter(|graph| is_launched(*graph))
            .flat_map(|graph| &self.graphs[graph].steps)
            .map(|step| if let Step::Work { work, .. } = step { format!("{work} ") } else { String::new() })
            .collect();
        let is_named = |name: String| text.contains(&name) || steps.contains(&name);
        for (index, made) in self.buffers.iter().enumerate() {
            if is_named(format!("B{index}["))
                || is_named(format!("B{index},"))
                || is_named(format!("B{index} "))
            {
                writeln!(f, "  B{index}: {}", buffer(made))?;
            }
        }
        for (index, stream) in self.streams.iter().enumerate() {
            if is_named(format!("S{index}:")) || is_named(format!("S{index} ")) {
                let kind = match stream.kind {
                    StreamKind::Legacy => "the legacy default stream".to_owned(),
                    StreamKind::PerThread(thread) => format!("the default stream of thread {thread}"),
                    StreamKind::Blocking => "blocking".to_owned(),
                    StreamKind::NonBlocking => "non-blocking".to_owned(),
                };
                writeln!(f, "  S{index}: {kind}, device {}", stream.device)?;
            }
        }
        for (index, graph) in self.graphs.iter().enumerate().filter(|(index, _)| is_launched(*index)) {
            writeln!(f, "  G{index}: device {}, {} lanes", graph.device, graph.lanes)?;
            for step in &graph.steps {
                match step {
                    Step::Work { lane, work } => writeln!(f, "      lane {lane}: {work}")?,
                    Step::Join { from, to } => writeln!(f, "      lane {to} waits for lane {from}")?,
                }
            }
        }
        for (index, op) in self.ops.iter().enumerate() {
            if threads > 1 {
                write!(f, "  T{}", op.thread)?;
            }
            writeln!(f, "  {index:3}  {}", op.call)?;
        }
        Ok(())
    }
}
