//! Compares the declaration list and `sys` with NVIDIA's `cuda.h` and the headers of the driver's other entry points,
//! where the CUDA 13.0 toolkit is installed.
//!
//! `scripts` puts the toolkit into `~/.cache/causeway`; without it (or without `g++`) the tests say so and
//! pass.

mod toolkit;

use causeway_api::coverage::FUNCTIONS;
use causeway_api::sys;
use std::collections::BTreeMap;
use toolkit::Header;

const HEADER: Header = Header { folder: "cuda-13.0", name: "cuda.h" };

/// The headers of the driver's entry points, and how many declarations they have at least.
const HEADERS: [(&str, usize); 5] =
    [("cuda.h", 600), ("cudaGL.h", 17), ("cudaEGL.h", 12), ("cudaVDPAU.h", 5), ("cudaProfiler.h", 2)];

/// Every function that a header declares for the driver's own use, which are all that exist, with the
/// number of its arguments.
fn declared(name: &'static str) -> Option<BTreeMap<String, usize>> {
    let header = Header { name, ..HEADER };
    // What it includes is not looked at, and not there without a display's own headers.
    let text = std::fs::read_to_string(header.include()?.join(name)).expect("a header is text");
    let text: String = text
        .lines()
        .filter(|line| !line.contains("#include"))
        .fold("#define __CUDA_API_VERSION_INTERNAL 1\n".to_owned(), |text, line| text + line + "\n");
    let text = String::from_utf8(header.compile(&["-E", "-P"], &text)?).expect("a header is text");
    let text = text.replace("CUresult CUDAAPI cu", "CUresult cu");
    let mut functions = BTreeMap::new();
    for declaration in text.split("CUresult cu").skip(1) {
        let (name, rest) = declaration.split_once('(').expect("a declaration has arguments");
        let mut depth = 1;
        let mut commas = 0;
        let mut arguments = String::new();
        for letter in rest.chars() {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => commas += 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            arguments.push(letter);
        }
        let none = matches!(arguments.trim(), "" | "void");
        functions.insert(format!("cu{}", name.trim()), if none { 0 } else { commas + 1 });
    }
    Some(functions)
}

#[test]
fn list_matches_the_header() {
    for (header, least) in HEADERS {
        let Some(declared) = declared(header) else { continue };
        assert!(declared.len() >= least, "only {} declarations were found in {header}", declared.len());
        must_be_listed(header, &declared);
    }
}

fn must_be_listed(header: &str, declared: &BTreeMap<String, usize>) {
    let mut listed = BTreeMap::new();
    for function in FUNCTIONS.iter().filter(|function| function.header == header) {
        listed.insert(function.symbol.to_owned(), function.arguments);
        if let Some(variant) = function.per_thread {
            listed.insert(variant.symbol.to_owned(), function.arguments);
        }
    }
    let missing: Vec<_> = declared.keys().filter(|name| !listed.contains_key(*name)).collect();
    assert!(missing.is_empty(), "in {header}, not in the list: {missing:?}");
    let different: Vec<_> = declared
        .iter()
        .filter(|(name, arguments)| listed[*name] != **arguments)
        .map(|(name, arguments)| format!("{name}: {arguments} in {header}, {} in the list", listed[name]))
        .collect();
    assert!(different.is_empty(), "{different:?}");
    let extra: Vec<_> = listed.keys().filter(|name| !declared.contains_key(*name)).collect();
    // They are declared in another way.
    let unknown: Vec<_> = extra.iter().filter(|name| !name.starts_with("cuLink")).collect();
    assert!(unknown.is_empty(), "in the list, not in {header}: {unknown:?}");
}

macro_rules! sizes {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), size_of::<sys::$name>(), align_of::<sys::$name>())),*] };
}

/// Types that programs and this project exchange by address.
const SIZES: &[(&str, usize, usize)] = sizes!(
    CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY_DESCRIPTOR,
    CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMCPY2D,
    CUDA_MEMCPY3D,
    CUDA_MEMCPY3D_PEER,
    CUDA_MEMSET_NODE_PARAMS,
    CUDA_RESOURCE_DESC,
    CUDA_TEXTURE_DESC,
    CUaccessPolicyWindow,
    CUctxCreateParams,
    CUdevprop,
    CUlaunchAttribute,
    CUlaunchAttributeValue,
    CUlaunchConfig,
    CUmemAccessDesc,
    CUmemAllocationProp,
    CUmemLocation,
    CUmemPoolProps,
    CUmemPoolPtrExportData,
    CUstreamAttrValue,
    CUstreamBatchMemOpParams,
    CUtensorMap,
    CUuuid,
);

#[test]
fn types_are_as_large_as_in_the_header() {
    let checks: String = SIZES
        .iter()
        .map(|(name, size, align)| {
            format!("static_assert(sizeof({name}) == {size} && alignof({name}) == {align}, \"{name}\");\n")
        })
        .collect();
    HEADER.compile(&["-std=c++17", "-fsyntax-only"], &format!("#include <cuda.h>\n{checks}"));
}
