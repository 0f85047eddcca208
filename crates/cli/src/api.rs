//! `causeway api`: the driver functions that are supported.

use std::io::{self, Write as _};
use std::process::ExitCode;

use causeway_api::coverage::{FUNCTIONS, Function, Kind};
use clap::Args;

/// List the functions of the CUDA driver API, by the headers that declare them, and how each is carried out.
///
/// local: the client answers. posted: sent without waiting. called: waits for the server's reply. by hand:
/// one of these, depending on the arguments. not supported: the function exists and returns
/// CUDA_ERROR_NOT_SUPPORTED.
#[derive(Debug, Args)]
pub struct Arguments {
    /// List only what is not supported, and why.
    #[arg(long)]
    not_supported: bool,
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the table and how many functions there are of each kind.
pub fn api(arguments: &Arguments) -> io::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match print(arguments, &mut out).and_then(|()| out.flush()) {
        // As with `causeway api | head`: who asked has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        printed => printed.map(|()| ExitCode::SUCCESS),
    }
}

fn print(arguments: &Arguments, out: &mut impl io::Write) -> io::Result<()> {
    let unsupported = |function: &&Function| matches!(function.kind, Kind::Unsupported { .. });
    if arguments.json {
        let listed = FUNCTIONS.iter().filter(|function| !arguments.not_supported || unsupported(function));
        return writeln!(out, "{:#}", serde_json::Value::from_iter(listed.map(to_json)));
    }
    let width = FUNCTIONS.iter().map(|function| function.symbol.len()).max().unwrap_or_default();
    writeln!(out, "{:width$}  since  carried out", "function")?;
    let mut header = "";
    for function in
        by_header().into_iter().filter(|function| !arguments.not_supported || unsupported(function))
    {
        if function.header != header {
            header = function.header;
            writeln!(out, "\n{header}:")?;
        }
        let since = since(function);
        write!(out, "{:width$}  {since:>5}  {}", function.symbol, function.kind)?;
        if let Kind::Unsupported { reason } = function.kind {
            write!(out, ": {reason}")?;
        }
        if let Some(variant) = function.per_thread {
            write!(out, " (also {})", variant.symbol)?;
        }
        writeln!(out)?;
    }
    let count = |kind: Kind| FUNCTIONS.iter().filter(|function| function.kind == kind).count();
    let missing = FUNCTIONS.iter().filter(unsupported).count();
    let older = FUNCTIONS.iter().filter(|function| matches!(function.kind, Kind::Same { .. })).count();
    writeln!(
        out,
        "\n{} functions: {} supported ({} local, {} posted, {} called, {} by hand, {older} \
         older names), {missing} not supported",
        FUNCTIONS.len(),
        FUNCTIONS.len() - missing,
        count(Kind::Local),
        count(Kind::Posted),
        count(Kind::Called),
        count(Kind::Hand),
    )
}

/// All functions, those of one header together: `cuda.h` first, and the others as the list has them.
fn by_header() -> Vec<&'static Function> {
    let mut headers: Vec<&str> = Vec::new();
    for function in FUNCTIONS {
        if !headers.contains(&function.header) {
            headers.push(function.header);
        }
    }
    headers.iter().flat_map(|header| FUNCTIONS.iter().filter(move |one| one.header == *header)).collect()
}

fn since(function: &Function) -> String {
    format!("{}.{}", function.since / 1000, function.since % 1000 / 10)
}

fn to_json(function: &Function) -> serde_json::Value {
    let reason = if let Kind::Unsupported { reason } = function.kind { Some(reason) } else { None };
    serde_json::json!({
        "function": function.symbol,
        "header": function.header,
        "since": since(function),
        "carried_out": function.kind.to_string(),
        "is_supported": reason.is_none(),
        "reason": reason,
        "per_thread": function.per_thread.map(|variant| variant.symbol),
    })
}
