//! Back ends of this build.

use core::fmt;

use thiserror::Error;

use super::choice::GpuChoice;

/// What executes driver calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackEnd {
    /// NVIDIA's driver.
    Driver,
    /// The software GPU.
    Software,
}

impl BackEnd {
    /// The feature of cargo with which it is built in.
    fn feature(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Software => "software",
        }
    }
}

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "NVIDIA's driver",
            Self::Software => "the software GPU",
        })
    }
}

/// The back ends of this build, for people.
pub const BUILT_IN: &str = match (cfg!(feature = "driver"), cfg!(feature = "software")) {
    (true, true) => "NVIDIA's driver, the software GPU",
    (true, false) => "NVIDIA's driver",
    (false, true) => "the software GPU",
    (false, false) => "none",
};

/// A back end is asked for that this build does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "this build of causeway has no back end for {0} (it has: {BUILT_IN}): choose another one with --gpu, or \
     use a build with the feature `{feature}`", feature = .0.feature()
)]
pub struct NotBuiltIn(pub BackEnd);

/// Whether a server that is to work like this can serve anybody, in a build with these back ends.
///
/// # Errors
/// Names the back end without which it cannot.
pub fn check(choice: GpuChoice, built_in: impl Fn(BackEnd) -> bool) -> Result<(), NotBuiltIn> {
    let needed = match choice {
        GpuChoice::Driver | GpuChoice::Auto { allows_software: false } => BackEnd::Driver,
        GpuChoice::Cpu | GpuChoice::Auto { allows_software: true } => BackEnd::Software,
    };
    if built_in(needed) { Ok(()) } else { Err(NotBuiltIn(needed)) }
}

/// Whether this build holds a back end.
pub fn is_built_in(back_end: BackEnd) -> bool {
    match back_end {
        BackEnd::Driver => cfg!(feature = "driver"),
        BackEnd::Software => cfg!(feature = "software"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICES: [GpuChoice; 4] = [
        GpuChoice::Auto { allows_software: false },
        GpuChoice::Auto { allows_software: true },
        GpuChoice::Cpu,
        GpuChoice::Driver,
    ];

    #[test]
    fn a_choice_needs_the_back_end_that_it_may_come_to() {
        let lacking = |lacking: BackEnd| {
            CHOICES.map(|choice| check(choice, |back_end| back_end != lacking).map_err(|error| error.0))
        };
        let no_driver = Err(BackEnd::Driver);
        assert_eq!(lacking(BackEnd::Driver), [no_driver, Ok(()), Ok(()), no_driver]);
        let no_software = Err(BackEnd::Software);
        assert_eq!(lacking(BackEnd::Software), [Ok(()), no_software, no_software, Ok(())]);
    }

    #[test]
    fn the_error_says_what_to_do() {
        let text = NotBuiltIn(BackEnd::Software).to_string();
        for part in ["no back end for the software GPU", BUILT_IN, "--gpu", "the feature `software`"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
