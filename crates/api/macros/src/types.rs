//! From the types of the list to Rust types: at the C boundary, on the wire, and in the back end's trait.

use crate::entry::{Argument, Count, Entry, Mode};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

/// Handle types of the C API and the marker of each in `causeway_api::handle`.
const HANDLES: &[(&str, &str)] = &[
    ("CUcontext", "Context"),
    ("CUmodule", "Module"),
    ("CUlibrary", "Library"),
    ("CUfunction", "Function"),
    ("CUkernel", "Kernel"),
    ("CUstream", "Stream"),
    ("CUevent", "Event"),
    ("CUgraph", "Graph"),
    ("CUgraphNode", "GraphNode"),
    ("CUgraphExec", "GraphExec"),
    ("CUmemoryPool", "MemoryPool"),
    ("CUarray", "Array"),
    ("CUmipmappedArray", "MipmappedArray"),
    ("CUlinkState", "LinkState"),
    ("CUtexref", "TextureReference"),
    ("CUsurfref", "SurfaceReference"),
    ("CUgreenCtx", "GreenContext"),
    ("CUdevResourceDesc", "ResourceDescription"),
    ("CUmemGenericAllocationHandle", "Allocation"),
];

/// Types of `causeway_api::types` that hold handles. A back end gets them as
/// `causeway_gpu::objects::Translate` makes them, with its own handles inside.
const HOLDERS: &[&str] = &["DeviceLocation", "TextureSource"];

/// Whether values of the type hold handles that must be looked up.
pub fn holds_handles(base: &str) -> bool {
    HOLDERS.contains(&base)
}

/// The marker type of a handle, if `base` is one.
pub fn marker(base: &str) -> Option<TokenStream> {
    HANDLES.iter().find(|(name, _)| *name == base).map(|(_, marker)| {
        let marker = format_ident!("{marker}");
        quote!(::causeway_api::handle::#marker)
    })
}

/// The Rust identifier of an argument or entry.
pub fn ident(name: &str) -> Ident {
    format_ident!("{name}")
}

/// The type as C passes it by value.
pub fn c_value(base: &str) -> TokenStream {
    match base {
        "bytes" => quote!(::core::ffi::c_void),
        "bool" | "u8" | "u16" | "u32" | "u64" | "i8" | "i32" | "i64" | "usize" | "f32" | "f64" => {
            let name = ident(base);
            quote!(#name)
        }
        "String" => quote!(::std::string::String),
        list if list.starts_with("Vec<") => {
            let element = c_value(list.trim_start_matches("Vec<").trim_end_matches('>'));
            quote!(::std::vec::Vec<#element>)
        }
        other if other.starts_with("CU") || other.starts_with("cu") => {
            let name = ident(other);
            quote!(::causeway_api::sys::#name)
        }
        other => {
            let name = ident(other);
            quote!(::causeway_api::types::#name)
        }
    }
}

/// The type of an argument in the C signature of the entry point.
pub fn c_argument(argument: &Argument) -> TokenStream {
    let value = c_value_or_void(&argument.base);
    match &argument.mode {
        Mode::Value | Mode::Drop => value,
        Mode::In { .. } | Mode::InList { .. } => quote!(*const #value),
        Mode::New | Mode::Out { .. } | Mode::OutList { .. } | Mode::InOut => quote!(*mut #value),
        Mode::Text => quote!(*const ::core::ffi::c_char),
        Mode::Pointer { depth: 1 } => quote!(*mut ::core::ffi::c_void),
        Mode::Pointer { .. } => quote!(*mut *mut ::core::ffi::c_void),
        Mode::Payload => unreachable!("only operations carry payloads"),
    }
}

fn c_value_or_void(base: &str) -> TokenStream {
    if base == "ptr" { quote!(::core::ffi::c_void) } else { c_value(base) }
}

/// The type of an argument in a request, or nothing when the argument does not travel to the server.
pub fn request_field(argument: &Argument) -> Option<TokenStream> {
    let element = match marker(&argument.base) {
        Some(marker) => quote!(::causeway_api::handle::Handle<#marker>),
        None => c_value_or_void(&argument.base),
    };
    match &argument.mode {
        Mode::Value | Mode::New | Mode::Drop => Some(element),
        Mode::In { nullable: false } | Mode::InOut => Some(element),
        Mode::In { nullable: true } => Some(quote!(::core::option::Option<#element>)),
        Mode::InList { .. } if argument.base == "bytes" => Some(quote!(&'a [u8])),
        Mode::InList { .. } => Some(quote!(::std::vec::Vec<#element>)),
        Mode::Text => Some(quote!(&'a str)),
        Mode::Payload => Some(quote!(::causeway_api::types::Payload<'a>)),
        Mode::Out { .. } | Mode::OutList { .. } => None,
        Mode::Pointer { .. } => {
            panic!("`{}`: a client address cannot travel in a generated request", argument.name)
        }
    }
}

/// Whether a request that holds this argument borrows from the message.
fn borrows(argument: &Argument) -> bool {
    matches!(argument.mode, Mode::Text | Mode::Payload)
        || (matches!(argument.mode, Mode::InList { .. }) && argument.base == "bytes")
}

/// The lifetime parameter of a request's type, if it borrows from the message.
pub fn lifetime(entry: &Entry) -> TokenStream {
    if entry.arguments.iter().any(borrows) { quote!(<'a>) } else { quote!() }
}

/// The type of an argument's result in a reply, or nothing when it has none.
pub fn reply_part(argument: &Argument) -> Option<TokenStream> {
    let value = c_value_or_void(&argument.base);
    match &argument.mode {
        Mode::Out { .. } | Mode::InOut => Some(value),
        Mode::OutList { .. } if argument.base == "bytes" => Some(quote!(::std::vec::Vec<u8>)),
        Mode::OutList { .. } => Some(quote!(::std::vec::Vec<#value>)),
        _ => None,
    }
}

/// The expression for the number of values of a list; it returns from the function when that makes no sense.
pub fn count(count: &Count) -> TokenStream {
    match count {
        Count::Fixed(number) => quote!(#number),
        Count::Argument { argument, less } => {
            let argument = ident(argument);
            quote! {
                usize::try_from(#argument).ok().and_then(|count| count.checked_sub(#less))
                    .ok_or(::causeway_api::sys::CUresult::CUDA_ERROR_INVALID_VALUE)?
            }
        }
    }
}

/// One type for a list of results: nothing, the result itself, or a tuple.
pub fn reply_type(parts: &[TokenStream]) -> TokenStream {
    match parts {
        [] => quote!(()),
        [one] => one.clone(),
        many => quote!((#(#many),*)),
    }
}
