//! The client's exported symbols.
//!
//! A stub of a posted or called entry checks what can be checked here, builds the request and hands it to the
//! session; a stub of a local, hand-written or wrapped entry calls the function of the same name
//! in `crate::abi::calls`.

use crate::entry::{Argument, Entry, Kind, Mode};
use crate::types::{c_argument, count, ident, marker, reply_part, request_field};
use proc_macro2::TokenStream;
use quote::quote;

pub fn expand(entries: &[Entry]) -> TokenStream {
    let functions: Vec<(usize, &Entry)> =
        entries.iter().filter(|entry| !entry.operation).enumerate().collect();
    let mut symbols = Vec::new();
    let mut stubs = Vec::new();
    for (index, entry) in functions {
        symbols.push(entry.name.clone());
        stubs.push(stub(entry, index, &entry.name, quote!(crate::submit::streams::DefaultStream::Legacy)));
        if let Some((suffix, _)) = &entry.per_thread {
            let symbol = format!("{}_{suffix}", entry.name);
            stubs.push(stub(entry, index, &symbol, quote!(crate::submit::streams::DefaultStream::PerThread)));
            symbols.push(symbol);
        }
    }
    let names = symbols.iter().map(|symbol| ident(symbol));
    quote! {
        #(#stubs)*

        /// Every exported symbol and its address, in the order of the declaration list.
        pub(crate) static ENTRY_POINTS: &[(&str, crate::abi::entry::Address)] =
            &[#((#symbols, crate::abi::entry::Address(#names as *const ::core::ffi::c_void))),*];
    }
}

fn stub(entry: &Entry, index: usize, symbol: &str, default_stream: TokenStream) -> TokenStream {
    let symbol = ident(symbol);
    let names: Vec<_> = entry.arguments.iter().map(|argument| ident(&argument.name)).collect();
    let types: Vec<_> = entry.arguments.iter().map(c_argument).collect();
    let body = match entry.kind {
        Kind::Unsupported => quote! {
            #(let _ = #names;)*
            crate::abi::entry::unsupported(#index)
        },
        Kind::Same => {
            let target = entry.target.as_ref().expect("the list gives every `same` entry its target");
            let suffix = symbol.to_string()[entry.name.len()..].to_owned();
            let target = ident(&format!("{target}{suffix}"));
            quote! {
                // SAFETY: the target takes the same arguments with the same meaning, and the program vouches
                // for their pointers.
                unsafe { #target(#(#names),*) }
            }
        }
        Kind::Posted | Kind::Called if !entry.wrapped => wire_body(entry, index, &default_stream),
        _ => {
            let name = ident(&entry.name);
            let default_stream = entry.per_thread.is_some().then(|| quote!(, #default_stream));
            let passed = if names.is_empty() && default_stream.is_some() {
                quote!(#default_stream)
            } else {
                quote!(#(#names),* #default_stream)
            };
            quote! {
                // SAFETY: the caller passes what `cuda.h` demands of this entry point, and the
                // hand-written function demands the same.
                crate::abi::entry::enter(#index, || unsafe { crate::abi::calls::#name(#passed) })
            }
        }
    };
    quote! {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]
        pub unsafe extern "C" fn #symbol(#(#names: #types),*) -> ::causeway_api::sys::CUresult {
            #body
        }
    }
}

fn wire_body(entry: &Entry, index: usize, default_stream: &TokenStream) -> TokenStream {
    let checks = entry.arguments.iter().filter_map(check);
    let reads = entry.arguments.iter().filter_map(|argument| read(argument, default_stream));
    let fields = entry
        .arguments
        .iter()
        .filter(|argument| request_field(argument).is_some())
        .map(|argument| ident(&argument.name));
    let request_name = ident(&entry.name);
    let request = quote! {
        let request = {
            #(#reads)*
            ::causeway_api::calls::#request_name { #(#fields),* }
        };
    };
    let results: Vec<&Argument> = entry.arguments.iter().filter(|a| reply_part(a).is_some()).collect();
    let result_names: Vec<_> = results.iter().map(|a| ident(&format!("result_{}", a.name))).collect();
    let writes = results.iter().zip(&result_names).map(|(argument, result)| write(argument, result));
    let created: Vec<_> = entry.arguments.iter().filter(|a| a.mode == Mode::New).collect();
    let handles = created.iter().map(|argument| {
        let slot = ident(&argument.name);
        // SAFETY of the generated write: checked non-null above, valid by the contract of `cuda.h`.
        quote!(unsafe { #slot.write(crate::model::handles::RawHandle::as_raw(request.#slot)) };)
    });
    // A call about a device goes to the server that has it.
    let device = entry.arguments.iter().find(|a| a.base == "CUdevice" && matches!(a.mode, Mode::Value));
    let target = entry.anywhere.then(|| match device.map(|device| ident(&device.name)) {
        Some(device) => {
            quote!(let target = crate::model::context::anywhere_on(crate::model::device::device(#device)?.server);)
        }
        None => quote!(let target = crate::model::context::anywhere();),
    });
    let send = match entry.kind {
        Kind::Posted if entry.anywhere => quote!(crate::submit::send::post_in(target, &request)?;),
        Kind::Posted => quote!(crate::submit::send::post(&request)?;),
        _ => {
            let pattern = match result_names.as_slice() {
                [] => quote!(()),
                [one] => quote!(#one),
                many => quote!((#(#many),*)),
            };
            let call = match (entry.pure, entry.anywhere) {
                (true, true) => quote!(crate::submit::send::call_cached(target, &request)),
                (true, false) => {
                    quote!(crate::submit::send::call_cached(crate::model::context::current()?, &request))
                }
                (_, true) => quote!(crate::submit::send::call_in(target, &request)),
                _ => quote!(crate::submit::send::call(&request)),
            };
            let call = created.iter().fold(call, |call, argument| {
                let slot = ident(&argument.name);
                quote!(crate::model::handles::or_drop(request.#slot, #call))
            });
            quote! {
                let #pattern = #call?;
                #(#writes)*
            }
        }
    };
    quote! {
        crate::abi::entry::enter(#index, || {
            #(#checks)*
            #target
            #request
            #send
            #(#handles)*
            Ok(())
        })
    }
}

/// A pointer that must not be null is refused here, as the driver does.
fn check(argument: &Argument) -> Option<TokenStream> {
    let name = ident(&argument.name);
    let checked = matches!(
        argument.mode,
        Mode::New | Mode::In { nullable: false } | Mode::Out { nullable: false } | Mode::InOut | Mode::Text
    );
    checked.then(|| {
        quote! {
            if #name.is_null() {
                return Err(::causeway_api::sys::CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
    })
}

/// Turns the C argument into the field of the request.
fn read(argument: &Argument, default_stream: &TokenStream) -> Option<TokenStream> {
    let name = ident(&argument.name);
    let marker = marker(&argument.base);
    match (&argument.mode, marker) {
        (Mode::New, Some(marker)) => Some(quote!(let #name = crate::model::handles::create::<#marker>();)),
        (Mode::Value, Some(_)) if argument.base == "CUstream" => {
            Some(quote!(let #name = crate::submit::streams::resolve(#name, #default_stream)?;))
        }
        (Mode::Value, None) if argument.base == "CUdevice" => {
            Some(quote!(let #name = crate::model::device::on_server(#name)?;))
        }
        (Mode::Value, Some(marker)) => {
            Some(quote!(let #name = crate::model::handles::resolve::<#marker>(#name)?;))
        }
        (Mode::Drop, Some(marker)) => {
            Some(quote!(let #name = crate::model::handles::retire::<#marker>(#name)?;))
        }
        (Mode::In { nullable: false } | Mode::InOut, None) => {
            // SAFETY of the generated read: checked non-null, valid by the contract of `cuda.h`. Older
            // headers align some structures less.
            Some(quote!(let #name = unsafe { #name.read_unaligned() };))
        }
        (Mode::In { nullable: true }, None) => Some(quote!(let #name = unsafe { #name.as_ref() }.copied();)),
        (Mode::Text, None) => Some(quote!(let #name = unsafe { crate::arguments::text(#name) }?;)),
        (Mode::InList { count: Some(number) }, marker) => {
            let count = count(number);
            let list = quote!(unsafe { crate::arguments::list(#name, #count) }?);
            Some(match marker {
                Some(marker) => quote! {
                    let #name = #list.iter().map(|raw| crate::model::handles::resolve::<#marker>(*raw))
                        .collect::<::core::result::Result<::std::vec::Vec<_>, _>>()?;
                },
                None if argument.base == "bytes" => {
                    quote!(let #name: &[u8] = unsafe { crate::arguments::list(#name.cast(), #count) }?;)
                }
                None => quote!(let #name = #list.to_vec();),
            })
        }
        _ => None,
    }
}

/// Stores a result where the program asked for it.
fn write(argument: &Argument, result: &proc_macro2::Ident) -> TokenStream {
    let name = ident(&argument.name);
    match &argument.mode {
        Mode::OutList { count: number } => {
            let count = count(number);
            quote!(unsafe { crate::arguments::store(#name.cast(), #count, &#result) }?;)
        }
        Mode::Out { nullable: true } => {
            quote!(if !#name.is_null() { unsafe { #name.write_unaligned(#result) } })
        }
        _ => quote!(unsafe { #name.write_unaligned(#result) };),
    }
}
