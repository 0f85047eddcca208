//! Whether a CUDA program of this machine runs on a server, which is the first thing to know.

use super::{About, Finding};
use serde::Serialize;

/// What came of running a small program on a server: a kernel whose result is compared, and copies both ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The server, as it was named.
    pub target: String,
    /// What happened.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The program has computed and copied what it should.
    Ran {
        /// The name of the GPU.
        device: String,
        /// What carried its calls.
        via: String,
    },
    /// The server gives no session, so that no program can run.
    NoSession {
        /// Why.
        reason: String,
    },
    /// There is a session, and the program failed.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Judges a trial.
pub fn check(trial: &Trial) -> Finding {
    let target = &trial.target;
    match &trial.outcome {
        Outcome::Ran { device, via } => Finding::good(
            About::Program,
            format!(
                "A CUDA program of this machine runs on {device} at {target}, over {via}: its kernel and its copies are right."
            ),
        ),
        // What to do stands beside the reason, among what is said of the way.
        Outcome::NoSession { reason } => {
            let text = format!("No CUDA program can run at {target}: {}", sentence(reason));
            Finding { advice: None, ..Finding::problem(About::Program, text, "") }
        }
        Outcome::Failed { reason } => Finding::problem(
            About::Program,
            format!(
                "A CUDA program does not run at {target}, though the server gives a session: {}",
                sentence(reason)
            ),
            "Look at the server's log, and run `causeway run --verbose --on SERVER -- PROGRAM` for what the client library says.",
        ),
    }
}

/// A reason with one mark at its end.
fn sentence(reason: &str) -> String {
    let ends = reason.ends_with(['.', '?', '!']);
    if ends { reason.to_owned() } else { format!("{reason}.") }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn only_a_program_that_ran_is_good() {
        let judged = |outcome| check(&Trial { target: "box (a:1)".into(), outcome });
        let ran = judged(Outcome::Ran { device: "NVIDIA H100".into(), via: "tcp".into() });
        assert!(
            ran.level == Level::Good && ran.text.contains("on NVIDIA H100 at box (a:1), over tcp"),
            "{ran:?}"
        );
        let none = judged(Outcome::NoSession { reason: "nothing listens".into() });
        assert!(
            none.level == Level::Problem && none.advice.is_none() && none.text.ends_with("nothing listens.")
        );
        let failed = judged(Outcome::Failed { reason: "cuInit returned 100".into() });
        assert!(
            failed.level == Level::Problem
                && failed.advice.is_some()
                && failed.text.contains("cuInit returned 100")
        );
    }
}
