//! The back end's traits, one for each subject of the list, and the way from a request to one of their
//! methods.

use crate::entry::{Argument, Entry, Mode};
use crate::types::{c_value, holds_handles, ident, marker, reply_part, reply_type};
use proc_macro2::{Ident, TokenStream};
use quote::quote;

fn executed(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.executed_by_back_end())
}

/// The subjects of what back ends execute, in the list's order.
fn subjects(entries: &[Entry]) -> Vec<&str> {
    let mut found = Vec::new();
    for entry in executed(entries) {
        if !found.contains(&entry.subject.as_str()) {
            found.push(entry.subject.as_str());
        }
    }
    found
}

/// The name of a subject's trait: `green_context` gives `GreenContextCalls`.
fn trait_name(subject: &str) -> Ident {
    let capitalised = subject.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    ident(&format!("{}Calls", capitalised.collect::<String>()))
}

/// The type of an argument of a trait method, or nothing when the method returns it.
fn parameter(argument: &Argument) -> Option<TokenStream> {
    let element = match marker(&argument.base) {
        Some(marker) => quote!(::causeway_api::handle::Native<#marker>),
        None if holds_handles(&argument.base) => {
            let holder = c_value(&argument.base);
            quote!(<#holder as crate::objects::Translate>::Native)
        }
        None => c_value(&argument.base),
    };
    match &argument.mode {
        Mode::Value | Mode::Drop => Some(element),
        Mode::In { nullable: false } | Mode::InOut => Some(quote!(&#element)),
        Mode::In { nullable: true } => Some(quote!(Option<&#element>)),
        Mode::InList { .. } if argument.base == "bytes" => Some(quote!(&[u8])),
        Mode::InList { .. } => Some(quote!(&[#element])),
        Mode::Text => Some(quote!(&str)),
        Mode::Payload => Some(quote!(&[u8])),
        Mode::OutList { .. } => None,
        Mode::New | Mode::Out { .. } => None,
        Mode::Pointer { .. } => panic!("`{}`: a client address cannot reach a back end", argument.name),
    }
}

fn returned(entry: &Entry) -> TokenStream {
    let created = entry.arguments.iter().filter(|a| a.mode == Mode::New).map(|argument| {
        let marker = marker(&argument.base).expect("only handles are made");
        quote!(::causeway_api::handle::Native<#marker>)
    });
    let parts: Vec<_> = created.chain(entry.arguments.iter().filter_map(reply_part)).collect();
    reply_type(&parts)
}

/// The signature of the trait method of `entry`, without its body.
pub fn signature(entry: &Entry) -> TokenStream {
    let name = ident(&entry.name);
    let (names, types): (Vec<_>, Vec<_>) =
        entry.arguments.iter().filter_map(|a| Some((ident(&a.name), parameter(a)?))).unzip();
    let returned = returned(entry);
    quote! {
        fn #name(&self, #(#names: #types),*)
            -> ::core::result::Result<#returned, ::causeway_api::sys::CUresult>
    }
}

pub fn expand_traits(entries: &[Entry]) -> TokenStream {
    let subjects = subjects(entries);
    let traits = subjects.iter().map(|subject| {
        let (name, text) = (trait_name(subject), format!("Commands whose subject is `{subject}`."));
        let methods = executed(entries).filter(|entry| entry.subject == *subject).map(method);
        quote! {
            #[doc = #text]
            #[allow(non_snake_case, clippy::too_many_arguments, clippy::type_complexity)]
            pub trait #name { #(#methods)* }
        }
    });
    let names: Vec<_> = subjects.iter().map(|subject| trait_name(subject)).collect();
    quote! {
        #(#traits)*

        /// Every command that a back end executes.
        pub trait Calls: Send + Sync #(+ #names)* {}

        impl<T: Send + Sync #(+ #names)*> Calls for T {}
    }
}

/// The method of `entry` with the body that it has in a back end that does not know better.
fn method(entry: &Entry) -> TokenStream {
    let signature = signature(entry);
    let text = match entry.operation {
        true => format!("Operation `{}`.", entry.name),
        false => format!("`{}` of the driver API.", entry.name),
    };
    let ignored = entry.arguments.iter().filter(|a| parameter(a).is_some()).map(|a| ident(&a.name));
    quote! {
        #[doc = #text]
        #signature {
            #(let _ = #ignored;)*
            Err(::causeway_api::sys::CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
    }
}

pub fn expand_dispatch(entries: &[Entry]) -> TokenStream {
    let arms = executed(entries).map(|entry| {
        let name = ident(&entry.name);
        let resolved = entry.arguments.iter().filter_map(resolve);
        let passed = entry.arguments.iter().filter(|a| parameter(a).is_some()).map(pass);
        let created: Vec<_> = entry.arguments.iter().filter(|a| a.mode == Mode::New).collect();
        let results: Vec<_> = (0..entry.arguments.iter().filter(|a| reply_part(a).is_some()).count())
            .map(|index| ident(&format!("result{index}")))
            .collect();
        let natives: Vec<_> = created.iter().map(|a| ident(&format!("native_{}", a.name))).collect();
        let handles = created.iter().map(|a| ident(&a.name));
        let all: Vec<_> = natives.iter().chain(&results).collect();
        let pattern = match all.as_slice() {
            [] => quote!(()),
            [one] => quote!(#one),
            many => quote!((#(#many),*)),
        };
        quote! {
            Request::#name(_request) => {
                #(#resolved)*
                let #pattern = gpu.#name(#(#passed),*)?;
                #(objects.insert(_request.#handles, #natives)?;)*
                #(::causeway_wire::codec::Encode::encode(&#results, reply);)*
                Ok(())
            }
        }
    });
    let refused = entries
        .iter()
        .filter(|entry| entry.on_the_wire() && !entry.executed_by_back_end())
        .map(|entry| ident(&entry.name));
    quote! {
        /// Carries out `request` on `gpu` and appends its results to `reply`.
        ///
        /// `payload` is the bulk data of a request that has some. A request that the engine itself executes
        /// answers `CUDA_ERROR_NOT_SUPPORTED` here.
        #[allow(clippy::let_unit_value, non_snake_case)]
        pub fn dispatch(
            gpu: &dyn Calls,
            objects: &Objects,
            request: &Request<'_>,
            payload: &[u8],
            reply: &mut ::std::vec::Vec<u8>,
        ) -> ::core::result::Result<(), ::causeway_api::sys::CUresult> {
            match request {
                #(#arms)*
                #(Request::#refused(_) => Err(::causeway_api::sys::CUresult::CUDA_ERROR_NOT_SUPPORTED),)*
            }
        }
    }
}

/// The statement that finds the back end's handle for an argument.
fn resolve(argument: &Argument) -> Option<TokenStream> {
    let name = ident(&argument.name);
    let native = ident(&format!("native_{}", argument.name));
    if holds_handles(&argument.base) {
        let translate = quote!(crate::objects::Translate::natives);
        return match argument.mode {
            Mode::InList { .. } => Some(quote! {
                let #native = _request.#name.iter().map(|held| #translate(held, objects))
                    .collect::<::core::result::Result<::std::vec::Vec<_>, _>>()?;
            }),
            _ => Some(quote!(let #native = #translate(&_request.#name, objects)?;)),
        };
    }
    marker(&argument.base)?;
    match argument.mode {
        Mode::Value => Some(quote!(let #native = objects.native(_request.#name)?;)),
        Mode::Drop => Some(quote!(let #native = objects.remove(_request.#name)?;)),
        Mode::InList { .. } => Some(quote! {
            let #native = _request.#name.iter().map(|handle| objects.native(*handle))
                .collect::<::core::result::Result<::std::vec::Vec<_>, _>>()?;
        }),
        _ => None,
    }
}

/// The expression that passes an argument to the trait's method.
fn pass(argument: &Argument) -> TokenStream {
    let name = ident(&argument.name);
    let native = ident(&format!("native_{}", argument.name));
    let is_handle = marker(&argument.base).is_some() || holds_handles(&argument.base);
    match &argument.mode {
        Mode::In { nullable: false } if is_handle => quote!(&#native),
        Mode::Value | Mode::Drop if is_handle => quote!(#native),
        Mode::InList { .. } if is_handle => quote!(&#native),
        Mode::InList { .. } if argument.base != "bytes" => quote!(&_request.#name),
        Mode::In { nullable: false } | Mode::InOut => quote!(&_request.#name),
        Mode::In { nullable: true } => quote!(_request.#name.as_ref()),
        Mode::Payload => quote!(payload),
        _ => quote!(_request.#name),
    }
}
