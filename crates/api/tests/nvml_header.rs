//! Compares the list of the monitoring API with NVIDIA's `nvml.h`, where it is installed.
//!
//! `scripts` puts the header into `~/.cache/causeway`; without it (or without `g++`) the tests say so and
//! pass.

mod toolkit;

use causeway_api::nvml::{ABSENT, Argument, FORWARDED, LOCAL, Mode, REFUSED};
use std::collections::{BTreeMap, BTreeSet};
use toolkit::Header;

/// The older names are declared, too.
const INCLUDE: &str = "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <nvml.h>\n";

const HEADER: Header = Header { folder: "nvml-13.0", name: "nvml.h" };

#[test]
fn the_list_has_every_function_of_the_header() {
    let Some(text) = HEADER.compile(&["-E", "-P"], INCLUDE) else { return };
    let text = String::from_utf8(text).expect("a header is text");
    let declared: BTreeSet<&str> = text
        .split("nvmlReturn_t nvml")
        .skip(1)
        .filter_map(|declaration| declaration.split_once('(').map(|(name, _)| name.trim()))
        .collect();
    assert!(declared.len() > 390, "only {} declarations were found", declared.len());
    let listed: BTreeSet<&str> = FORWARDED
        .iter()
        .map(|function| function.name)
        .chain([LOCAL, REFUSED, ABSENT].concat())
        .filter_map(|name| name.strip_prefix("nvml"))
        .collect();
    let missing: Vec<_> = declared.difference(&listed).collect();
    assert!(missing.is_empty(), "in nvml.h, not in the list: {missing:?}");
    let extra: Vec<_> = listed.difference(&declared).copied().collect();
    // The first returns text; the header does not have the second.
    assert_eq!(extra, ["ErrorString", "InternalGetExportTable"]);
}

/// The type of an argument in C.
fn c_type(argument: &Argument) -> String {
    match argument.mode {
        Mode::Value(value) => value.name.to_owned(),
        Mode::Device => "nvmlDevice_t".to_owned(),
        Mode::OutDevice | Mode::Devices(_) => "nvmlDevice_t *".to_owned(),
        Mode::Text => "const char *".to_owned(),
        Mode::VersionedIn(newest) => format!("const {} *", newest.name),
        Mode::Out(pointee, _)
        | Mode::InOut(pointee)
        | Mode::Versioned(pointee)
        | Mode::Bytes(pointee, _)
        | Mode::Array(pointee, _)
        | Mode::List(pointee, _)
        | Mode::Processes(pointee, _) => format!("{} *", pointee.name),
    }
}

#[test]
fn types_and_sizes_match_the_header() {
    let mut checks = String::from("#include <type_traits>\n");
    let mut sizes = BTreeMap::new();
    for function in FORWARDED {
        let arguments: Vec<_> = function.arguments.iter().map(c_type).collect();
        checks += &format!(
            "static_assert(std::is_same_v<decltype(&{name}), nvmlReturn_t (*)({})>, \"{name}\");\n",
            arguments.join(", "),
            name = function.name
        );
        for argument in function.arguments {
            match argument.mode {
                Mode::Value(a)
                | Mode::Out(a, _)
                | Mode::InOut(a)
                | Mode::Versioned(a)
                | Mode::VersionedIn(a)
                | Mode::Bytes(a, _)
                | Mode::Array(a, _)
                | Mode::List(a, _)
                | Mode::Processes(a, _) => drop(sizes.insert(a.name, a.size)),
                Mode::Device | Mode::OutDevice | Mode::Text | Mode::Devices(_) => {}
            }
        }
    }
    for (name, size) in sizes {
        checks += &format!("static_assert(sizeof({name}) == {size}, \"{name}\");\n");
    }
    HEADER.compile(&["-std=c++17", "-fsyntax-only"], &format!("{INCLUDE}{checks}"));
}
