//! `causeway doctor --rendezvous`: channels between the ranks of an MPI job in two containers.
//!
//! The same command runs in both at once. They look for each other as ranks do.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use causeway_comm::Channel;
use causeway_comm::channels::Missing;
use causeway_comm::doctor::{Facts, Found, rendezvous};
use causeway_comm::pair::Visibility;
use causeway_comm::settings::Settings;
use serde_json::{Value, json};

use super::conclusion::conclusion;
use super::error::DoctorError;

/// How long this process waits for the other one.
const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for the other process, and tells what the two have. The exit code is 1 where none has come.
pub(super) fn ranks(word: &str, as_json: bool) -> Result<ExitCode, DoctorError> {
    let settings = Settings::from_environment()?;
    if !as_json {
        let _ = writeln!(
            io::stderr(),
            "causeway: run the same command in the other container; this waits for it for {RENDEZVOUS_TIMEOUT:?}"
        );
    }
    let found = rendezvous(word, &settings, Facts::of_this_process(), RENDEZVOUS_TIMEOUT)?;
    let report = ChannelReport { found: &found, names_hosts: !settings.hosts.is_empty() };
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{:#}", report.to_json())?
    } else {
        write!(out, "{}", report.to_text())?
    }
    Ok(if found.found_peer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found, to be reported.
struct ChannelReport<'a> {
    found: &'a Found,
    /// Whether the user names hosts, without which no peer is searched over a network.
    names_hosts: bool,
}

impl ChannelReport<'_> {
    /// Whether ranks have a channel, and why not.
    fn conclusion(&self, channel: Channel, outcome: &Result<(), Missing>) -> (bool, String) {
        match outcome {
            Err(missing) => (false, missing.to_string()),
            Ok(()) if channel.is_between_hosts() && !self.names_hosts => (
                false,
                "ranks search for each other over a network only if CAUSEWAY_COMM_HOSTS names hosts"
                    .to_owned(),
            ),
            Ok(()) => (true, String::new()),
        }
    }

    /// What helps, each thing once.
    fn advice(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        for (channel, outcome) in &self.found.channels {
            let helps = outcome.as_ref().err().and_then(|missing| channel.advice(missing));
            all.extend(helps.filter(|helps| !all.contains(helps)));
        }
        all
    }

    /// What lies between the two, a line each.
    fn between(&self) -> Vec<String> {
        let Found { found_peer, pair, looked_in, own, peer, .. } = self.found;
        let list = |places: &[_]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut lines = vec![if *found_peer {
            let (place, distance, media) = (pair.locality, pair.distance, list(&pair.media));
            format!("The other process is {place}. Its processors are {distance}. Both were seen in {media}.")
        } else {
            format!(
                "No other process connected within {RENDEZVOUS_TIMEOUT:?}. Searched in {}.",
                list(looked_in)
            )
        }];
        lines.extend(self.found.refused.iter().map(|why| format!("Not searched: {why}.")));
        if *found_peer {
            lines.push(match pair.processes {
                Visibility::Same => "They share a PID namespace.".to_owned(),
                Visibility::FromHere => "This process sees the other one, but not vice versa.".to_owned(),
                Visibility::FromThere => "The other process sees this one, but not vice versa.".to_owned(),
                Visibility::Hidden => "Their PID namespaces hide them from each other.".to_owned(),
            });
        }
        let missing = match (own.gpu, peer.and_then(|peer| peer.gpu), found_peer) {
            (None, None, _) => {
                "No CUDA driver starts in either process, so GPUs that support everything are assumed. Run \
                 the command as the job is run, such as under `causeway run`."
            }
            (None, Some(_), _) => "No CUDA driver starts in this process: the other one's GPU is assumed.",
            (Some(_), None, true) => "No CUDA driver starts in the other process: this one's GPU is assumed.",
            _ => "",
        };
        lines.extend((!missing.is_empty()).then(|| missing.to_owned()));
        lines
    }

    fn to_text(&self) -> String {
        let mut text = self.between().join("\n") + "\n\n";
        for (channel, outcome) in &self.found.channels {
            let (has, why) = self.conclusion(*channel, outcome);
            text += &match has {
                true => format!("  {:9}yes\n", channel.name()),
                false => format!("  {:9}no: {why}\n", channel.name()),
            };
        }
        text + "\n" + &conclusion(usize::from(!self.found.found_peer), &self.advice())
    }

    fn to_json(&self) -> Value {
        let channels = self.found.channels.iter().map(|(channel, outcome)| {
            let (has, why) = self.conclusion(*channel, outcome);
            json!({ "channel": channel.name(), "has": has, "why_not": (!has).then_some(why) })
        });
        json!({
            "came": self.found.found_peer,
            "between": self.between(),
            "channels": channels.collect::<Vec<_>>(),
            "advice": self.advice(),
        })
    }
}
