//! NVIDIA's headers, where they are installed, and `g++` to read them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A header that is compared with a list of ours.
pub struct Header {
    /// The folder in `~/.cache/causeway` that `scripts` puts it into.
    pub folder: &'static str,
    /// Its file.
    pub name: &'static str,
}

impl Header {
    /// The folder that has the header, if it is there.
    pub fn include(&self) -> Option<PathBuf> {
        let cache = PathBuf::from(std::env::var_os("HOME")?).join(".cache/causeway");
        let include = cache.join(self.folder).join("nvidia/cu13/include");
        let compiler = Command::new("g++").arg("--version").stdout(Stdio::null()).status();
        if include.join(self.name).is_file() && compiler.is_ok_and(|status| status.success()) {
            return Some(include);
        }
        eprintln!("skipped: no {} in ~/.cache/causeway/{}, or no g++", self.name, self.folder);
        None
    }

    /// What `g++` with these options makes of `source`; nothing where header or compiler are missing.
    pub fn compile(&self, options: &[&str], source: &str) -> Option<Vec<u8>> {
        let include = self.include()?;
        let mut compiler = Command::new("g++")
            .args(options)
            .args(["-w", "-x", "c++", "-", "-I"])
            .arg(include)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("g++ was found before");
        let mut input = compiler.stdin.take().expect("a pipe was asked for");
        input.write_all(source.as_bytes()).expect("g++ reads all of it");
        drop(input);
        let output = compiler.wait_with_output().expect("g++ ends");
        assert!(output.status.success(), "g++ refuses the program");
        Some(output.stdout)
    }
}
