//! Fallback to the software GPU where NVIDIA's driver is unusable.
//!
//! Nobody gets the software GPU who was not told: only the owner of the server can allow it, and then the log
//! says that it is so. The first worker says it; others would say the same with every client.

use std::sync::atomic::{AtomicBool, Ordering};

use super::choice::GpuChoice;

static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Another process of this server has said what the machine lacks.
pub fn is_reported() {
    IS_REPORTED.store(true, Ordering::Relaxed);
}

/// Opens the software GPU in the driver's place, if that is allowed. `cause` is the sentence that says why
/// the driver, or what else was to be opened of it, cannot be used.
///
/// # Errors
/// A sentence for the client's user and the server's owner, if it is not allowed or fails, too.
pub fn without_driver<T>(
    choice: GpuChoice,
    cause: String,
    software: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    match choice {
        GpuChoice::Auto { allows_software: true } => {
            if IS_REPORTED.load(Ordering::Relaxed) {
                tracing::debug!("the software GPU serves, for the GPU cannot be used: {cause}");
            } else {
                tracing::warn!(
                    "the software GPU serves, as --allow-software says, for the GPU cannot be used: {cause}"
                );
            }
            software()
        }
        GpuChoice::Auto { allows_software: false } => Err(format!(
            "the GPU cannot be used: {}. To serve the software GPU instead, which is many times slower, start the \
             server with `--gpu cpu`, or with `--allow-software`, which takes it only where the driver fails",
            cause.trim_end_matches('.')
        )),
        GpuChoice::Cpu | GpuChoice::Driver => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(choice: GpuChoice) -> Result<&'static str, String> {
        without_driver(choice, "There is no driver.".to_owned(), || Ok("software"))
    }

    #[test]
    fn only_who_allows_it_gets_the_software_gpu() {
        assert_eq!(outcome(GpuChoice::Auto { allows_software: true }), Ok("software"));
        assert_eq!(outcome(GpuChoice::Driver), Err("There is no driver.".to_owned()));
        let why = outcome(GpuChoice::Auto { allows_software: false }).unwrap_err();
        for part in ["the GPU cannot be used: There is no driver. To", "`--gpu cpu`", "`--allow-software`"] {
            assert!(why.contains(part), "{why}");
        }
    }
}
