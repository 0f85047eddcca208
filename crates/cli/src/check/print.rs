//! Report of a check, for people and as JSON. Names come from the files, so they are printed as [`printable`] has them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use causeway_gpu_software::Options;
use causeway_gpu_software::check::Code;
use causeway_wire::text::printable;
use serde_json::{Value, json};

use super::finding::{FileCheck, Lacking};

/// Findings of one kind that are listed for people; JSON has all.
const MAX_LISTED: usize = 12;
/// No longer is a line.
const MAX_LINE: usize = 2000;

/// A file that was looked for code and could not be read, and why.
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub cause: String,
}

/// What was found in all files.
pub struct Report<'a> {
    /// Those with GPU code, or that use CUDA.
    pub files: &'a [FileCheck],
    /// Those that cannot be read.
    pub unreadable: &'a [Unreadable],
    /// The files and folders that are named.
    pub searched: &'a str,
    /// How many files were looked at.
    pub examined: usize,
    /// The software GPU.
    pub options: &'a Options,
}

/// The report for people.
pub fn text(report: &Report<'_>) -> String {
    let mut out = String::new();
    for file in report.files {
        let _ = writeln!(out, "{}", plain(&file.path.display().to_string()));
        line(&mut out, if file.is_good() { "ok      " } else { "note    " }, &summary(file));
        if let Some(reason) = &file.machine_code_reason {
            let (images, kernels) = (file.machine_code_images, &file.machine_code_kernels);
            line(&mut out, "PROBLEM ", &format!("{}: {reason}", count(images, "module")));
            let names: Vec<_> = kernels.iter().take(MAX_LISTED).map(String::as_str).collect();
            let more = kernels.len().saturating_sub(MAX_LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            if !names.is_empty() {
                line(&mut out, "        ", &format!("its kernels: {}{more}", names.join(", ")));
            }
        }
        for lacking in file.lacking.iter().take(MAX_LISTED) {
            line(&mut out, "PROBLEM ", &sentence(lacking));
        }
        let more = file.lacking.len().saturating_sub(MAX_LISTED) + file.unlisted;
        if more > 0 {
            line(&mut out, "PROBLEM ", &format!("... and {more} more; --json lists up to 10000"));
        }
    }
    for file in report.unreadable {
        let text = format!("{} cannot be checked: {}", file.path.display(), file.cause);
        line(&mut out, "PROBLEM ", &text);
    }
    let lacking = report.files.iter().filter(|file| !file.is_good()).count();
    // One that is named is there without any, too.
    let concerned = report.files.iter().filter(|file| file.images > 0 || !file.is_good()).count();
    if report.examined == 0 && report.unreadable.is_empty() {
        let _ = writeln!(out, "There is no program or library in {}.", plain(report.searched));
        return out;
    }
    let _ = writeln!(
        out,
        "{} of {} with GPU code or CUDA calls; the software GPU (compute capability {}, PTX up to {}) {}.",
        count(concerned, "file"),
        report.examined,
        version(report.options.capability),
        version(report.options.newest_ptx),
        match (lacking, concerned) {
            (_, 0) => "is not needed by them".to_owned(),
            (0, _) => "has everything that they need".to_owned(),
            (some, _) => format!("lacks something for {some}"),
        }
    );
    out
}

/// The report as JSON.
pub fn json(report: &Report<'_>) -> Value {
    json!({
        "capability": version(report.options.capability),
        "newest_ptx": version(report.options.newest_ptx),
        "examined": report.examined,
        "is_good": report.unreadable.is_empty() && report.files.iter().all(FileCheck::is_good),
        "files": report.files.iter().map(file_to_json).collect::<Vec<_>>(),
        "unreadable": report.unreadable.iter().map(|file| json!({
            "path": path_to_json(&file.path),
            "cause": file.cause,
        })).collect::<Vec<_>>(),
    })
}

fn file_to_json(file: &FileCheck) -> Value {
    let capabilities = |is_ptx: bool| {
        let found = file.code.iter().filter(|code| code.is_ptx == is_ptx);
        found.map(|code| version(code.capability)).collect::<Vec<_>>()
    };
    json!({
        "path": path_to_json(&file.path),
        "is_good": file.is_good(),
        "modules": file.images,
        "ptx": capabilities(true),
        "machine_code": capabilities(false),
        "ptx_versions": file.ptx_versions.iter().copied().map(version).collect::<Vec<_>>(),
        "good_kernels": file.good_kernels,
        "machine_code_alone": {
            "modules": file.machine_code_images,
            "kernels": file.machine_code_kernels,
        },
        "lacking": file.lacking.iter().map(lacking_to_json).collect::<Vec<_>>(),
        "unlisted": file.unlisted,
    })
}

fn lacking_to_json(lacking: &Lacking) -> Value {
    match lacking {
        Lacking::Instruction { kernel, line, instruction, reason } => json!({
            "kind": "instruction", "kernel": kernel, "line": line, "instruction": instruction, "reason": reason,
        }),
        Lacking::Module { reason } => json!({ "kind": "module", "reason": reason }),
        Lacking::Call { function, reason } => {
            json!({ "kind": "call", "function": function, "reason": reason })
        }
        Lacking::Library { name, path, reason } => json!({
            "kind": "library", "library": name, "path": path.as_deref().map(path_to_json), "reason": reason,
        }),
    }
}

fn path_to_json(path: &Path) -> Value {
    path.to_string_lossy().into()
}

/// What a file has, in short.
fn summary(file: &FileCheck) -> String {
    if file.images == 0 {
        return "no GPU code in the file; code that it compiles or reads while it runs is not checked"
            .to_owned();
    }
    let list = |codes: Vec<String>| if codes.is_empty() { "none".to_owned() } else { codes.join(", ") };
    let capabilities = |is_ptx: bool| {
        let found = file.code.iter().filter(|code: &&Code| code.is_ptx == is_ptx);
        list(found.map(|code| version(code.capability)).collect())
    };
    let versions = file.ptx_versions.iter().copied().map(version).collect();
    format!(
        "{}, {} that can be launched; PTX for {} (version {}), machine code for {}",
        count(file.images, "module"),
        count(file.good_kernels, "kernel"),
        capabilities(true),
        list(versions),
        capabilities(false)
    )
}

fn sentence(lacking: &Lacking) -> String {
    match lacking {
        Lacking::Instruction { kernel, reason, .. } => format!("kernel {kernel}: {reason}"),
        Lacking::Module { reason } => format!("a module cannot be loaded: {reason}"),
        Lacking::Call { function, reason } => {
            format!("it calls {function}, which returns CUDA_ERROR_NOT_SUPPORTED: {reason}")
        }
        Lacking::Library { name, path: Some(path), reason } => {
            format!("{name} ({}) {reason}", path.display())
        }
        Lacking::Library { name, path: None, reason } => format!("{name} {reason}"),
    }
}

fn line(out: &mut String, level: &str, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "  {level} {}", plain(text));
}

fn plain(text: &str) -> String {
    printable(text, MAX_LINE)
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn version(number: u32) -> String {
    format!("{}.{}", number / 10, number % 10)
}
