//! The part of a line after its `:`, which says what the order of a session and a stream capture need to know
//! about a command: `in stream, writes event, capture refused`.
//!
//! Nothing here has a default. A line that leaves something out ends the build, so that no command is added
//! without thinking of the work before it and of the streams that are captured.

use crate::entry::{Access, Argument, Capture, Entry, Facts, Mode, Order};

/// Reads what a line says after its `:`; nothing for a line that declares no command.
pub fn facts(entry: &Entry, text: Option<&str>) -> Result<Option<Facts>, String> {
    let text = match (entry.on_the_wire(), text) {
        (true, Some(text)) => text,
        (true, None) => {
            return Err(
                "a posted or called line says its order after `:` (free, inert, barrier, in STREAM, \
                        changes OBJECT, reads FUNCTION, uses EVENT, watches STREAM or watches context)"
                    .to_owned(),
            );
        }
        (false, Some(_)) => return Err("only a posted or called line has an order".to_owned()),
        (false, None) => return Ok(None),
    };
    let mut clauses = text.split(',').map(|clause| clause.split_whitespace().collect::<Vec<_>>());
    let mut order = order(entry, &clauses.next().unwrap_or_default())?;
    let (mut ends, mut capture) = (None, None);
    for clause in clauses {
        match clause.as_slice() {
            [verb @ ("reads" | "writes"), name] => match &mut order {
                Order::InStream { shared: shared @ None, .. } => {
                    let access = if *verb == "reads" { Access::Read } else { Access::Write };
                    *shared = Some((access, handle(entry, name, &["CUevent", "CUgraphExec", "CUfunction"])?));
                }
                _ => return Err(format!("`{verb}` follows `in STREAM`, once")),
            },
            ["ends", name] => ends = Some(handle(entry, name, &["CUcontext"])?),
            ["capture", "node"] => capture = Some(Capture::Node),
            ["capture", "passes"] => capture = Some(Capture::Passes),
            ["capture", "refused"] => capture = Some(Capture::Refused),
            other => return Err(format!("`{}` says nothing about a command", other.join(" "))),
        }
    }
    let capture = checked_capture(entry, capture)?;
    Ok(Some(Facts { order, ends, capture }))
}

fn order(entry: &Entry, tokens: &[&str]) -> Result<Order, String> {
    let order = match tokens {
        ["free"] => Order::Free,
        ["inert"] => Order::Inert,
        ["barrier"] => Order::Barrier,
        ["in", stream] => Order::InStream { stream: handle(entry, stream, &["CUstream"])?, shared: None },
        ["changes", object] => {
            let kinds = ["CUgraph", "CUgraphExec", "CUfunction", "CUkernel"];
            Order::Changes(handle(entry, object, &kinds)?)
        }
        ["reads", function] => Order::Reads(handle(entry, function, &["CUfunction"])?),
        ["uses", event] => Order::Uses(handle(entry, event, &["CUevent"])?, None),
        ["uses", one, other] => {
            Order::Uses(handle(entry, one, &["CUevent"])?, Some(handle(entry, other, &["CUevent"])?))
        }
        ["watches", "context"] => Order::WatchesContext,
        ["watches", stream] => Order::Watches(handle(entry, stream, &["CUstream"])?),
        other => return Err(format!("`{}` is not an order", other.join(" "))),
    };
    let is_of_stream = matches!(order, Order::InStream { .. } | Order::Watches(_) | Order::Barrier);
    match streams(entry).next() {
        Some(stream) if !is_of_stream => {
            Err(format!("it names the stream `{}`, so it is `in` or `watches` it, or a barrier", stream.name))
        }
        _ => Ok(order),
    }
}

/// The name of an argument that is a handle of one of the kinds `bases` and exists before the command.
fn handle(entry: &Entry, name: &str, bases: &[&str]) -> Result<String, String> {
    let is_it = |argument: &&Argument| {
        argument.name == name
            && bases.contains(&argument.base.as_str())
            && matches!(argument.mode, Mode::Value | Mode::Drop)
    };
    match entry.arguments.iter().find(is_it) {
        Some(argument) => Ok(argument.name.clone()),
        None => {
            Err(format!("no argument `{name}` is a {} that exists before the call", bases.join(" or a ")))
        }
    }
}

/// The streams that a command names and that exist before it.
fn streams(entry: &Entry) -> impl Iterator<Item = &Argument> {
    entry
        .arguments
        .iter()
        .filter(|argument| argument.base == "CUstream" && matches!(argument.mode, Mode::Value | Mode::Drop))
}

fn checked_capture(entry: &Entry, declared: Option<Capture>) -> Result<Capture, String> {
    match (streams(entry).next(), declared) {
        (None, None) => Ok(Capture::Unconcerned),
        (None, Some(_)) => Err("a line that names no stream says nothing about captures".to_owned()),
        (Some(_), None) => Err(
            "a line that names a stream says how a capture takes it: `capture node`, `refused` or `passes`"
                .to_owned(),
        ),
        (Some(_), Some(Capture::Node)) if !entry.is_posted() => {
            Err("only a posted command can become a node: results are not there before the launch".to_owned())
        }
        (Some(_), Some(capture)) => Ok(capture),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::entry;

    fn facts_of(line: &str) -> Result<Facts, String> {
        entry(line, true, "").map(|entry| entry.facts.expect("the line declares a command"))
    }

    #[track_caller]
    fn refused(line: &str, because: &str) {
        let cause = facts_of(line).expect_err("the line says too little or too much");
        assert!(cause.contains(because), "refused for another reason: {cause}");
    }

    #[test]
    fn a_line_says_order_ending_and_capture() {
        let record =
            facts_of("posted r(event: CUevent, stream: CUstream): in stream, writes event, capture refused");
        let shared = Some((Access::Write, "event".to_owned()));
        let order = Order::InStream { stream: "stream".to_owned(), shared };
        assert_eq!(record, Ok(Facts { order, ends: None, capture: Capture::Refused }));
        let end = facts_of("called e(context: drop CUcontext) = e @2000 ptsz@7000: barrier, ends context");
        let ends = Some("context".to_owned());
        assert_eq!(end, Ok(Facts { order: Order::Barrier, ends, capture: Capture::Unconcerned }));
    }

    #[test]
    fn a_line_without_an_order_is_refused() {
        refused("posted p(graph: drop CUgraph)", "a posted or called line says its order");
        refused("called c(value: u32) = c @2000", "a posted or called line says its order");
        refused("posted p(value: u32):", "is not an order");
        refused("posted p(value: u32): sometimes", "`sometimes` is not an order");
    }

    #[test]
    fn only_what_travels_has_an_order() {
        let cause = entry("hand h(value: u32): free", false, "").expect_err("no command is declared");
        assert_eq!(cause, "only a posted or called line has an order");
        assert_eq!(entry("hand h(value: u32)", false, "").map(|entry| entry.facts), Ok(None));
    }

    #[test]
    fn a_stream_is_not_forgotten() {
        refused("posted p(stream: CUstream): free, capture refused", "names the stream `stream`");
        refused("posted p(stream: CUstream): in stream", "says how a capture takes it");
        refused("posted p(event: CUevent): uses event, capture node", "names no stream");
        refused("called c(stream: CUstream): in stream, capture node", "only a posted command");
    }

    #[test]
    fn order_names_an_existing_argument_of_its_kind() {
        refused("posted p(event: CUevent): in event", "no argument `event` is a CUstream");
        refused("posted p(stream: new CUstream): in stream", "no argument `stream` is a CUstream");
        refused("posted p(graph: CUgraph): changes exec", "no argument `exec`");
        refused("posted p(graph: CUgraph): changes graph, writes graph", "follows `in STREAM`");
        refused("posted p(): barrier, at once", "`at once` says nothing");
    }
}
