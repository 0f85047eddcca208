//! The real driver: its function pointers, and the calls that are passed on as they are.

use crate::entry::{Argument, Entry, Mode};
use crate::traits::signature;
use crate::types::{c_argument, c_value, count, ident, marker, reply_part};
use proc_macro2::TokenStream;
use quote::quote;

pub fn expand_library(entries: &[Entry]) -> TokenStream {
    let functions: Vec<&Entry> = entries.iter().filter(|entry| !entry.operation).collect();
    let names: Vec<_> = functions.iter().map(|entry| ident(&entry.name)).collect();
    let symbols: Vec<_> = functions.iter().map(|entry| format!("{}\0", entry.name)).collect();
    let types: Vec<Vec<_>> =
        functions.iter().map(|entry| entry.arguments.iter().map(c_argument).collect()).collect();
    let arguments: Vec<Vec<_>> =
        functions.iter().map(|entry| entry.arguments.iter().map(|a| ident(&a.name)).collect()).collect();
    quote! {
        /// The entry points of a loaded driver library; one that it lacks answers
        /// `CUDA_ERROR_NOT_FOUND` when it is called.
        #[allow(non_snake_case)]
        pub struct Functions {
            #(#names: Option<unsafe extern "C" fn(#(#types),*) -> ::causeway_api::sys::CUresult>),*
        }

        impl Functions {
            /// Looks up every entry point with `find`, which gives null for an unknown name.
            ///
            /// # Safety
            /// What `find` gives must be the function of that name with the signature of `cuda.h`.
            pub unsafe fn load(mut find: impl FnMut(&::core::ffi::CStr) -> *const ::core::ffi::c_void) -> Self {
                Self {
                    #(#names: {
                        let name = ::core::ffi::CStr::from_bytes_with_nul(#symbols.as_bytes())
                            .expect("symbols end in one NUL");
                        let address = find(name);
                        // SAFETY: the caller vouches that a non-null address is this function; the type is
                        // that of `cuda.h` by the declaration list, and `Option` makes null `None`.
                        unsafe {
                            ::core::mem::transmute::<
                                *const ::core::ffi::c_void,
                                Option<unsafe extern "C" fn(#(#types),*) -> ::causeway_api::sys::CUresult>,
                            >(address)
                        }
                    }),*
                }
            }

            #(
                /// The driver's function of this name, its status as a `Result`.
                ///
                /// # Safety
                /// As `cuda.h` demands of the caller: pointers must be valid for the call.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                pub unsafe fn #names(&self, #(#arguments: #types),*)
                    -> ::core::result::Result<(), ::causeway_api::sys::CUresult>
                {
                    match self.#names {
                        // SAFETY: the caller passes what `cuda.h` has this function take, with pointers that
                        // are valid for the call.
                        Some(entry_point) => status(unsafe { entry_point(#(#arguments),*) }),
                        None => Err(::causeway_api::sys::CUresult::CUDA_ERROR_NOT_FOUND),
                    }
                }
            )*
        }

        fn status(result: ::causeway_api::sys::CUresult)
            -> ::core::result::Result<(), ::causeway_api::sys::CUresult>
        {
            if result == ::causeway_api::sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
        }
    }
}

pub fn expand_calls(entries: &[Entry], subject: &str) -> TokenStream {
    let mut methods =
        entries.iter().filter(|entry| entry.subject == subject && !entry.operation).map(method).peekable();
    assert!(methods.peek().is_some(), "no call of the driver API has the subject `{subject}`");
    quote!(#(#methods)*)
}

fn method(entry: &Entry) -> TokenStream {
    let signature = signature(entry);
    let name = ident(&entry.name);
    let prepared = entry.arguments.iter().filter_map(prepare);
    let passed = entry.arguments.iter().map(pass);
    let results: Vec<_> = entry
        .arguments
        .iter()
        .filter(|a| a.mode == Mode::New)
        .chain(entry.arguments.iter().filter(|a| reply_part(a).is_some()))
        .map(result)
        .collect();
    quote! {
        #[allow(non_snake_case)]
        #signature {
            #(#prepared)*
            // SAFETY: the pointers are to locals or to slices of the length that is passed along, the
            // handles are the driver's own, and the results were initialised before the call.
            unsafe { self.functions.#name(#(#passed),*)?; }
            Ok((#(#results),*))
        }
    }
}

/// Storage for what the driver writes, and lists of handles as the driver has them.
fn prepare(argument: &Argument) -> Option<TokenStream> {
    let slot = ident(&format!("slot_{}", argument.name));
    let name = ident(&argument.name);
    let value = if argument.base == "bytes" { quote!(u8) } else { c_value(&argument.base) };
    match &argument.mode {
        Mode::New => Some(quote!(let mut #slot: #value = ::core::ptr::null_mut();)),
        Mode::Out { .. } => Some(quote!(let mut #slot: #value = ::core::default::Default::default();)),
        Mode::InOut => Some(quote!(let mut #slot: #value = *#name;)),
        Mode::OutList { count: list_count } => {
            let list_count = count(list_count);
            Some(quote! {
                let list_length: usize = #list_count;
                // A peer chose the count: more than this no list of the API holds.
                if list_length > 1 << 20 { return Err(::causeway_api::sys::CUresult::CUDA_ERROR_INVALID_VALUE); }
                let mut #slot: ::std::vec::Vec<#value> = vec![::core::default::Default::default(); list_length];
            })
        }
        Mode::InList { count: list_count } => {
            // A peer chose the list and the count apart from each other.
            let check = list_count.as_ref().map(|list_count| {
                let list_count = count(list_count);
                quote! {
                    if #name.len() != #list_count {
                        return Err(::causeway_api::sys::CUresult::CUDA_ERROR_INVALID_VALUE);
                    }
                }
            });
            let natives = marker(&argument.base).map(|_| {
                quote! {
                    let #slot: ::std::vec::Vec<#value> = #name.iter().map(|native| native.as_raw()).collect();
                }
            });
            Some(quote!(#check #natives))
        }
        Mode::Text => Some(quote! {
            let #slot = ::std::ffi::CString::new(#name)
                .map_err(|_| ::causeway_api::sys::CUresult::CUDA_ERROR_INVALID_VALUE)?;
        }),
        _ => None,
    }
}

fn pass(argument: &Argument) -> TokenStream {
    let slot = ident(&format!("slot_{}", argument.name));
    let name = ident(&argument.name);
    let is_handle = marker(&argument.base).is_some();
    match &argument.mode {
        Mode::Value | Mode::Drop if is_handle => quote!(#name.as_raw()),
        Mode::Value | Mode::Drop => quote!(#name),
        Mode::New | Mode::Out { .. } | Mode::InOut => quote!(&mut #slot),
        Mode::OutList { .. } => quote!(#slot.as_mut_ptr().cast()),
        Mode::In { nullable: false } => quote!(#name),
        Mode::In { nullable: true } => quote!(#name.map_or(::core::ptr::null(), |value| value)),
        Mode::InList { .. } if is_handle => quote!(#slot.as_ptr()),
        Mode::InList { .. } => quote!(#name.as_ptr().cast()),
        Mode::Text => quote!(#slot.as_ptr()),
        Mode::Pointer { .. } | Mode::Payload => unreachable!("not in a generated driver call"),
    }
}

fn result(argument: &Argument) -> TokenStream {
    let slot = ident(&format!("slot_{}", argument.name));
    match argument.mode {
        Mode::New => quote!(::causeway_api::handle::Native::from_raw(#slot)),
        _ => quote!(#slot),
    }
}
