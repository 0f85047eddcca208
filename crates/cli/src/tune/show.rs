//! Output of `causeway tune`.

use core::fmt::Write as _;
use std::time::{Duration, SystemTime};

use causeway_config::Size;
use causeway_pipeline::{Direction, Measured, Profile};

/// Letters of the longest bar.
const WIDTH: usize = 30;

/// A profile as lines for a terminal; `now` is for its age.
pub fn text(profile: &Profile, now: SystemTime) -> String {
    let mut out = String::new();
    let pair = &profile.pair;
    let measured = SystemTime::UNIX_EPOCH + Duration::from_secs(profile.measured_at);
    let age = now.duration_since(measured).map_or_else(|_| "just now".to_owned(), age);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{} at {} over {}, from {}; measured {age}",
        profile.device_name, pair.server, pair.module, pair.client
    );
    let max = profile.sizes.iter().flat_map(|size| size.rates).fold(0.0, f64::max);
    for direction in Direction::ALL {
        let sizes: Vec<_> = profile.sizes.iter().filter(|size| size.direction == direction.name()).collect();
        if sizes.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n  {direction}");
        for size in sizes {
            lines(&mut out, size, max);
        }
    }
    out
}

fn lines(out: &mut String, size: &Measured, max: f64) {
    let bytes = Size(size.bytes).to_string();
    let is_built_in = size.plans[0] == size.plans[1];
    for (at, (plan, rate)) in size.plans.iter().zip(size.rates).enumerate() {
        let (label, name) = match at {
            0 => (bytes.as_str(), if is_built_in { "built-in, kept" } else { "built-in" }),
            _ => ("", "tuned"),
        };
        let gain = if at == 1 { format!("  {}", gain(size.rates)) } else { String::new() };
        let _ = writeln!(
            out,
            "  {label:>6}  {name:<14}  {}  {rate:>7} GB/s  {plan}{gain}",
            bar(rate, max),
            rate = giga(rate)
        );
        if is_built_in {
            break;
        }
    }
}

/// What the second rate is above the first.
pub fn gain([before, after]: [f64; 2]) -> String {
    let gain = if before > 0.0 { (after / before - 1.0) * 100.0 } else { 0.0 };
    format!("{gain:+.0} %")
}

fn giga(rate: f64) -> String {
    format!("{:.2}", rate / 1e9)
}

fn bar(rate: f64, max: f64) -> String {
    let eighths = if max > 0.0 { (rate / max * (WIDTH * 8) as f64).round() as usize } else { 0 };
    let full = "█".repeat(eighths / 8);
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    let length = eighths.div_ceil(8).min(WIDTH);
    format!("{full}{part}{}", " ".repeat(WIDTH - length))
}

fn age(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    let of = |count: u64, unit: &str| format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" });
    match minutes {
        0 => "just now".to_owned(),
        1..60 => of(minutes, "minute"),
        60..1440 => of(minutes / 60, "hour"),
        _ => of(minutes / 1440, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_pipeline::TransportKind;
    use causeway_pipeline::profile::{FORM, Pair};

    #[test]
    fn a_profile_is_drawn_with_bars_and_gains() {
        let size = |bytes, plans: [&str; 2], rates| Measured {
            direction: "to-device".into(),
            bytes,
            plans: plans.map(str::to_owned),
            rates,
        };
        let profile = Profile {
            form: FORM,
            pair: Pair { client: "desk".into(), ..Pair::of_this_host("server", "GPU-1", TransportKind::Tcp) },
            device_name: "NVIDIA H200".into(),
            measured_at: 1000,
            pipeline: String::new(),
            sizes: vec![
                size(1 << 20, ["4x1M", "8x256K"], [2e9, 3e9]),
                size(4 << 20, ["4x1M", "4x1M"], [1.5e9, 1.5e9]),
            ],
        };
        let text = text(&profile, SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + 7300));
        for part in [
            "NVIDIA H200 at server over tcp, from desk; measured 2 hours ago",
            "1M  built-in        ████████████████████               2.00 GB/s  4x1M",
            "tuned           ██████████████████████████████     3.00 GB/s  8x256K  +50 %",
            "4M  built-in, kept  ███████████████                    1.50 GB/s  4x1M\n",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("from-device"));
    }
}
