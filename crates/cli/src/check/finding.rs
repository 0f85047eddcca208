//! What was found in one file, and what the software GPU lacks for it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use causeway_api::image::Form;
use causeway_gpu_software::Options;
use causeway_gpu_software::check::{Code, ImageCheck, check_image};

/// The most kernels and reasons that are listed for a file; the others are counted.
const MAX_LISTED: usize = 10_000;

/// A file with GPU code, or that uses CUDA.
#[derive(Debug, Default)]
pub struct FileCheck {
    /// The file.
    pub path: PathBuf,
    /// How many module images it has.
    pub images: usize,
    /// The code in them.
    pub code: BTreeSet<Code>,
    /// The versions of the PTX that the software GPU takes of them.
    pub ptx_versions: BTreeSet<u32>,
    /// How many kernels can be launched.
    pub good_kernels: usize,
    /// Kernels of images without PTX for the software GPU.
    pub machine_code_kernels: BTreeSet<String>,
    /// How many images are such.
    pub machine_code_images: usize,
    /// Why the first of them is.
    pub machine_code_reason: Option<String>,
    /// What else it lacks.
    pub lacking: Vec<Lacking>,
    /// How many of all these are not listed.
    pub unlisted: usize,
}

/// One thing that the software GPU lacks, but for machine code alone.
#[derive(Debug, PartialEq, Eq)]
pub enum Lacking {
    /// An instruction, or a directive of a function.
    Instruction {
        /// The kernel that has it or calls a function that has it.
        kernel: String,
        /// Its line in the PTX.
        line: Option<u32>,
        /// It, as written.
        instruction: Option<String>,
        /// A sentence.
        reason: String,
    },
    /// A module cannot be loaded, though it has PTX.
    Module {
        /// A sentence.
        reason: String,
    },
    /// A driver call that the file is linked to.
    Call {
        /// Its name.
        function: String,
        /// Why it is not answered.
        reason: String,
    },
    /// A library that the file is linked to.
    Library {
        /// Its name.
        name: String,
        /// Where it is, if it was found.
        path: Option<PathBuf>,
        /// What is wrong with it.
        reason: String,
    },
}

impl FileCheck {
    /// Nothing found yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    /// Adds what the software GPU makes of one image.
    pub fn add_image(&mut self, form: Form, image: &[u8], options: &Options) {
        let ImageCheck { code, ptx_versions, kernels, refused_kernels, refusal } =
            check_image(form, image, options);
        self.images += 1;
        self.code.extend(code);
        self.ptx_versions.extend(ptx_versions);
        match refusal {
            None => self.good_kernels += kernels.len() - refused_kernels.len(),
            Some(refusal) if refusal.lacks_ptx => {
                self.machine_code_images += 1;
                self.machine_code_reason.get_or_insert(refusal.reason);
                for kernel in kernels {
                    if self.machine_code_kernels.len() < MAX_LISTED {
                        self.machine_code_kernels.insert(kernel);
                    } else {
                        self.unlisted += 1;
                    }
                }
            }
            Some(refusal) => self.add(Lacking::Module { reason: refusal.reason }),
        }
        for kernel in refused_kernels {
            let (line, instruction, reason) = (kernel.line, kernel.instruction, kernel.reason);
            self.add(Lacking::Instruction { kernel: kernel.name, line, instruction, reason });
        }
    }

    /// Adds what it lacks besides.
    pub fn add(&mut self, lacking: Lacking) {
        if self.lacking.len() < MAX_LISTED {
            self.lacking.push(lacking);
        } else {
            self.unlisted += 1;
        }
    }

    /// Whether the software GPU has all that it needs.
    pub fn is_good(&self) -> bool {
        self.machine_code_images == 0 && self.lacking.is_empty()
    }
}
