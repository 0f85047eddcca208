//! Printed form of facts and findings.

pub use crate::checks::binary;
use crate::checks::rdma::path_mtu;
use crate::checks::{Finding, Level};
use crate::distance::{Distance, between};
use crate::facts::{Facts, PciDevice};
use causeway_wire::text::{MAX_LINE_BYTES, printable};
use core::fmt::Write as _;

/// A text, which may be another machine's, without what a terminal would act on.
fn plain(text: &str) -> String {
    printable(text, MAX_LINE_BYTES)
}

/// What a machine is and has, and what was found.
pub fn machine(facts: &Facts, findings: &[Finding]) -> String {
    let mut out = String::new();
    let machine = &facts.machine;
    let container =
        machine.container.as_deref().map_or(String::new(), |kind| format!(", in a container ({kind})"));
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}, Linux {}{}", plain(&machine.host), plain(&machine.kernel), plain(&container));
    for line in devices(facts) {
        let _ = writeln!(out, "  {line}");
    }
    for line in distances(facts) {
        let _ = writeln!(out, "  {line}");
    }
    out.push_str(&found(findings));
    out
}

/// What was found, problems last, where they are seen. What to do about these stands in the conclusion, once.
pub fn found(findings: &[Finding]) -> String {
    let mut out = String::new();
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.level);
    for finding in sorted {
        let level = match finding.level {
            Level::Good => "ok      ",
            Level::Note => "note    ",
            Level::Problem => "PROBLEM ",
        };
        let _ = writeln!(out, "  {level} {}", plain(&finding.text));
        if let Some(advice) = finding.advice.as_ref().filter(|_| finding.level != Level::Problem) {
            let _ = writeln!(out, "           -> {}", plain(advice));
        }
    }
    out
}

/// The same text in lines of at most so many characters, as far as words allow: findings, advice and paragraphs continue
/// behind their first words. Rows of tables stay as they are.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match continuation(line).filter(|indent| line.chars().count() > width && indent + 20 <= width) {
            Some(indent) => wrap_line(&mut out, line, indent, width),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// How far the continuation of a line is indented; nothing for a row of a table.
fn continuation(line: &str) -> Option<usize> {
    let text = line.trim_start();
    let leading = line.len() - text.len();
    if leading == 0 {
        return Some(0);
    }
    let after = |prefix: &str| text.strip_prefix(prefix).map(|_| leading + prefix.len());
    let item = || {
        let (number, _) = text.split_once(". ")?;
        number.parse::<u16>().ok().map(|_| leading + number.len() + 2)
    };
    let levels = ["ok       ", "note     ", "PROBLEM  ", "-> "];
    levels.into_iter().find_map(after).or_else(item)
}

fn wrap_line(out: &mut String, line: &str, indent: usize, width: usize) {
    let (begin, text) = line.split_at(indent);
    out.push_str(begin);
    let mut used = indent;
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && used + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if number > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out.push('\n');
}

/// A line for each port, in columns.
fn devices(facts: &Facts) -> Vec<String> {
    let head =
        ["device", "port", "state", "link layer", "rate", "MTU", "LID", "GIDs", "firmware", "PCI", "NUMA"];
    let ports =
        facts.rdma.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let rows = ports.map(|(device, port)| {
        let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let pci = device.pci.as_ref();
        vec![
            device.name.clone(),
            port.number.to_string(),
            port.state.to_lowercase(),
            port.link_layer.clone(),
            port.rate.clone(),
            known(path_mtu(facts, device, port).map(|mtu| mtu.to_string())),
            port.lid.to_string(),
            port.gids.len().to_string(),
            known(Some(device.firmware.clone()).filter(|text| !text.is_empty())),
            known(pci.map(|pci| pci.address.clone())),
            known(pci.and_then(|pci| pci.numa_node).map(|node| node.to_string())),
        ]
    });
    table(head.map(str::to_owned).to_vec(), rows.collect())
}

/// The distance of each card to each GPU, by name of the card, address of the GPU.
pub fn distances_of(facts: &Facts) -> Vec<(&str, &str, Distance)> {
    let rdma_devices = facts.rdma.devices.iter().filter_map(|device| Some((device, device.pci.as_ref()?)));
    let pairs = rdma_devices.flat_map(|(device, rdma_device)| {
        facts
            .gpus
            .devices
            .iter()
            .map(move |gpu| (device.name.as_str(), gpu.address.as_str(), between(rdma_device, gpu)))
    });
    pairs.collect()
}

/// The same in columns.
fn distances(facts: &Facts) -> Vec<String> {
    let gpus: &[PciDevice] = &facts.gpus.devices;
    if gpus.is_empty() {
        return Vec::new();
    }
    let head =
        ["distance".to_owned()].into_iter().chain(gpus.iter().map(|gpu| format!("GPU {}", gpu.address)));
    let rdma_devices = facts.rdma.devices.iter().filter_map(|device| Some((device, device.pci.as_ref()?)));
    let rows = rdma_devices.map(|(device, rdma_device)| {
        [device.name.clone()]
            .into_iter()
            .chain(gpus.iter().map(|gpu| between(rdma_device, gpu).to_string()))
            .collect()
    });
    table(head.collect(), rows.collect())
}

/// Lines with columns as wide as they must be; none without rows.
fn table(head: Vec<String>, rows: Vec<Vec<String>>) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let rows: Vec<Vec<String>> =
        [head].into_iter().chain(rows).map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::About;

    #[test]
    fn problems_come_last_and_nothing_reaches_the_terminal_but_letters() {
        let finding = |level, text: &str| Finding {
            level,
            about: About::Rdma,
            text: text.into(),
            advice: Some("do\u{1b}[2J".into()),
        };
        let text = found(&[finding(Level::Problem, "bad\n"), finding(Level::Good, "good")]);
        assert!(text.find("good") < text.find("bad\\n"), "{text}");
        assert!(text.contains("-> do\\u001b[2J") && text.lines().count() == 3, "{text}");
        assert!(text.ends_with("bad\\n\n"), "what to do about problems stands elsewhere: {text}");
    }

    #[test]
    fn long_lines_continue_behind_their_first_words() {
        let sentence = "word ".repeat(30);
        let (sentence, row) = (sentence.trim_end(), format!("  mlx5_0  {}", "column  ".repeat(12)));
        let text = format!(
            "  note     {sentence}\n           -> {sentence}\n  12. {sentence}\nNo problem. {sentence}\n{row}\n"
        );
        let wrapped = wrapped(&text, 60);
        let indent = |line: &str| line.len() - line.trim_start().len();
        for (line, behind) in
            [("  note     word", 11), ("           -> word", 14), ("  12. word", 6), ("No problem.", 0)]
        {
            let mut lines = wrapped.lines().skip_while(|found| !found.starts_with(line));
            assert!(lines.next().unwrap().len() <= 60, "{wrapped}");
            assert_eq!(lines.next().map(indent), Some(behind), "{wrapped}");
        }
        assert!(
            wrapped.ends_with(&format!("{row}\n")) && wrapped.split_whitespace().eq(text.split_whitespace())
        );
        assert!(super::wrapped(&text, usize::MAX) == text && super::wrapped(&text, 5) == text);
    }
}
