//! Report of the choice of initiators: what `CAUSEWAY_DEVICE_EXPLAIN=1` prints at the end of a team, and the
//! sizes at which the choice changes.

use super::choice::{Curves, Initiator, InitiatorPolicy, bytes_of, in_flight, table};
use super::costs::Costs;
use super::layout::{CLASSES, Counts, FLIGHTS, REASONS, SCOPES};

/// Who calls together, of one and of several messages.
const SCOPE_NAMES: [(&str, &str); SCOPES] =
    [("a thread", "threads"), ("a warp", "warps"), ("a block", "blocks")];

/// Why an initiator was taken: `Reason` of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The table of costs says so.
    Table,
    /// The program names it.
    Named,
    /// No other reaches the memory.
    Only,
    /// No other can send the signal behind it.
    Signal,
    /// The table for ranks that a network card reaches says so.
    Network,
}

impl Reason {
    /// All, by their numbers.
    pub const ALL: [Self; REASONS] = [Self::Table, Self::Named, Self::Only, Self::Signal, Self::Network];
}

/// The smallest and the largest message of a class.
fn sizes(class: usize) -> String {
    match class {
        0 => "0 or 1 bytes".to_owned(),
        1 => "2 bytes".to_owned(),
        _ if class + 1 == CLASSES => format!("more than {} bytes", 1_u64 << (class - 1)),
        _ => format!("{} to {} bytes", (1_u64 << (class - 1)) + 1, 1_u64 << class),
    }
}

/// What a message costs by the initiator that the table names, and by the next best.
fn comparison(curves: &Curves, class: usize, column: usize) -> Option<(Initiator, String)> {
    let choice = curves.choose(bytes_of(class), in_flight(column))?;
    let why = choice.instead_of.map_or("there is no other".to_owned(), |(other, cost)| {
        format!("{:.0} ns a message, {other} {cost:.0} ns", choice.cost)
    });
    Some((choice.initiator, why))
}

/// Why messages of a class went by an initiator that the table of these curves names, a row of which this is.
fn by_table(curves: &Curves, row: u64, class: usize, by: Initiator) -> String {
    let of_columns = (0..FLIGHTS).filter_map(|column| Some((column, comparison(curves, class, column)?)));
    let named = of_columns.clone().find(|(_, (initiator, _))| *initiator == by);
    let Some((column, (_, why))) = named else {
        return "it cost least before costs were corrected".to_owned();
    };
    let is_for_all = row == u64::from_le_bytes([by.code() as u8; FLIGHTS]);
    match in_flight(column) {
        _ if is_for_all => format!("it costs least ({why})"),
        0.0 => format!("it costs least while nothing is in flight ({why})"),
        flight => format!("it costs least with {flight} and more in flight ({why})"),
    }
}

/// How a rank's messages went, and why: a line for each size, scope, initiator and reason that there was.
pub fn decisions(rank: u32, counts: &Counts, costs: &Costs, policy: InitiatorPolicy) -> Vec<String> {
    let mut lines = Vec::new();
    let named = "CAUSEWAY_DEVICE_INITIATOR names it".to_owned();
    for (scope, of_scope) in counts.iter().enumerate() {
        for (class, of_class) in of_scope.iter().enumerate() {
            for by in Initiator::ALL {
                for (reason, messages) in Reason::ALL.into_iter().zip(of_class[by.code()]) {
                    if messages == 0 {
                        continue;
                    }
                    let why = match (reason, by) {
                        (Reason::Table, _) if !policy.chooses_mapped() => named.clone(),
                        (Reason::Table, _) => {
                            let row = table(costs.curves(), policy)[scope][class];
                            by_table(&costs.curves()[scope], row, class, by)
                        }
                        (Reason::Network, _) if policy == InitiatorPolicy::Verbs => named.clone(),
                        (Reason::Network, _) => {
                            let row = costs.network_table(policy)[class];
                            by_table(costs.network(), row, class, by)
                        }
                        (Reason::Named, _) => "the program names it".to_owned(),
                        (Reason::Only, Initiator::Direct) => "the peer's memory is mapped here".to_owned(),
                        (Reason::Only, _) => "the peer's memory is not mapped here".to_owned(),
                        (Reason::Signal, _) => "no other can send the signal behind it".to_owned(),
                    };
                    let scopes = SCOPE_NAMES[scope].1;
                    let sizes = sizes(class);
                    lines.push(format!(
                        "rank {rank}: {messages} messages of {sizes} by {scopes}, by {by}: {why}"
                    ));
                }
            }
        }
    }
    lines
}

/// What costs have been corrected by.
pub fn corrections(costs: &Costs) -> Vec<String> {
    let (proxy, direct) = costs.measurements();
    let mut lines = Vec::new();
    for (initiator, curve) in &costs.network().0 {
        let measured = costs.network_measurements(*initiator);
        if measured > 0 {
            let latency = curve.latency;
            lines.push(format!(
                "a short message over the network by {initiator}: {latency:.0} ns, corrected by {measured} measurements"
            ));
        }
    }
    if let Some(copies) = costs.corrected_copies() {
        lines.push(format!(
            "copies of the proxy: {:.0} ns, {:.0} ns behind another one, {:.1} GB/s, corrected by {proxy} \
             measurements",
            copies.latency, copies.post, copies.bandwidth
        ));
    }
    for ((scope, measured), curves) in SCOPE_NAMES.iter().zip(direct).zip(costs.curves()) {
        let of_direct = curves.0.iter().find(|(initiator, _)| *initiator == Initiator::Direct);
        if let Some((_, curve)) = of_direct.filter(|_| measured > 0) {
            let bandwidth = curve.bandwidth;
            lines.push(format!(
                "copies by {}: {bandwidth:.1} GB/s, corrected by {measured} measurements",
                scope.0
            ));
        }
    }
    lines
}

/// The sizes at which the choice changes, as sentences for the end of a program.
pub fn crossings(costs: &Costs) -> Vec<String> {
    let mut lines = Vec::new();
    let of_scopes = SCOPE_NAMES.iter().map(|(scope, _)| *scope).zip(costs.curves());
    for (scope, curves) in of_scopes.chain([("over the network", costs.network())]) {
        for (column, label) in [(0, "alone"), (FLIGHTS - 1, "with 64 and more in flight")] {
            let mut last = None;
            for class in 0..CLASSES {
                let Some((initiator, why)) = comparison(curves, class, column) else { continue };
                if last != Some(initiator) {
                    let from = if class == 0 { 0 } else { (1_u64 << (class - 1)) + 1 };
                    lines.push(format!("{scope}, {label}: from {from} bytes by {initiator}: {why}"));
                }
                last = Some(initiator);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::choice::default_curves;
    use crate::device::costs::Batch;
    use crate::device::layout::INITIATORS;

    fn costs() -> Costs {
        Costs::new(&default_curves(), None)
    }

    #[test]
    fn crossings_are_explained() {
        let lines = crossings(&costs());
        assert!(lines[0].starts_with("a thread, alone: from 0 bytes by direct: "), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("by proxy") && line.contains("direct")), "{lines:?}");
    }

    #[test]
    fn each_decision_is_told_with_its_reason() {
        let mut counts: Counts = [[[[0; REASONS]; INITIATORS]; CLASSES]; SCOPES];
        let (direct, proxy) = (Initiator::Direct.code(), Initiator::Proxy.code());
        counts[2][7][direct] = [10, 2, 0, 0, 0];
        counts[2][7][proxy][Reason::Only as usize] = 3;
        counts[0][30][proxy] = [1, 0, 0, 4, 0];
        counts[1][0][direct][Reason::Only as usize] = 5;
        let lines = decisions(3, &counts, &costs(), InitiatorPolicy::Auto);
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert_eq!(
            lines[2],
            "rank 3: 5 messages of 0 or 1 bytes by warps, by direct: the peer's memory is mapped here"
        );
        assert!(lines[0].starts_with(
            "rank 3: 1 messages of 536870913 to 1073741824 bytes by threads, by proxy: it costs"
        ));
        assert!(lines[1].ends_with("no other can send the signal behind it"), "{lines:?}");
        let told = "rank 3: 10 messages of 65 to 128 bytes by blocks, by direct: it costs least";
        assert!(lines[3].starts_with(told) && lines[3].contains("proxy 8000 ns"), "{lines:?}");
        assert!(lines[4].ends_with("by direct: the program names it"), "{lines:?}");
        assert!(lines[5].ends_with("by proxy: the peer's memory is not mapped here"), "{lines:?}");
        let forced = decisions(3, &counts, &costs(), InitiatorPolicy::Direct);
        assert!(forced[3].ends_with("CAUSEWAY_DEVICE_INITIATOR names it"), "{forced:?}");
    }

    #[test]
    fn messages_over_the_network_are_told_with_what_both_cost() {
        let mut counts: Counts = [[[[0; REASONS]; INITIATORS]; CLASSES]; SCOPES];
        counts[0][13][Initiator::Verbs.code()][Reason::Network as usize] = 7;
        let mut costs = costs();
        costs.set_network(crate::device::choice::network_curves(25.0));
        costs.observe_network(Initiator::Verbs, 1, 8_500.0);
        let lines = decisions(1, &counts, &costs, InitiatorPolicy::Auto);
        let told = "rank 1: 7 messages of 4097 to 8192 bytes by threads, by verbs: it costs least with";
        assert!(lines[0].starts_with(told) && lines[0].contains("proxy 600 ns"), "{lines:?}");
        let forced = decisions(1, &counts, &costs, InitiatorPolicy::Verbs);
        assert!(forced[0].ends_with("CAUSEWAY_DEVICE_INITIATOR names it"), "{forced:?}");
        assert!(corrections(&costs)[0].contains("over the network by verbs: 8500 ns"), "{lines:?}");
        assert!(
            crossings(&costs).iter().any(|line| line.starts_with("over the network, alone: from 0 bytes"))
        );
    }

    #[test]
    fn what_was_taken_before_a_correction_is_told_so() {
        let mut counts: Counts = [[[[0; REASONS]; INITIATORS]; CLASSES]; SCOPES];
        counts[0][0][Initiator::Proxy.code()][0] = 1;
        let lines = decisions(0, &counts, &costs(), InitiatorPolicy::Auto);
        assert!(lines[0].ends_with("it cost least before costs were corrected"), "{lines:?}");
    }

    #[test]
    fn corrections_are_told_where_there_were_some() {
        assert_eq!(corrections(&costs()), [] as [String; 0]);
        let mut corrected = costs();
        corrected.observe_batch(Batch { copies: 1, bytes: 8, nanoseconds: 6_500.0 });
        corrected.observe_direct(2, 1 << 20, 1 << 20);
        let lines = corrections(&corrected);
        assert!(
            lines[0].contains("6500 ns") && lines[0].ends_with("corrected by 1 measurements"),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("copies by a block: 36.2 GB/s"), "{lines:?}");
    }
}
